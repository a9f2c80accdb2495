"""A race waits correctly in an environment in which everything happens at the worst moment."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from faulttolerance import policies
from faulttolerance._call.row import Binding
from faulttolerance._execution.environment import Wait
from faulttolerance._execution.race import has_lost
from faulttolerance._extensions.hedge.layer import Hedging
from faulttolerance._extensions.hedge.strategy import Hedge


class Never:
    """An awaitable that nothing wakes."""

    def __await__(self) -> Any:
        raise AssertionError("it waits for what has happened already")
        yield


class Unlucky:
    """An environment in which the first attempt ends after the race has looked and before it can be woken."""

    def __init__(self) -> None:
        self.run: Future[str] = Future()

    async def start_child(self, *how: Any) -> None:
        begun, _ = how[-2:]
        begun(self.run)

    def new_wait(self) -> Wait:
        self.run.set_result("ended")
        return Wait(0, lambda: None, Never())  # type: ignore[arg-type]

    def call_later(self, seconds: float, callback: Any) -> Any:
        raise AssertionError("nothing is to wait for")


def test_an_attempt_that_ends_before_it_can_wake_anybody_is_seen() -> None:
    """By rule H4: no wake-up is lost, wherever an attempt runs."""
    binding = Binding(
        "load",
        {},
        {policies.Hedge: Hedge(1, 0.0, 0.1)},
        asynchronous=True,
        detached=False,
        deliver=lambda: None,
        build_inner=lambda **_: lambda *_: None,
    )
    raced = Hedging(binding)(lambda *_: None, Unlucky())  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as end:
        raced((), {}).send(None)

    assert end.value.value == "ended"
    assert not has_lost()
