"""The result of an offloaded call: a ``concurrent.futures.Future`` that any event loop can await (rule R7b)."""

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
"""The kinds of futures that executors return, including ``Future`` of this module."""

_PATIENCE_SECONDS = 1.0


class Future(concurrent.futures.Future[T]):
    """The outcome of a call that runs elsewhere.

    Works wherever a ``concurrent.futures.Future`` does. Every event loop can await it, also several at the same time. A
    cancellation of the awaiting task cancels the future, as for a future of asyncio; ``asyncio.shield`` prevents that.
    """

    if TYPE_CHECKING:  # attributes that a subclass must use, and that are missing in the stubs
        _done_callbacks: list[Callable[[concurrent.futures.Future[T]], Any]]

        def _invoke_callbacks(self) -> None: ...

    _stop: Callable[[bool], object] | None = None
    """Stops the work on the outcome; called at most a few times, and never after there is an outcome."""
    _trace: TracebackType | None = None
    """The original traceback of the failure."""
    _ending: Any = None
    """A lock that is held while the thread of a cancelled call ends that call."""

    def cancel(self, may_interrupt: bool = True) -> bool:
        """Cancel the call: the future is cancelled and done at once, whether or not the body has started.

        As in Java, and unlike with other futures of Python, a running call can be cancelled. It is not retried and has
        no fallback. A later result or exception of its body is dropped. A body that has not started never starts.

        Args:
            may_interrupt: Whether a running body is interrupted; otherwise it runs to its end, and keeps its permit
                until then.

        Returns:
            Whether the future is cancelled; false if it had its outcome already.
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
        """Return the result or raise the failure, as soon as the call has ended; all counters are updated by then."""
        error = self.exception(timeout)
        try:
            if error is None:  # the base class asks, before Python 3.13.4, whether it is true
                return self._result  # type: ignore[return-value]  # there is one
            # The original traceback does not grow, however often and by however many futures the failure is raised.
            raise error.with_traceback(self._trace or error.__traceback__)
        finally:
            del self, error  # a failure's traceback keeps this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the call, or ``None`` if it returned; waits as ``result`` does."""
        try:
            return super().exception(timeout)
        except concurrent.futures.CancelledError:
            self._await_end()
            raise

    def await_end_of(self, is_over: Callable[[], bool]) -> None:
        """Hold back ``result`` of a cancelled call until ``ended`` is called, when all counters are updated."""
        ending = allocate_lock()
        ending.acquire()
        self._ending = ending
        if is_over():
            self.ended()

    def ended(self) -> None:
        """Record that the call has ended and updated its counters."""
        if self._ending is not None:
            with suppress(RuntimeError):  # another thread has recorded it
                self._ending.release()

    def _await_end(self) -> None:
        ending = self._ending
        # Not for ever: this thread itself may run the call right now, for example in a predicate of the application.
        if ending is not None and ending.acquire(timeout=_PATIENCE_SECONDS):
            self.ended()

    def set_running_or_notify_cancel(self) -> bool:
        """Mark the future as running; return false if it is cancelled. For executors."""
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
            with suppress(concurrent.futures.InvalidStateError):
                self.set_exception(error)
                self._trace, self._stop = trace, None
        finally:
            del error  # its traceback may hold this frame

    def follow(self, other: concurrent.futures.Future[T]) -> None:
        """Copy the outcome of *other* when it ends; a cancellation of this future cancels *other*."""
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
        """Wait for the outcome without blocking the running loop."""
        import asyncio

        if not self.done():
            turn = running_loop("awaiting a future").create_future()
            self.add_done_callback(completer(turn))
            try:
                yield from turn
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self.cancelled():
            raise asyncio.CancelledError
        try:
            return self.result()
        finally:
            del self  # a failure's traceback keeps this frame


def completed_future(value: T) -> Future[T]:
    """Return a future that has its result already.

    >>> completed_future("ready").result()
    'ready'
    """
    future: Future[T] = Future()
    future.set_result(value)
    return future
