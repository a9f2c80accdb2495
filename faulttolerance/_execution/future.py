"""What an offloaded call returns: a ``concurrent.futures.Future`` that any event loop can await (rule R7b)."""

from __future__ import annotations

import concurrent.futures
from _thread import allocate_lock
from collections.abc import Callable, Generator
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .._platform.event_loop import running_loop
from .._platform.loop_callback import completer

T = TypeVar("T")
ExecutorFuture: TypeAlias = concurrent.futures.Future[T]
"""The kinds of futures that executors return; ours is one."""

_PATIENCE_SECONDS = 1.0


class Future(concurrent.futures.Future[T]):
    """The outcome of a call that runs elsewhere.

    Works wherever a ``concurrent.futures.Future`` does; every event loop can await it, also several at once. Cancelling
    the task that awaits it cancels it, as for a future of asyncio; ``asyncio.shield`` prevents that.
    """

    if TYPE_CHECKING:  # what a subclass has to use, and stubs do not tell
        _done_callbacks: list[Callable[[concurrent.futures.Future[T]], Any]]

        _exception: BaseException | None

        def _invoke_callbacks(self) -> None: ...

    _stop: Callable[[bool], object] | None = None
    """Stops what works on the outcome; called at most a few times, and no more once there is one."""
    _trace: TracebackType | None = None
    """The traceback of its failure, as it came."""
    _ending: Any = None
    """A lock that is held while a call that was given up is being ended by the thread that was busy with it."""

    def cancel(self, may_interrupt: bool = True) -> bool:
        """Give the call up: it is cancelled and done at once, whether or not its body has begun.

        As in Java, and unlike for other futures of Python, a call that runs can be cancelled. It is not retried, has no
        fallback, and what its body returns or raises later is dropped. A body that has not begun never begins.

        Args:
            may_interrupt: Whether a body that runs is interrupted; else it runs to its end, and keeps its permit until
                then.

        Returns:
            Whether the future is cancelled; false where it had its outcome already.
        """
        stop = self._stop
        if stop is not None and not self.done():
            stop(may_interrupt)
        return self._become_cancelled()

    def _become_cancelled(self) -> bool:
        with self._condition:
            if self._state == FINISHED:
                return False
            if self._state in (CANCELLED, CANCELLED_AND_NOTIFIED):
                return True
            self._state = CANCELLED_AND_NOTIFIED
            for waiter in self._waiters:
                waiter.add_cancelled(self)
            self._condition.notify_all()
        self._stop = None
        self._invoke_callbacks()
        return True

    def result(self, timeout: float | None = None) -> T:
        """Return or raise what the call did, as soon as that is there; all that the call counts is counted then."""
        try:
            return super().result(timeout)
        except concurrent.futures.CancelledError:
            self._await_end()
            raise
        except BaseException as error:
            if error is not self._exception or self._trace is None:
                raise
            # As it was: however often it is raised, and by however many futures that share it, it does not grow.
            raise error.with_traceback(self._trace)  # noqa: B904
        finally:
            del self  # a failure's traceback keeps this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raised, ``None`` where it returned; as ``result`` otherwise."""
        try:
            return super().exception(timeout)
        except concurrent.futures.CancelledError:
            self._await_end()
            raise

    def await_end_of(self, is_over: Callable[[], bool]) -> None:
        """Let a cancelled call's counts be there before its ``result``: hold that back until ``ended`` is called."""
        ending = allocate_lock()
        ending.acquire()
        self._ending = ending
        if is_over():
            self.ended()

    def ended(self) -> None:
        """Note that the call has ended, and counted what it counts."""
        if self._ending is not None:
            with suppress(RuntimeError):  # somebody else has noted it
                self._ending.release()

    def _await_end(self) -> None:
        ending = self._ending
        # Not for ever: it may be this very thread that is busy with the call, in a predicate of the application say.
        if ending is not None and ending.acquire(timeout=_PATIENCE_SECONDS):
            self.ended()

    def set_running_or_notify_cancel(self) -> bool:
        """Mark the future as running; false where it is cancelled. For executors."""
        with self._condition:
            return self._state != CANCELLED_AND_NOTIFIED and super().set_running_or_notify_cancel()

    def complete(self, result: T) -> None:
        """Set the result, unless the future is done."""
        try:
            self.set_result(result)
        except concurrent.futures.InvalidStateError:
            return
        self._stop = None

    def fail(self, error: BaseException) -> None:
        """Set the failure, unless the future is done."""
        trace = error.__traceback__
        try:
            self.set_exception(error)
        except concurrent.futures.InvalidStateError:
            return
        finally:
            del error  # its traceback may hold this frame
        self._trace = trace
        self._stop = None

    def follow(self, other: concurrent.futures.Future[T]) -> None:
        """Become what *other* becomes; cancelling this one cancels *other*."""
        stop = other.cancel if isinstance(other, Future) else lambda _: other.cancel()
        self._stop = stop
        if self.cancelled():
            stop(True)
        other.add_done_callback(self._copy)

    def _copy(self, other: concurrent.futures.Future[T]) -> None:
        if other.cancelled():
            self._become_cancelled()
        elif (error := other.exception()) is not None:
            try:
                self.fail(error)
            finally:
                del error
        else:
            self.complete(other.result())

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the outcome without holding up the running loop."""
        import asyncio

        if not self.done():
            turn = running_loop("to await a future").create_future()
            self.add_done_callback(completer(turn))
            try:
                yield from turn
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self.cancelled():
            raise asyncio.CancelledError
        return self.result()


def completed_future(value: T) -> Future[T]:
    """Make a future that has its result already.

    >>> completed_future("ready").result()
    'ready'
    """
    future: Future[T] = Future()
    future.set_result(value)
    return future
