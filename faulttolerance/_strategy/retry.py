"""The decision whether another attempt follows, and after how long (specification, chapter Retry Policy)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .back_off import (
    AnyBackOff,
    ApplicationFunction,
    BackOff,
    CustomBackOff,
    CustomDelays,
    Decorrelated,
    Delays,
    Full,
    ReportError,
    ignore_error,
    varied,
)
from .verdict import Classes, matches

if TYPE_CHECKING:
    from .retry_after import RetryAfter

_FOR_EVER: Final = math.inf


class NotCalled(Enum):
    """The placeholder for the answer of a predicate that was not called yet."""

    NOT_CALLED = "unasked"


NOT_CALLED: Final = NotCalled.NOT_CALLED
Answer: TypeAlias = bool | NotCalled | None
"""The answer of a predicate; ``None`` where it has none."""

Predicate: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
"""A predicate of the application; ``consult`` handles an awaitable answer."""


class Predicates:
    """The application's predicates on the outcomes of attempts; a predicate that raises has no answer, which is false.

    Args:
        exception: The predicate on an ``Exception``, if there is one.
        result: The predicate on the returned result, if there is one.
        source: The decorator that declared them, for people.
        tell: Called when a predicate raises, or returns an awaitable where nothing awaits it.
    """

    def __init__(self, exception: Predicate | None, result: Predicate | None, source: str, tell: ReportError) -> None:
        self.all = tuple(one for one in (exception, result) if one is not None)
        """The predicates that exist."""

        def answering(kind: str, predicate: Predicate | None) -> ApplicationFunction | None:
            if predicate is None:
                return None
            report = partial(tell, f"the {kind} predicate of {source}; it counts as false")
            return ApplicationFunction(predicate, bool, report)

        self.exception = answering("exception", exception)
        self.result = answering("result", result)

    def evaluate(self, failure: BaseException | None, result: object) -> bool | None:
        """Return the answer on an attempt; ``None`` where the predicate has none."""
        predicate = self._predicate(failure)
        return False if predicate is None else predicate.answer(result if failure is None else failure)

    async def consult(self, failure: BaseException | None, result: object) -> bool | None:
        """Return the same as ``evaluate``, where the answer may have to be awaited."""
        predicate = self._predicate(failure)
        return False if predicate is None else await predicate.answer_async(result if failure is None else failure)

    def _predicate(self, failure: BaseException | None) -> ApplicationFunction | None:
        """Return the predicate that judges an attempt; none judges control flow."""
        return self.result if failure is None else self.exception if isinstance(failure, Exception) else None


_NO_PREDICATES: Final = Predicates(None, None, "@retry_when", ignore_error)
"""The predicates of every retry that has none."""


class Stop(Enum):
    """The reason why there is no further attempt, in the words of notes and events."""

    NOT_RETRYABLE = "the failure is not to be retried"
    """The failure is not to be retried, or the application's back-off ended the retries."""
    MAX_RETRIES_REACHED = "max_retries reached"
    MAX_DURATION_REACHED = "max_duration reached"
    DEADLINE = "an enclosing deadline would pass during the delay"
    PREDICATE_FAILED = "the exception predicate of retry_when failed, which is logged"
    LEFT = "the block left its loop"
    """The attempt is a block that ended its loop, and only then was found to have ended late."""
    TOLD_TOO_LONG = "the failure asks for a longer wait than max_delay of honor_retry_after"
    TOLD_PAST_MAX_DURATION = "the failure asks for a wait beyond max_duration"
    BUDGET_SPENT = "the retry budget is spent"
    VETOED = "vetoed"
    """The application decided so, and gave its reason in words of its own."""


class AwaitedDelay(NamedTuple):
    """The answers of functions of the application about the next delay, where they were awaited."""

    delay: float | None
    """The delay of the application's back-off, in seconds; negative: stop; ``None`` where the back-off is built in."""
    wait: float | None
    """The seconds to wait that the failure states; ``None`` where it states none."""


class Retry:
    """The decision after each attempt; it keeps nothing between calls. All durations are in seconds.

    Args:
        max_retries: Attempts after the first; -1 for no limit.
        max_duration: No retry starts this long after the call began, or later; 0 for no limit.
        back_off: The delays.
        jitter: Each delay of a back-off that draws none itself is varied by at most this much.
        retry_on: Failures to retry.
        abort_on: Failures never to retry.
        predicates: The predicate on exceptions replaces *retry_on* and *abort_on* for every ``Exception``; control flow
            is never retried. The predicate on results refuses a result, as if the attempt had failed.
        retry_after: Reads how long failures say to wait; a longer wait replaces the delay.
        returns_rejected_result: Whether a result that was refused to the end is returned, and no exception raised in
            its place.
        is_result_stored: Whether a fallback outside remembers good results.
    """

    def __init__(
        self,
        max_retries: int,
        max_duration: float,
        back_off: AnyBackOff,
        jitter: float,
        retry_on: Classes,
        abort_on: Classes,
        predicates: Predicates | None = None,
        retry_after: RetryAfter | None = None,
        returns_rejected_result: bool = False,
        is_result_stored: bool = False,
    ) -> None:
        self.max_retries: float = _FOR_EVER if max_retries == -1 else max_retries
        self.max_duration = max_duration or _FOR_EVER
        self.back_off = back_off
        self.jitter = jitter if isinstance(back_off, BackOff) else 0.0
        self.fixed_delay = back_off.steps[0] if type(back_off) is BackOff and len(back_off.steps) == 1 else None
        """The delay, before jitter, where it is the same each time; else ``back_off.begin`` returns those of a call."""
        self.is_random = self.jitter > 0 or isinstance(back_off, (Full, Decorrelated))
        """Whether a decision needs a random number."""
        self.predicates = _NO_PREDICATES if predicates is None else predicates
        is_plain = not (self.is_random or self.predicates.all or retry_after is not None)
        self.plain_delay = self.fixed_delay if is_plain else None
        """The delay where nothing varies it, and no function of the application is called, as in most retries."""
        self.retry_on = retry_on
        self.abort_on = abort_on
        self.retry_after = retry_after
        self.returns_rejected_result = returns_rejected_result
        self.is_result_stored = is_result_stored
        # Most failures are retried by one test. These plain classes do not override ``isinstance``.
        is_plain = self.predicates.exception is None and not abort_on and all(map(_is_plain, retry_on))
        retried = retry_on if is_plain else ()
        self._always_retried = retried[0] if len(retried) == 1 else retried  # one class is tested faster than a tuple
        self.consults = False
        """Whether a predicate or a function that decides on delays may have to be awaited; only where calls are."""
        self.is_alone = True
        """Whether no failure came yet that another guard, inside, had retried."""

    @property
    def has_custom_delay(self) -> bool:
        """Whether a function of the application decides on delays, which may have to be awaited where calls are."""
        return self.retry_after is not None or isinstance(self.back_off, CustomBackOff)

    def after_failure(
        self,
        error: BaseException,
        attempt: int,
        elapsed: float,
        remaining: float | None,
        random: float = 0.0,
        delays: Delays | None = None,
        answer: Answer = NOT_CALLED,
        told: AwaitedDelay | None = None,
        is_rejection: bool = False,
    ) -> float | Stop:
        """Return the seconds to wait before the next attempt, or why there is none.

        The order is the specification's: abort_on, retry_on, max_retries, max_duration; then the enclosing deadline.

        Args:
            error: The exception of the attempt.
            attempt: How many attempts were made, this attempt included.
            elapsed: How long ago the call began.
            remaining: The time to the deadline of an enclosing call; None where there is none.
            random: A number from [0, 1), where a decision needs one.
            delays: The delays that ``back_off.begin`` returned for this call; needed only for a back-off with a memory.
            answer: The answer of ``Predicates.consult`` on *error*, where that was awaited.
            told: The answer of ``await_delay`` on the delay, where that was awaited.
            is_rejection: Whether *error* stands for a result that a predicate refused: only limits hold then.
        """
        if (stop := self.stop(error, attempt, elapsed, answer=answer, is_rejection=is_rejection)) is not None:
            return stop
        delay, is_told = self.fixed_delay, False
        if delay is None and told is not None:
            delay = told.delay
        if delay is None:
            delay = (delays or self.back_off.begin())(attempt, error, random)
        if not 0 <= delay < _FOR_EVER:
            return Stop.NOT_RETRYABLE
        back_off = self.back_off
        if self.jitter and isinstance(back_off, BackOff):
            delay = varied(delay, self.jitter, random, back_off.maximum, back_off.minimum)
        if self.retry_after is not None:
            wait = told.wait if told is not None else self.retry_after.answer(error)
            if wait is not None and wait > delay:
                longest = self.retry_after.max_delay
                if wait > longest:
                    return Stop.TOLD_TOO_LONG
                delay, is_told = min(wait + self.jitter * random, longest), True
        stop = self.stop(error, attempt, elapsed, delay, remaining, is_rejection=True)
        if stop is None:
            return delay
        return Stop.TOLD_PAST_MAX_DURATION if is_told and stop is Stop.MAX_DURATION_REACHED else stop

    async def await_delay(
        self,
        error: BaseException,
        attempt: int,
        elapsed: float,
        delays: Delays,
        answer: Answer,
        is_rejection: bool,
    ) -> AwaitedDelay | None:
        """Return the answers of the application's functions on the next delay, where they may have to be awaited.

        ``None`` where *error* ends the retries whatever the answers are; the arguments are those of ``after_failure``.
        """
        if self.stop(error, attempt, elapsed, answer=answer, is_rejection=is_rejection) is not None:
            return None
        delay = await delays.later(error) if isinstance(delays, CustomDelays) else None
        return AwaitedDelay(delay, await self.retry_after.answer_async(error) if self.retry_after is not None else None)

    def stop(
        self,
        error: BaseException,
        attempt: int,
        elapsed: float,
        delay: float = 0.0,
        remaining: float | None = None,
        answer: Answer = NOT_CALLED,
        is_rejection: bool = False,
    ) -> Stop | None:
        """Return why no attempt follows *error* after *delay*; ``None``: one follows.

        The other arguments are those of ``after_failure``.
        """
        if not isinstance(error, self._always_retried) and not is_rejection:
            if self.predicates.exception is None:
                answer = matches(error, self.retry_on, self.abort_on)
            elif answer is NOT_CALLED:
                answer = self.predicates.evaluate(error, None)
            if not answer:
                return Stop.PREDICATE_FAILED if answer is None else Stop.NOT_RETRYABLE
        if attempt > self.max_retries:
            return Stop.MAX_RETRIES_REACHED
        if elapsed + delay >= self.max_duration:
            return Stop.MAX_DURATION_REACHED
        if remaining is not None and delay >= remaining:
            return Stop.DEADLINE
        return None

    def refuses(self, result: object, answer: Answer = NOT_CALLED) -> bool:
        """Return whether *result* is retried as if the attempt had failed; *answer* as in ``after_failure``."""
        return bool(self.predicates.evaluate(None, result) if answer is NOT_CALLED else answer)


def _is_plain(one: object) -> bool:
    return type(one) is type and issubclass(one, Exception)
