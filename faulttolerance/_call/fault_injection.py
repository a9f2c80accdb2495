"""Failures and delays in the place of what attempts call; policies treat them like those of the function itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from .._deadline.clock import clock
from .._deadline.threads.roles import CALLER, register
from .._execution.environment import Environment

__all__ = ["BODY", "FaultInjection"]

BODY: Any = object()
"""The result if the body provides it."""


class FaultInjection(NamedTuple):
    """Faults and delays for attempts, each attempt with the same probability."""

    failure: Callable[[], BaseException | None]
    """Returns the exception that an attempt raises instead of running its body; ``None`` to raise none."""
    seconds: float
    """The time that an attempt waits before anything else, on the shared clock."""
    result: object = BODY
    """The result of an attempt instead of running its body; ``BODY`` to run it. Not used for blocks."""
    rate: float = 1.0
    """The probability that an attempt is disturbed, from 0 to 1."""
    chance: Callable[[], float] = lambda: clock.random()
    """Returns numbers in [0, 1)."""
    report: Callable[[str], object] = lambda kind: None
    """Called with ``"latency"`` or ``"error"`` for each fault that is injected into an attempt."""

    def around(
        self, function: Callable[..., Any], environment: Environment | None, is_awaited: bool, *, is_block: bool = False
    ) -> Callable[..., Any]:
        """Return *function* with disturbances before each attempt, which wait in *environment*, or block the thread."""
        result = BODY if is_block else self.result

        @register(CALLER)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._befalls():
                if self.seconds:
                    self.report("latency")
                    if environment is not None:
                        return later(args, kwargs)  # the caller awaits it, as it may await the body's result
                    clock.sleep(self.seconds)
                self._fail()
                if result is not BODY:
                    return result
            return function(*args, **kwargs)

        async def later(args: Any, kwargs: Any) -> Any:
            assert environment is not None
            await environment.pause(self.seconds)
            self._fail()
            if result is not BODY:
                return result
            given = function(*args, **kwargs)
            return await given if inspect.isawaitable(given) else given

        @register(CALLER)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            given = call(*args, **kwargs)
            return given if given is result else await given

        return awaited if is_awaited else call

    def _befalls(self) -> bool:
        return self.rate >= 1.0 or self.chance() < self.rate

    def _fail(self) -> None:
        failure = self.failure()
        if failure is not None:
            self.report("error")
            raise failure
