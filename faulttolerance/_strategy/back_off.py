"""The growth of the delays between attempts, and their random part. All durations are in seconds."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from .._shown import shown

LONGEST: Final = 1e9
"""The longest delay where no maximum is stated: thirty years, for which any clock can still wait."""

_FASTER: Final = 3.0
"""The most by which a decorrelated delay exceeds the one before (AWS)."""

_MIDDLE: Final = 0.5


Delays: TypeAlias = Callable[..., float]
"""The delays of one guarded call.

Takes the number of attempts, the last failure and a random number from [0, 1), and returns the seconds to wait; a
negative number stops the retries.
"""

ReportError = Callable[[str, Exception], None]
"""A function that reports an error of the application's code that has no further effect: a description, the error."""


def ignore_error(what: str, error: Exception) -> None:
    """Ignore the mistake: the application has passed no function that can fail."""


class ApplicationFunction:
    """A function of the application that decides on a call; where it fails, it has no answer, and the call goes on.

    Args:
        function: Takes the failure or the result of an attempt.
        read: Converts the answer; its error counts as an error of the function.
        report: Called with an error, never in place of the call's own failure.
    """

    def __init__(
        self, function: Callable[[Any], Any], read: Callable[[Any], Any], report: Callable[[Exception], None]
    ) -> None:
        self._function = function
        self._read = read
        self._report = report

    def answer(self, argument: Any) -> Any:
        """Return the answer; ``None`` where there is none."""
        try:
            answer = self._function(argument)
            if hasattr(answer, "__await__"):
                if hasattr(answer, "close"):
                    answer.close()
                raise TypeError(f"returned {answer!r}, which must be awaited")
            return self._read(answer)
        except Exception as mistake:  # noqa: BLE001  # the application's
            self._report(mistake)
            return None
        finally:
            del argument  # the traceback of a failure may hold this frame

    async def answer_async(self, argument: Any) -> Any:
        """Return the same as ``answer``, where the answer may have to be awaited."""
        try:
            answer = self._function(argument)
            return self._read(await answer if isinstance(answer, Awaitable) else answer)
        except Exception as mistake:  # noqa: BLE001  # as above
            self._report(mistake)
            return None
        finally:
            del argument  # as above


def seconds_of(answer: Any) -> float:
    """Return the seconds in the *answer* of an application's function."""
    if isinstance(answer, timedelta):
        return answer.total_seconds()
    if isinstance(answer, (int, float)) and not isinstance(answer, bool):
        return float(answer)
    raise TypeError(f"returned {shown(answer)}; allowed: seconds or a timedelta")


class BackOff:
    """Delays that depend on the number of attempts only.

    Args:
        steps: The delay after the first attempt, the second, and so on; the last delay is for all later attempts.
        maximum: No delay is longer, jitter included.
        minimum: No delay is shorter, jitter included.
    """

    def __init__(self, steps: tuple[float, ...], maximum: float = math.inf, minimum: float = 0.0) -> None:
        self.steps = steps
        self.maximum = maximum
        self.minimum = minimum

    def begin(self) -> Delays:
        """Return the delays of one guarded call."""
        return self.delay

    def delay(self, attempt: int, failure: BaseException | None = None, random: float = _MIDDLE, /) -> float:
        """Return the delay after the attempt number *attempt*, counted from 1."""
        steps = self.steps
        return steps[attempt - 1] if attempt <= len(steps) else steps[-1]


class Exponential(BackOff):
    """Delays that are each *factor* times as long as the one before.

    There is no table: with a factor close to 1 it would have millions of steps.

    Args:
        first: The delay after the first attempt, before it is cut to *minimum* and *maximum*. A delay of 0 would never
            grow: with a *minimum*, the first delay is the minimum then.
        factor: At least 1.
        maximum: No delay is longer, jitter included; 0 for no limit.
        minimum: No delay is shorter, jitter included.
    """

    def __init__(self, first: float, factor: float, maximum: float = 0.0, minimum: float = 0.0) -> None:
        super().__init__((first or minimum,), maximum or math.inf, minimum)
        self._factor = float(factor)

    def delay(self, attempt: int, failure: BaseException | None = None, random: float = _MIDDLE, /) -> float:
        """Return the delay after the attempt number *attempt*, counted from 1."""
        (first,) = self.steps
        try:
            grown = first and first * self._factor ** (attempt - 1)
        except OverflowError:
            grown = LONGEST
        return max(self.minimum, min(grown, self.maximum, LONGEST))


class Full:
    """Delays drawn from the whole range up to the delay of another back-off ("full jitter" of AWS).

    Args:
        upper: The back-off whose delays are the longest.
    """

    def __init__(self, upper: BackOff) -> None:
        self.upper = upper

    def begin(self) -> Delays:
        """Return the delays of one guarded call."""
        upper = self.upper

        def delay(attempt: int, failure: BaseException | None, random: float = _MIDDLE, /) -> float:
            return upper.minimum + max(0.0, upper.delay(attempt) - upper.minimum) * random

        return delay


class Decorrelated:
    """Delays drawn from the range between the first delay and three times the last delay ("decorrelated" of AWS).

    Args:
        first: The shortest delay.
        maximum: No delay is longer.
    """

    def __init__(self, first: float, maximum: float = math.inf) -> None:
        self.first = min(first, maximum)
        self.maximum = maximum

    def begin(self) -> Delays:
        """Return the delays of one guarded call."""
        first = last = self.first
        longest = min(self.maximum, LONGEST)

        def delay(attempt: int, failure: BaseException | None, random: float = _MIDDLE, /) -> float:
            nonlocal last
            high = min(last * _FASTER, longest)  # the rest of a range that is cut is used evenly, as by ``varied``
            last = min(first + max(0.0, high - first) * random, longest)
            return last

        return delay


class CustomBackOff:
    """Delays that a function of the application decides, without jitter.

    Args:
        factory: Called once per guarded call that is retried; it returns the function that is called for each delay.
        default: The delay where the code of the application fails.
        tell: Called when the code of the application fails.
    """

    def __init__(
        self,
        factory: Callable[[], Callable[[BaseException | None], float | timedelta]],
        default: float = 0.0,
        tell: ReportError = ignore_error,
    ) -> None:
        self._report = partial(tell, "the function of @custom_backoff; the delay of @retry applies")
        self.default = default
        self.make = ApplicationFunction(lambda _: factory(), self._deciding, self._report)
        """Creates the function that decides on the delays of one call."""

    def begin(self) -> CustomDelays:
        """Return the delays of one guarded call."""
        return CustomDelays(self)

    def _deciding(self, decide: Callable[[BaseException | None], Any]) -> ApplicationFunction:
        return ApplicationFunction(decide, seconds_of, self._report)


class CustomDelays:
    """The delays of one guarded call, as decided by the application for *owner*."""

    def __init__(self, owner: CustomBackOff) -> None:
        self._owner = owner
        self._is_made = False
        self._decide: ApplicationFunction | None = None

    def __call__(self, attempt: int, failure: BaseException | None, random: float = _MIDDLE, /) -> float:
        """Return the seconds to wait, or a negative number: stop."""
        if not self._is_made:
            self._is_made, self._decide = True, self._owner.make.answer(None)
        seconds = self._decide.answer(failure) if self._decide is not None else None
        return self._owner.default if seconds is None else seconds

    async def later(self, failure: BaseException) -> float:
        """Return the seconds to wait where the function or its factory may have to be awaited."""
        if not self._is_made:
            self._is_made, self._decide = True, await self._owner.make.answer_async(None)
        seconds = await self._decide.answer_async(failure) if self._decide is not None else None
        return self._owner.default if seconds is None else seconds


AnyBackOff: TypeAlias = BackOff | Full | Decorrelated | CustomBackOff


@lru_cache
def fixed(delay: float, maximum: float = math.inf) -> BackOff:
    """Return a back-off that always waits *delay*, at most *maximum*; most guards have equal values and share it."""
    return BackOff((delay,), maximum)


def fibonacci(delay: float, maximum: float = 0.0) -> BackOff:
    """Return delays of *delay* times 1, 2, 3, 5, 8 and so on, at most *maximum* (0: no limit)."""
    # The table ends at the longest delay: no power is ever computed, so none can overflow.
    ceiling = maximum or LONGEST
    steps = [min(delay, ceiling)]
    last_but_one, last = delay, delay
    while 0.0 < last < ceiling:
        last_but_one, last = last, last_but_one + last
        steps.append(min(last, ceiling))
    return BackOff(tuple(steps), maximum or math.inf)


def varied(delay: float, jitter: float, random: float, maximum: float = math.inf, minimum: float = 0.0) -> float:
    """Return a delay from ``delay - jitter`` to ``delay + jitter``, never below *minimum*, never above *maximum*.

    *random* is from [0, 1). Where *minimum* or *maximum* cuts the range, the rest of the range is used evenly;
    otherwise all callers beyond the cut would wait for the same time. Below a *minimum* of 0, delays are 0
    (specification).
    """
    if not jitter:
        return min(delay, maximum)
    low = delay - jitter
    if minimum:
        low = max(low, minimum)
    high = min(delay + jitter, maximum)
    return max(0.0, min(low + (high - low) * random, high))
