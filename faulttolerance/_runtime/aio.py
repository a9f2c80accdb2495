"""Waiting for a guarded call in a task, or apart from its caller.

The twin of ``blocking``: the same steps, in the same order, under the same names. What is decided, ``Course`` decides.
Where the attempts of a call run apart from it (``@asynchronous``), an ``Environment`` runs them, and the deadline and the
permit are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .blocking import Arguments, Aside
from .environment import Attempt, Environment
from .task_deadline import current
from .tasks import admitted
from .ticket import Ticket

if TYPE_CHECKING:
    from .._guard.compose import Course

__all__ = ["GuardedCoroutine", "guard"]

GuardedCoroutine: TypeAlias = Callable[[Arguments, Mapping[str, Any]], Coroutine[Any, Any, Any]]


def guard(
    function: Callable[..., Any],
    course: Course,
    environment: Environment,
    fallback: Aside | None = None,
    before_retry: Aside | None = None,
    *,
    awaits: bool = True,
) -> GuardedCoroutine:
    """Guard *function*; each call waits in *environment*.

    *awaits* tells that what the function returns is awaited, and that its outcome is the attempt's.
    """
    enter, leave, refuses = course.enter, course.leave, course.refuses
    held = course.bulkhead.held if course.bulkhead is not None else None
    timed = course.begin is not None
    apart, seconds = course.apart, course.seconds

    async def call(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        progress = None
        first = refuses is None
        while True:
            ticket = Ticket()
            try:
                enter(ticket)
                if apart:
                    end = ticket.began + seconds if seconds else None
                    result = await environment.attempt(
                        Attempt(ticket, function, args, kwargs, course.bulkhead, end, course.interrupt, awaits)
                    )
                else:
                    if ticket.waiter is not None:
                        await admitted(ticket)
                    result = await function(*args, **kwargs)
                    if held is not None:
                        held.pop(ticket, None)
                    if timed:
                        deadline = ticket.deadline
                        deadline.pending.pop(deadline, None)  # type: ignore[union-attr, arg-type]
                        current.set(deadline.previous)  # type: ignore[union-attr]
                leave(ticket, first)
                if first:
                    return result
            except BaseException as error:
                if not apart:
                    if ticket.waiter is not None:
                        course.bulkhead.withdraw(ticket.waiter)  # type: ignore[union-attr]
                    if held is not None:
                        held.pop(ticket, None)
                    deadline = ticket.deadline
                    if deadline is not None:
                        deadline.pending.pop(deadline, None)
                        current.set(deadline.previous)
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
                    result = await environment.call(fallback, args, kwargs, failure, progress.attempts)
                    course.finish(progress, returned=True, applied=True)
                    return result
                if delay:
                    await environment.pause(delay)
                if before_retry is not None:
                    await environment.call(before_retry, args, kwargs, failure, progress.attempts)
            except BaseException:
                course.finish(progress, returned=False, applied=applied)
                raise
            finally:
                del failure  # its traceback holds this frame

    return call
