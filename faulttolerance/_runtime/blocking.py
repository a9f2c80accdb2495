"""Waiting for a guarded call on the caller's own thread.

The twin of ``aio``: the same steps, in the same order, under the same names. What is decided, ``Course`` decides.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from .clock import clock
from .ticket import Ticket

if TYPE_CHECKING:
    from .._guard.compose import Course

__all__ = ["Aside", "GuardedCall", "guard"]

Arguments: TypeAlias = tuple[Any, ...]
GuardedCall: TypeAlias = Callable[[Arguments, Mapping[str, Any]], Any]
"""A guarded function that is given its arguments as they are, unspread."""
Aside: TypeAlias = Callable[[Arguments, Mapping[str, Any], BaseException, int], Any]
"""Code of the application beside the method itself: arguments of the call, its failure, how many attempts were made."""


def guard(
    function: Callable[..., Any],
    course: Course,
    fallback: Aside | None = None,
    before_retry: Aside | None = None,
) -> GuardedCall:
    """Guard *function*; each call waits on the caller's thread."""
    enter, leave, refuses = course.enter, course.leave, course.refuses
    held = course.bulkhead.held if course.bulkhead is not None else None
    timed = course.begin is not None
    unseen = True

    def call(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        progress = None
        first = refuses is None
        while True:
            ticket = Ticket()
            try:
                enter(ticket)
                result = function(*args, **kwargs)
                # Given back first, by plain stores and single C calls: an outer deadline may land behind any call.
                if held is not None:
                    held.pop(ticket, None)
                if timed:
                    ticket.slot.top = ticket.outer  # type: ignore[union-attr]
                leave(ticket, first)
                if first:
                    if unseen:
                        look_at(result)
                    return result
            except BaseException as error:
                if held is not None:
                    held.pop(ticket, None)
                if ticket.slot is not None:
                    ticket.slot.top = ticket.outer
                failure: BaseException | None = error
            else:
                failure = None

            first = applied = False
            if progress is None:
                progress = course.progress(ticket)
            try:
                if failure is not None:
                    failure = course.fail(ticket, failure)
                elif (failure := course.refusal(progress, result)) is None:
                    course.finish(progress, returned=True)
                    return result
                delay = course.next_delay(progress, failure)
                if delay is None:
                    if fallback is None or not course.applies_fallback(failure):
                        raise failure
                    applied = True
                    result = fallback(args, kwargs, failure, progress.attempts)
                    course.finish(progress, returned=True, applied=True)
                    return result
                if delay:
                    _pause(course.name, delay)
                if before_retry is not None:
                    before_retry(args, kwargs, failure, progress.attempts)
            except BaseException:
                course.finish(progress, returned=False, applied=applied)
                raise
            finally:
                del failure  # its traceback holds this frame

    def look_at(result: object) -> None:
        nonlocal unseen
        unseen = False
        if isinstance(result, CoroutineType):
            warnings.warn(
                f"{course.name} is guarded as a synchronous function and returned a coroutine: the failure of a coroutine"
                " that is awaited later is not seen; write `async def`, or `@asynchronous` with an awaitable type",
                RuntimeWarning,
                stacklevel=4,
            )

    return call


_WARNED: set[str] = set()


def _pause(name: str, seconds: float) -> None:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None and name not in _WARNED:
        import logging

        _WARNED.add(name)
        logging.getLogger("faulttolerance").warning(
            "%s delays a retry by %.3f s on the thread of a running event loop; every task of the loop waits meanwhile",
            name,
            seconds,
        )
    clock.sleep(seconds)
