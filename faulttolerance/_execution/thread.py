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

from .._deadline.attempt_record import AttemptRecord
from .._deadline.detached import begin_call_deadline
from .._deadline.task import current
from .._platform.fork import at_fork
from .._platform.unpatched import get_ident
from .environment import Attempt, Environment, MakeCall, Turn
from .future import Future
from .loop_thread import loop_thread
from .pool import pool
from .thread_attempt import Body
from .thread_call import NO_THREAD, OffloadedCall, Part, Waiting, call_later, step

if TYPE_CHECKING:
    from ..typing import Timer
    from .environment import Run, Ts

Guarded: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Coroutine[Any, Any, Any]]


def start(guarded: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Future[Any]:
    """Begin a call whose attempts run in a ``ThreadEnvironment``, and give its future; raises no ``Exception``."""
    future: Future[Any] = Future()
    OffloadedCall(future).begin(partial(guarded, args, kwargs))
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

    begin_deadline = staticmethod(begin_call_deadline)
    call_later = staticmethod(call_later)

    def pause(self, seconds: float) -> Awaitable[None]:
        return Waiting(seconds)

    def attempt(self, attempt: Attempt) -> Awaitable[Any]:
        return Body(attempt)

    def ident(self) -> int:
        return NO_THREAD

    def turn(self) -> Turn:
        waiting = Waiting()
        return Turn(NO_THREAD, waiting.wake, waiting)

    def hand_on_deadline(self) -> Awaitable[Timer]:
        deadline: Any = current.get()
        return step(lambda call: deadline.watch(call.interrupt))

    def begin(
        self, make: MakeCall, prepare: Callable[[], object], begun: Callable[[Run], object], ended: Callable[[], object]
    ) -> Awaitable[None]:
        def take(call: OffloadedCall) -> None:
            future: Future[Any] = Future()

            def announce() -> Coroutine[Any, Any, Any]:
                begun(future)
                future.add_done_callback(lambda _: ended())
                return make()

            Part(call, future, prepare).begin(announce)

        return step(take)

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
    here = [call for call in calls if any(suspension.ident == ident for suspension in call.suspended)]
    stay = {*here, *(call.outer for call in here)}
    for call in calls:
        if call not in stay:
            pool.leave(call)
            _left_behind.append(call)
            call.leave_behind()


at_fork(child=_leave_calls_behind)
