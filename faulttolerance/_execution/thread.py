"""Calls that run on threads of the pool (rules R7, R7b, R7c).

A call is the coroutine of a guarded function, stepped by each thread that continues it. The caller's thread steps it
to its first body. So permits are requested in the order of the calls, and a refusal is known when the call
returns. A thread of the pool runs the body and all that follows. The coroutine awaits only results of
``ThreadEnvironment``. No thread ever waits for another thread.
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
from .environment import Attempt, Environment, MakeCall, Wait
from .future import Future
from .loop_thread import loop_thread
from .pool import pool
from .thread_attempt import ThreadAttempt
from .thread_call import NO_THREAD, ChildCall, Pause, ThreadCall, call_later, step

if TYPE_CHECKING:
    from ..typing import Timer
    from .environment import Run, Ts

Guarded: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Coroutine[Any, Any, Any]]


def start(guarded: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Future[Any]:
    """Start a call whose attempts run in a ``ThreadEnvironment``, and return its future; raises no ``Exception``."""
    future: Future[Any] = Future()
    try:
        ThreadCall(future).begin(partial(guarded, args, kwargs))
        return future
    finally:
        del future  # the traceback of a failure in it refers to this frame


def shutdown(timeout: float | None = None) -> bool:
    """Reject new offloaded calls and wait for those that are under way; the next call afterwards reopens the pool.

    A rejected call returns a future that failed with ``RuntimeError``. Calls that are under way are still retried, and
    still have their fallbacks. The wait includes bodies whose callers have gone on after a deadline or a cancellation.

    Args:
        timeout: The longest wait in seconds; ``None``: unlimited.

    Returns:
        Whether all calls and bodies have ended. The others run on, and do not keep the interpreter from exiting.

    Raises:
        RuntimeError: When called from an offloaded call, which would wait for itself.
    """
    drained = pool.shutdown(timeout)
    if drained:
        loop_thread.stop_if_idle()
    return drained


class ThreadEnvironment(Environment):
    """The environment of calls that ``start`` starts; they hold no thread while they wait."""

    begin_deadline = staticmethod(begin_call_deadline)
    call_later = staticmethod(call_later)
    pause = Pause
    attempt = ThreadAttempt

    def ident(self) -> int:
        return NO_THREAD

    def new_wait(self) -> Wait:
        waiting = Pause()
        return Wait(NO_THREAD, waiting.wake, waiting)

    def bind_detached_calls(self) -> Awaitable[Timer]:
        return step(partial(ThreadCall.watch, deadline=current.get()))

    def start_child(
        self,
        make: MakeCall,
        prepare: Callable[[], object],
        on_start: Callable[[Run], object],
        on_end: Callable[[], object],
    ) -> Awaitable[None]:
        def action(call: ThreadCall) -> None:
            future: Future[Any] = Future()
            on_start(future)
            future.add_done_callback(lambda _: on_end())
            ChildCall(call, future, prepare).begin(make)

        return step(action)

    async def await_children(self, runs: Collection[Run]) -> None:
        """Wait for none: they may go on."""

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Awaitable[Any]:
        once = iter(args)  # does not keep the arguments, of which a failure may be one, beyond the call
        return ThreadAttempt(Attempt(AttemptRecord(), function, once, {}, None, None, interrupt=False, awaits=True))


_LOOKS = 20
"""How often a fork looks whether the threads of the pool are parked: a thread whose call is over may not be yet."""

_left_behind: list[ThreadCall] = []
"""Calls of the parent process, kept so that their coroutines are never closed and change nothing in this process."""


def _leave_calls_behind() -> None:
    ident = get_ident()
    here = [call for call in pool.calls if any(suspension.ident == ident for suspension in call.suspended)]
    stay = {*here, *(call.parent for call in here)}
    for call in pool.calls:
        if call not in stay:
            pool.unregister(call)
            _left_behind.append(call)


def _stop_idle() -> None:
    loop_thread.stop_if_idle()  # first, as it may still pass work to the pool
    # The thread of a body is there at the fork anyway.
    in_body = any(suspension.ident for call in pool.calls for suspension in call.suspended)
    pool.stop_idle(0 if in_body else _LOOKS)


at_fork(before=_stop_idle, child=_leave_calls_behind)
