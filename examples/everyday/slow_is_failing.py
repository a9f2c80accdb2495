"""A search that answers, but slowly, is spared until it is quick again; and nobody hammers it meanwhile."""

from __future__ import annotations

from itertools import pairwise

from faulttolerance import CircuitBreakerOpenException, circuit_breaker, circuit_breakers
from faulttolerance.testing import virtual_time

answer_takes = 3.0


@circuit_breaker(
    name="search",
    fail_on=OSError,
    request_volume_threshold=4,
    window=60_000,
    slow=2000,
    delay=5000,
    max_delay=60_000,
)
def search(term: str) -> list[str]:
    time.sleep(answer_takes)
    return [f"{term} one", f"{term} two"]


with virtual_time() as time:
    for _ in range(2):
        assert search("tea") == ["tea one", "tea two"]  # slow answers are answers
    answer_takes = 0.1
    search("milk")
    answer_takes = 3.0
    search("bread")
    print(circuit_breakers.snapshot("search"))

    waits = []
    for _ in range(4):
        try:
            search("tea")
        except CircuitBreakerOpenException as refusal:
            waits.append(refusal.retry_after or 0.0)
            time.sleep(waits[-1])
            search("tea")  # the probe, as slow as before
    print("seconds without a call:", [round(wait) for wait in waits])
    assert all(after > 1.5 * before for before, after in pairwise(waits))

    answer_takes = 0.1
    time.sleep(60)
    search("tea")
    assert circuit_breakers.state("search") == "closed"
