"""Time for the tests of the official kit: virtual, or real with ``--real-time``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faulttolerance.testing import virtual_time
from kit import Calls, Clock, Invoke, RealClock, VirtualClock


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Iterator[Clock]:
    """Yield the clock that the library follows during the test."""
    if request.config.getoption("--real-time"):
        real = RealClock(request.config.getoption("--time-factor"))
        yield real
        real.end()
    else:
        with virtual_time() as virtual:
            yield VirtualClock(virtual)


@pytest.fixture
def calls(invoke: Invoke, clock: Clock) -> Iterator[Calls]:
    """Yield a maker of many calls at once, which all end with the test."""
    started = Calls(invoke, clock)
    yield started
    started.end()
