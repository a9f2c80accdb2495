"""Failures and delays in the place of what attempts call; policies treat them like those of the function itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .._deadline.clock import clock
from .._deadline.threads.roles import CALLER, register
from .._execution.environment import Environment

__all__ = ["BODY", "FaultInjection"]

BODY: Any = object()
"""The result if the body provides it."""


class FaultInjection:
    """Faults and delays for attempts, each attempt with the same probability.

    Args:
        failure: Returns the exception that an attempt raises instead of running its body; ``None`` to raise none.
        seconds: The time that an attempt waits before anything else, on the shared clock.
        result: The result of an attempt instead of running its body; ``BODY`` to run it. Not used for blocks.
        rate: The probability that an attempt is disturbed, from 0 to 1.
        chance: Returns numbers in [0, 1).
        report: Called with ``"latency"`` or ``"error"`` for each fault that is injected into an attempt.
    """

    __slots__ = ("_chance", "_failure", "_rate", "_report", "_result", "_seconds")

    def __init__(
        self,
        failure: Callable[[], BaseException | None],
        seconds: float,
        result: object = BODY,
        rate: float = 1.0,
        chance: Callable[[], float] = lambda: clock.random(),
        report: Callable[[str], object] = lambda kind: None,
    ) -> None:
        self._failure = failure
        self._seconds = seconds
        self._result = result
        self._rate = rate
        self._chance = chance
        self._report = report

    def around(
        self, function: Callable[..., Any], environment: Environment | None, is_awaited: bool, *, is_block: bool = False
    ) -> Callable[..., Any]:
        """Return *function* with disturbances before each attempt, which wait in *environment*, or block the thread."""
        result = BODY if is_block else self._result

        @register(CALLER)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._befalls():
                if self._is_late():
                    if environment is not None:
                        return later(args, kwargs)  # the caller awaits it, as it may await the body's result
                    clock.sleep(self._seconds)
                self._fail()
                if result is not BODY:
                    return result
            return function(*args, **kwargs)

        async def later(args: Any, kwargs: Any) -> Any:
            assert environment is not None
            await environment.pause(self._seconds)
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
        return self._rate >= 1.0 or self._chance() < self._rate

    def _is_late(self) -> bool:
        if self._seconds:
            self._report("latency")
        return self._seconds > 0.0

    def _fail(self) -> None:
        failure = self._failure()
        if failure is not None:
            self._report("error")
            raise failure
