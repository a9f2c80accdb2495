"""Nobody knows yet how long the search takes: the time-out finds out, and follows when it becomes slower."""

from __future__ import annotations

from faulttolerance import TimeoutException, guards, remaining, sleep, timeout
from faulttolerance.testing import virtual_time


class Catalogue:
    seconds = 0.04

    @timeout("2s", adaptive=True)
    def search(self, words: str) -> str:
        sleep(self.seconds)
        return f"3 books about {words}"


def limit() -> float:
    """How long a search may take that begins now, as dashboards show it."""
    (search,) = [guard for guard in guards() if guard.name.endswith("Catalogue.search")]
    return next(value for (metric, _), value in search.counts.items() if metric == "ft.timeout.limit")


def searches(catalogue: Catalogue, times: int) -> int:
    """Search so often; count what ends in time."""
    found = 0
    for _ in range(times):
        try:
            catalogue.search("bees")
            found += 1
        except TimeoutException:
            pass
    return found


with virtual_time():  # a test's clock: the hour below takes no time
    catalogue = Catalogue()
    searches(catalogue, 64)
    print(f"A search takes 40 ms, and may take {limit() * 1000:.0f} ms instead of 2 s.")
    assert 0.12 <= limit() <= 0.132

    catalogue.seconds = 30.0
    began = limit()
    assert not searches(catalogue, 1)
    print(f"One that hangs is over after {began * 1000:.0f} ms.")

    catalogue.seconds = 0.2
    lost = 200 - searches(catalogue, 200)
    print(
        f"The index has become five times slower: {lost} searches were lost until {limit() * 1000:.0f} ms were known."
    )
    assert lost <= 64
    assert 0.6 <= limit() <= 0.66
    assert remaining() is None
