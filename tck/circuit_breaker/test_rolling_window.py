"""The rolling window against a naive one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st

from faulttolerance._strategy.rolling_window import RollingWindow
from kit.struck import Struck, strikes


class NaiveWindow:
    """The yardstick: it keeps all results, and counts them each time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.results: list[bool] = []

    def record(self, failed: bool) -> None:
        self.results = [*self.results, failed][-self.size :]

    def resize(self, size: int) -> None:
        self.size = size
        self.results = self.results[-size:]

    @property
    def failures(self) -> int:
        return sum(self.results)

    @property
    def is_full(self) -> bool:
        return len(self.results) == self.size


steps = st.lists(st.one_of(st.booleans(), st.integers(1, 12)), max_size=60)


@example(3, [True, False, True, False, False, False])
@given(st.integers(1, 12), steps)
def test_it_agrees_with_the_naive_window(size: int, steps: list[bool | int]) -> None:
    """After any records and changes of the length, failures and fullness are those of the last N."""
    window, naive = RollingWindow(size), NaiveWindow(size)

    for step in steps:
        if isinstance(step, bool):
            window.record(step)
            naive.record(step)
        else:
            window.resize(step)
            naive.resize(step)

        assert (window.failures, window.is_full, window.size) == (naive.failures, naive.is_full, naive.size)


def test_the_oldest_result_leaves_first() -> None:
    """A window of three with a failure and then three successes has no failure."""
    window = RollingWindow(3)
    window.record(True)

    counts = []
    for _ in range(3):
        window.record(False)
        counts.append(window.failures)

    assert counts == [1, 1, 0]


def test_a_shorter_window_keeps_the_newest_results() -> None:
    """Reconfiguration forgets the oldest results, not the newest ones."""
    window = RollingWindow(4)
    for failed in (False, True, True, False, True):
        window.record(failed)

    window.resize(2)

    assert (window.failures, window.is_full) == (1, True)


@pytest.mark.parametrize("size", [1, 2**31])
def test_any_length_costs_only_the_recorded_results(size: int) -> None:
    """A huge request_volume_threshold takes no memory before calls are made."""
    window = RollingWindow(size)
    window.record(True)

    assert (window.failures, window.is_full) == (1, size == 1)


@pytest.mark.parametrize("raises", [True, False])
def test_a_signal_handler_at_any_place_leaves_the_counts_right(raises: bool) -> None:
    """A handler that raises, or makes guarded calls, while a result is recorded leaves a window that fills and counts.

    Otherwise it would be too long for ever, never full, and its circuit would never open.
    """
    windows = [RollingWindow(2)]
    for strike in strikes("rolling_window.py", handle=None if raises else lambda: windows[-1].record(True)):
        window = RollingWindow(2)
        windows.append(window)
        with suppress(Struck), strike:
            window.record(True)
            window.record(True)
        for failed in (False, True, False):
            window.record(failed)

        assert (window.failures, window.is_full, window.held(0.0)) == (1, True, (2, 1)), strike.where
