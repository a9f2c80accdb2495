"""Faults in the place of a body, or delays before it; the policies treat them as the body's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..._deadline.clock import clock
from ..._deadline.threads.roles import CALLER, register
from ..._execution.environment import Environment
from ..._log import WARNING, log
from ..._metrics.catalogue import Series
from ..._metrics.counters import Counters
from ..._policy import ChronoUnit, seconds
from .policy import Chaos

BODY: Any = object()
"""The result if the body provides it."""


class Disturbance:
    """Faults and delays for attempts, each attempt with the same probability.

    Args:
        failure: Returns the exception that an attempt raises instead of running its body; ``None`` to raise none.
        seconds: The time that an attempt waits before anything else, on the shared clock.
        result: The result of an attempt instead of running its body; ``BODY`` to run it. Not used for blocks.
        rate: The probability that an attempt is disturbed, from 0 to 1.
        chance: Returns numbers in [0, 1).
        tell: Called with ``"latency"`` or ``"error"`` for each disturbance of an attempt.
    """

    __slots__ = ("_chance", "_failure", "_rate", "_result", "_seconds", "_tell")

    def __init__(
        self,
        failure: Callable[[], BaseException | None],
        seconds: float,
        result: object = BODY,
        rate: float = 1.0,
        chance: Callable[[], float] = lambda: clock.random(),
        tell: Callable[[str], object] = lambda kind: None,
    ) -> None:
        self._failure = failure
        self._seconds = seconds
        self._result = result
        self._rate = rate
        self._chance = chance
        self._tell = tell

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
            if self._befalls():
                if self._is_late():
                    if environment is not None:
                        await environment.pause(self._seconds)
                    else:
                        clock.sleep(self._seconds)
                self._fail()
                if result is not BODY:
                    return result
            return await function(*args, **kwargs)

        return awaited if is_awaited else call

    def _befalls(self) -> bool:
        return self._rate >= 1.0 or self._chance() < self._rate

    def _is_late(self) -> bool:
        if self._seconds:
            self._tell("latency")
        return self._seconds > 0.0

    def _fail(self) -> None:
        failure = self._failure()
        if failure is not None:
            self._tell("error")
            raise failure


_said: set[tuple[str, str]] = set()


def chaos_of(name: str, policy: Chaos, counters: Counters | None, series_of: Callable[[str], Series]) -> Disturbance:
    """Give the chaos that the guard *name* carries, and warn once of each that it ever carries.

    Args:
        name: The guard, or the line that several have in common.
        policy: What befalls attempts.
        counters: Counts it; ``None``: nothing does.
        series_of: Returns the series of a kind of chaos.
    """
    if (name, repr(policy)) not in _said:
        _said.add((name, repr(policy)))
        log(WARNING, "%s carries %r: calls fail or wait on purpose", name, policy, fields={"ft_method": name})
    delay = seconds(policy.latency, ChronoUnit.MILLIS)
    errors: Any = policy.error or (() if delay else (ConnectionError,))  # a tuple, once it is checked

    def failure() -> BaseException | None:
        if not errors:
            return None
        kind = errors[0] if len(errors) == 1 else errors[int(clock.random() * len(errors))]
        made: BaseException = kind(f"{name}: made by chaos")
        return made

    def tell(kind: str) -> None:
        if counters is not None:
            counters.add((series_of(kind),))

    return Disturbance(failure, delay, rate=policy.rate, tell=tell)


def forget_chaos() -> None:
    """Reset the warnings, so that chaos of guards is logged again."""
    _said.clear()
