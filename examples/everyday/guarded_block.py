"""An import that goes on where it was: a block is retried in place, and keeps what it has read."""

from __future__ import annotations

from faulttolerance import Guard, TimeoutException
from faulttolerance.policies import Bulkhead, Retry, Timeout

store = Guard(
    name="store",
    retry=Retry(max_retries=3, delay="10ms", jitter=0, retry_on=(ConnectionError, TimeoutException)),
    timeout=Timeout("2s"),
    bulkhead=Bulkhead(2),
)
interruptions = {2: "no answer", 5: "connection reset"}


def pages(start: int) -> list[int]:
    """Read on from *start*, until the connection breaks."""
    read: list[int] = []
    for page in range(start, 8):
        if page in interruptions:
            partial.extend(read)
            raise ConnectionError(interruptions.pop(page))
        read.append(page)
    return read


partial: list[int] = []
attempts = 0
for attempt in store.attempts():
    with attempt:
        attempts = attempt.number
        print(f"attempt {attempts} begins at page {len(partial)}")
        partial += pages(len(partial))

print(f"read {partial}")
if partial != list(range(8)) or attempts != 3:
    raise SystemExit("each page should be read once, in three attempts")
with store.attempt():
    print("and one block without a retry")
