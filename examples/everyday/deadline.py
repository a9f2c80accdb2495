"""One deadline for a whole request: what is slow ends in time, and what can still be told is told."""

from __future__ import annotations

from time import monotonic

from faulttolerance import TimeoutException, deadline, fallback, remaining, retry, sleep, timeout

asked: list[float] = []


@timeout("150ms")
def stock(product: str) -> int:
    """Ask the warehouse, which hangs today."""
    left = remaining()
    assert left is not None
    asked.append(left)
    sleep(10)
    return 3


@fallback(lambda context: "ask us", apply_on=TimeoutException)
@deadline("400ms")
@retry(max_retries=9, delay="20ms", jitter=0, retry_on=TimeoutException)
def availability(product: str) -> str:
    return f"{stock(product)} in stock"


began = monotonic()
print("availability:", availability("tea"))
took = monotonic() - began
print(f"{len(asked)} attempts in {took:.2f} s, the last one with {asked[-1] * 1000:.0f} ms left")
if took > 1.0 or len(asked) != 3 or asked[-1] > 0.1:
    raise SystemExit("a whole call should take no longer than its deadline, and its last attempt what is left")

try:
    with deadline("100ms"):
        stock("coffee")
except TimeoutException as late:
    print(late)
else:
    raise SystemExit("a block should end at its deadline")
