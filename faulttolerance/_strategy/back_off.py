"""How the delay between attempts grows, and how chance varies it. All durations are in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException

__all__ = [
    "LONGEST",
    "BackOff",
    "CustomBackOff",
    "Delays",
    "Mistakes",
    "exponential",
    "fibonacci",
    "fixed",
    "unheard",
    "varied",
]

LONGEST: Final = 1e9
"""No delay grows beyond this, thirty years, where no maximum is stated: any clock can still wait for it."""

_STEEPEST: Final = 1e300
"""By a larger factor no delay grows any faster: its second step is the longest."""

Delays = Callable[[int, BaseException | None], float]
"""The delays of one guarded call: number of attempts made, and the last failure -> seconds; negative: stop."""


Mistakes = Callable[[str, Exception], None]
"""Told what of the application's failed, and how, where that changes nothing else."""


def unheard(what: str, error: Exception) -> None:
    """Tell nobody: the application has given nothing that can fail."""


class BackOff:
    """Delays that depend on the number of attempts only.

    Args:
        steps: The delay after the first attempt, the second, and so on; the last one is for all later ones.
        maximum: No delay is longer, jitter included.
    """

    __slots__ = ("maximum", "steps")

    has_jitter: Final = True

    def __init__(self, steps: tuple[float, ...], maximum: float = math.inf) -> None:
        self.steps = steps
        self.maximum = maximum

    def begin(self) -> Delays:
        """The delays of one guarded call."""
        return self.delay

    def delay(self, attempt: int, failure: BaseException | None = None) -> float:
        """The delay after the attempt number *attempt*, counted from 1."""
        steps = self.steps
        return steps[attempt - 1] if attempt <= len(steps) else steps[-1]


class CustomBackOff:
    """Delays that a function of the application decides, without jitter.

    Args:
        factory: Called once per guarded call that fails; the function it gives is asked for each delay.
        name: Whose delays they are, for the message where one is no number.
        default: The delay where the application's code fails.
        tell: Told of that.
    """

    __slots__ = ("_default", "_name", "_tell", "factory")

    has_jitter: Final = False
    maximum: Final = math.inf

    def __init__(
        self,
        factory: Callable[[], Callable[[BaseException | None], float | timedelta]],
        name: str = "",
        default: float = 0.0,
        tell: Mistakes = unheard,
    ) -> None:
        self.factory = factory
        self._name = name
        self._default = default
        self._tell = tell

    def begin(self) -> Delays:
        """The delays of one guarded call."""
        try:
            decide = self.factory()
        except Exception as mistake:  # noqa: BLE001  # the application's, and never in place of the call's own failure
            self._tell(_FAILED, mistake)
            return lambda _, failure: self._default
        return lambda _, failure: self._delay(decide, failure)

    def _delay(self, decide: Callable[[BaseException | None], object], failure: BaseException | None) -> float:
        try:
            return self._seconds(decide(failure))
        except Exception as mistake:  # noqa: BLE001  # as above
            self._tell(_FAILED, mistake)
            return self._default

    def _seconds(self, delay: Any) -> float:
        if isinstance(delay, timedelta):
            return delay.total_seconds()
        if isinstance(delay, (int, float)):
            try:
                return float(delay)
            except OverflowError:
                return math.inf if delay > 0 else -math.inf
        if hasattr(delay, "close"):
            delay.close()  # a coroutine that nobody awaits
        allowed = "seconds or a timedelta; a negative one ends the retrying"
        fault = Fault(f"{self._name} @CustomBackoff(value)".lstrip(), f"gave {shown(delay)}", delay, allowed)
        raise FaultToleranceDefinitionException(fault)


_FAILED = "the function of @custom_backoff, instead of which the delay of @retry counts"


@lru_cache
def fixed(delay: float) -> BackOff:
    """Wait *delay* each time; most guards wait as long as others do, and share it."""
    return BackOff((delay,))


def exponential(delay: float, factor: float, maximum: float = 0.0) -> BackOff:
    """Wait *delay*, then *factor* times as long each time, at most *maximum* (0: no limit)."""
    factor = min(factor, _STEEPEST)  # a whole number may be larger than any float
    return _growing(delay, maximum, lambda _, last: last * factor)


def fibonacci(delay: float, maximum: float = 0.0) -> BackOff:
    """Wait *delay* times 1, 2, 3, 5, 8 and so on, at most *maximum* (0: no limit)."""
    return _growing(delay, maximum, lambda last_but_one, last: last_but_one + last)


def varied(delay: float, jitter: float, random: float, maximum: float = math.inf) -> float:
    """A delay from ``delay - jitter`` to ``delay + jitter``, never below 0, never above *maximum*.

    *random* is from [0, 1). Where *maximum* cuts the range off, what is left of it is used evenly: callers that have
    reached the maximum would all wait for the same time otherwise.
    """
    if not jitter:
        return min(delay, maximum)
    low = delay - jitter
    high = min(delay + jitter, maximum)
    return max(0.0, min(low + (high - low) * random, high))


def _growing(delay: float, maximum: float, following: Callable[[float, float], float]) -> BackOff:
    # A table up to the point where nothing grows any more: no power is ever computed, so none can overflow.
    ceiling = maximum or LONGEST
    steps = [min(delay, ceiling)]
    last_but_one, last = delay, delay
    while last < ceiling:
        last_but_one, last = last, following(last_but_one, last)
        if last == last_but_one:
            break
        steps.append(min(last, ceiling))
    return BackOff(tuple(steps), maximum or math.inf)
