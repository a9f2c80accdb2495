"""Calls that run on threads of the pool (rules R7, R7b, R7c).

A call is the coroutine of a guarded function, stepped by whoever makes it go on: the caller's thread takes it to its
first body, so that permits are asked for in the order of the calls and a refusal is there when the call returns; a
thread of the pool runs the body and, on its own, whatever follows. The coroutine awaits nothing but what
``ThreadEnvironment`` gives it. No thread ever waits for another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .body import Body
from .clock import clock
from .environment import Attempt, AttemptRecord, Environment, Run, Turn
from .fork import at_fork
from .future import Future
from .loop_thread import loop_thread
from .native import get_ident
from .offloaded import NO_THREAD, Beginning, HandedDown, HandedOnDeadline, OffloadedCall, Pause, Waiting
from .pool import pool
from .ruling import begin_call_deadline

if TYPE_CHECKING:
    from contextvars import ContextVar

    from ..typing import Timer
    from .environment import T, Ts

Guarded: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Coroutine[Any, Any, Any]]


def start(guarded: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Future[Any]:
    """Begin a call whose attempts run in a ``ThreadEnvironment``, and give its future; raises no ``Exception``."""
    future: Future[Any] = Future()
    call = OffloadedCall(future)
    try:
        if not pool.enter(call):
            future.set_exception(RuntimeError("no new calls are taken while faulttolerance.shutdown() waits"))
            return future
        future._stop = call.stop
        call.coroutine = guarded(args, kwargs)
        if call.is_ruled():
            call.watch_ruling()
        if call.stopped:
            call.discard()  # no time is left
        else:
            call.run(None, may_run=False)
    except BaseException:
        call.discard()
        raise
    return future


def shutdown(timeout: float | None = None) -> bool:
    """Refuse new offloaded calls and wait for those that are under way; the first call afterwards opens the pool again.

    A call that is refused returns a future that failed with ``RuntimeError``. Calls under way are still retried, and
    still have their fallbacks. A body that its caller gave up on, at a deadline or by cancelling, is waited for too.

    Args:
        timeout: Seconds to wait at most; ``None``: as long as it takes.

    Returns:
        Whether everything has ended. What has not goes on, and does not keep the interpreter from exiting.

    Raises:
        RuntimeError: When called from an offloaded call, which would wait for itself.
    """
    drained = pool.shutdown(timeout)
    if drained:
        loop_thread.stop_if_idle()
    return drained


class ThreadEnvironment(Environment):
    """The environment of calls that ``start`` begins; no thread is held while they wait."""

    def pause(self, seconds: float) -> Awaitable[None]:
        return Pause(seconds)

    def attempt(self, attempt: Attempt) -> Awaitable[Any]:
        return Body(attempt)

    def ident(self) -> int:
        return NO_THREAD

    def turn(self) -> Turn:
        waiting = Waiting()
        return Turn(NO_THREAD, waiting.wake, waiting)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return clock.call_at(clock.monotonic() + seconds, callback)

    call_after = call_later

    begin_deadline = staticmethod(begin_call_deadline)

    def hand_on_deadline(self) -> Awaitable[Timer]:
        return HandedOnDeadline()

    def hand_down(self, variable: ContextVar[T], value: T) -> Awaitable[None]:
        return HandedDown(partial(variable.set, value))

    def begin(
        self,
        call: Guarded,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        variable: ContextVar[T],
        value: T,
        begun: Callable[[Run], object],
        ended: Callable[[], object],
    ) -> Awaitable[None]:
        return Beginning(partial(call, args, kwargs), partial(variable.set, value), begun, ended)

    def leave(self, runs: Collection[Run]) -> None:
        for run in runs:
            run.cancel()

    async def end(self, runs: Collection[Run]) -> None:
        self.leave(runs)

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Awaitable[Any]:
        return Body(Attempt(AttemptRecord(), function, args, {}, None, None, interrupt=False, awaits=True))


_left_behind: list[OffloadedCall] = []
"""Calls of the parent process. They are kept, so that their coroutines are never closed, and change nothing here."""


def _leave_calls_behind() -> None:
    ident = get_ident()
    calls = [call for call in pool.calls if isinstance(call, OffloadedCall)]
    stay = {outer for call in calls if call.is_on(ident) for outer in call.lineage()}
    for call in calls:
        if call not in stay:
            pool.leave(call)
            _left_behind.append(call)
            call.leave_behind()


at_fork(child=_leave_calls_behind)
