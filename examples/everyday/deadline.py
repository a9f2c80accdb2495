"""One deadline for a whole request: what is slow ends in time, and what can still be told is told."""

from __future__ import annotations

from time import monotonic

from faulttolerance import TimeoutException, deadline, fallback, remaining, retry, sleep, timeout

seen: list[tuple[float, float]] = []


def left() -> float:
    seconds = remaining()
    assert seconds is not None
    return seconds


@timeout("150ms")
def stock(product: str, of_the_request: float) -> int:
    """Ask the warehouse, which hangs today."""
    seen.append((of_the_request, left()))
    sleep(60)
    return 3


@fallback(lambda context: "ask us", apply_on=TimeoutException)
@deadline("400ms")
@retry(max_retries=9, delay="20ms", jitter=0, retry_on=TimeoutException)
def availability(product: str) -> str:
    return f"{stock(product, left())} in stock"


began = monotonic()
print("availability:", availability("tea"))
took = monotonic() - began
lefts = ", ".join(f"{attempt * 1000:.0f} ms" for _, attempt in seen)
print(f"{len(seen)} attempts in {took:.2f} s, with so much time each: {lefts}")
if took > 30 or len(seen) > 3:  # ten attempts would be made without the deadline
    raise SystemExit("a whole call should take no longer than its deadline")
if any(attempt > min(request, 0.151) for request, attempt in seen):
    raise SystemExit("an attempt should get its time-out, and no more than what is left")

try:
    with deadline("100ms"):
        stock("coffee", left())
except TimeoutException as late:
    print(late)
else:
    raise SystemExit("a block should end at its deadline")
