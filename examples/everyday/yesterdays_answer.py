"""A rate that cannot be fetched: that of a while ago is served, and no longer than a day."""

from __future__ import annotations

from faulttolerance import fallback, last_good, retry
from faulttolerance.testing import virtual_time

is_up = True


@fallback(last_good(max_age="1d"), apply_on=OSError)
@retry(max_retries=2, delay="1s", retry_on=ConnectionError)
def rate(currency: str) -> float:
    if not is_up:
        raise ConnectionError(f"no rate of {currency}")
    return 1.08


with virtual_time() as time:
    assert rate("USD") == 1.08
    is_up = False
    time.sleep(23 * 3600)
    print("a day later:", rate("USD"))
    time.sleep(3600)
    try:
        rate("USD")
    except ConnectionError as failure:
        print("two days later:", failure)
    else:
        raise SystemExit("the rate is too old")
