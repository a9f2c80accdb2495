"""What holds for every test: nothing that one leaves behind reaches the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from faulttolerance import testing


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("official test kit")
    group.addoption("--real-time", action="store_true", help="let time pass as it does, instead of virtually")
    group.addoption(
        "--time-factor", type=float, default=1.0, metavar="N", help="widen the tolerances in real time by this factor"
    )


@pytest.fixture(autouse=True)
def forget_runtime_state() -> Iterator[None]:
    """Forget circuits, counts and configuration after each test; declarations stay."""
    yield
    testing.reset()


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Refuse a test after which a thread is left that would hold the interpreter's exit."""
    before = set(threading.enumerate())
    yield
    left = [one for one in threading.enumerate() if one not in before and not one.daemon]
    for one in left:
        one.join(1.0)
    alive = [one.name for one in left if one.is_alive()]
    assert not alive, f"threads left behind: {alive}"
