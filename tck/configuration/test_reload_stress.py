"""Reloads beside threads that call guards for the first time, and others that read all metrics.

Would have caught: a reload that begins again for each guard that comes into use meanwhile, and never ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from faulttolerance import circuit_breaker, configure, retry
from faulttolerance._metrics.counters import ledger

RELOADS, CALLERS, READERS, GUARDS = 3, 4, 3, 20

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]


@pytest.fixture
def _hasty() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


class Flaky:
    """A guarded function that counts its attempts."""

    def __init__(self) -> None:
        self.calls = 0

        @retry(delay=0, jitter=0)
        @circuit_breaker(request_volume_threshold=1000)
        def call() -> None:
            self.calls += 1
            raise OSError

        self.call = call

    def retries(self) -> int:
        self.calls = 0
        with pytest.raises(OSError):
            self.call()
        return self.calls - 1


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("kept", [0, 100])
def test_every_reload_ends_beside_first_calls_and_scrapes(kept: int) -> None:
    """Rule C3: a guard that was first called meanwhile follows the last reload."""
    old = [Flaky() for _ in range(GUARDS)]
    last: list[list[Flaky]] = [[] for _ in range(CALLERS)]
    ended = threading.Event()

    def repeated(work: Callable[[], object]) -> None:
        while not ended.is_set():
            work()

    def first_call(mine: list[Flaky]) -> None:
        mine.append(Flaky())
        mine[-1].retries()
        del mine[: -kept - 1]

    assert {flaky.retries() for flaky in old} == {3}
    works: list[Callable[[], object]] = [lambda mine=mine: first_call(mine) for mine in last]
    threads = [threading.Thread(target=repeated, args=(work,)) for work in (*works, *[ledger.read] * READERS)]
    for thread in threads:
        thread.start()
    try:
        for number in range(RELOADS):
            configure(properties={"Retry/maxRetries": number % 3})
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)

    newest = [flaky for mine in last for flaky in mine]
    assert {flaky.retries() for flaky in (*old, *newest)} == {(RELOADS - 1) % 3}
