"""An offloaded call, the threads that step it, and the suspensions that it can wait for.

A suspension ends once: when the body ended, when the deadline passed, or when the caller gave up. The first of them to
remove it from ``suspended`` decides. A body that comes second is ignored; it only releases its permit.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from functools import partial
from math import inf
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from .._deadline.clock import clock
from .._deadline.detached import RulingWatch
from .._deadline.parent import Inherited, inherit
from .._deadline.task import NO_DEADLINE, TaskDeadline, current, nearest_ruling, standing
from .._deadline.threads.chain import ThreadDeadlines, deadlines_here
from .._log import DEBUG, log
from .._platform.event_loop import loop_here
from .._platform.loop_callback import while_alive
from ..exceptions import TimeoutException
from .environment import MakeCall, StoppedIteration
from .future import Future
from .pool import pool

if TYPE_CHECKING:
    from ..typing import Timer

T = TypeVar("T")

NO_THREAD = 0
"""Replaces the thread of a permit or a place in the queue while no thread runs the body; no thread has this ident."""


def call_later(seconds: float, callback: Callable[[], object], is_usual: bool = False) -> Timer:
    """Run a short callback after *seconds*, on a thread of the clock."""
    return clock.call_at(clock.monotonic() + seconds, callback)


class OffloadedCall:
    """One call: its coroutine, its future, and its suspension."""

    coroutine: Coroutine[Any, Any, Any]
    """Missing before the call is under way."""
    outer: OffloadedCall | None = None
    """The call that this call is a part of."""
    attempted = False
    """Whether a first attempt was made."""
    stopped = False
    """Whether the caller gave up."""
    is_shared = False
    """Whether a thread other than the caller's may have continued the call."""
    overdue: TaskDeadline | None = None
    """The call's own deadline after it has passed, until the coroutine is notified."""
    heirs: Sequence[Inherited] = ()
    """The deadlines of the caller's thread that decide on further attempts."""
    _for_bodies: Inherited | None = None
    """Replaces the innermost of them in a body, as a deadline that ends with its own call."""
    _watch: RulingWatch | None = None

    def __init__(self, future: Future[Any]) -> None:
        self.future: Future[Any] | None = future
        self.steps = copy_context()
        """The context of the coroutine; each body runs in a copy of it."""
        self.loop = loop_here()
        self.suspended: list[Suspension] = []
        """The suspension that the coroutine awaits; written before ``stopped`` is read, and read after that is set."""
        self._innermost = current.get()
        """The innermost deadline under which the call was made."""
        deadlines = deadlines_here()
        if deadlines.innermost is not None:
            self._inherit(deadlines)

    def _inherit(self, deadlines: ThreadDeadlines) -> None:
        enclosing = standing(current.get())
        for_bodies, self.heirs = inherit(deadlines, enclosing), inherit(deadlines, enclosing)
        deadlines.heirs.update(dict.fromkeys(self.heirs))
        if self.heirs:
            self._innermost, self._for_bodies = self.heirs[-1], for_bodies[-1]
            self.steps.run(current.set, self._innermost)

    def context_of_body(self) -> Context:
        """Return the context in which a body, or another function of the application, must run."""
        context = self.steps.copy()
        if self._for_bodies is not None and context[current] is self._innermost:
            context.run(current.set, self._for_bodies)
        return context

    def begin(self, make: MakeCall) -> None:
        """Start the coroutine that *make* creates, and step it to its first body on this thread."""
        future = self.future
        assert future is not None
        try:
            if not pool.enter(self, is_part=self.outer is not None):
                self.give_up(RuntimeError("no new calls are accepted while faulttolerance.shutdown() waits"))
                return
            future._stop = self.stop
            self.coroutine = make()
            innermost = self._innermost
            if self.outer is None and innermost is not NO_DEADLINE and nearest_ruling(innermost) is not None:
                self._watch = RulingWatch(innermost, call_later, self._end_with_ruling)
                self._watch.look()
            if self.stopped:
                self._discard()  # no time is left
            else:
                self.run(None, may_run=False)
        except BaseException:
            self._discard()
            raise

    def run(self, error: BaseException | None, may_run: bool) -> None:
        """Step the coroutine, with *error* if there is one, until it waits for a suspension that is not over.

        Args:
            error: The failure of the suspension.
            may_run: Whether code of the application may run on this thread.
        """
        steps, suspended = self.steps, self.suspended
        suspension: Any = None
        value: Any = None
        while True:
            try:
                if error is None:
                    suspension = steps.run(self.coroutine.send, value)
                else:
                    suspension = steps.run(self.coroutine.throw, error)
            except StopIteration as end:
                error = suspension = value = None  # tracebacks keep this frame alive, with all that it refers to
                self._settle(end.value, None)
                return
            except BaseException as failure:
                error = suspension = value = None
                self._settle(None, failure)
                if not may_run and not isinstance(failure, Exception):
                    raise  # the exception is for this thread, and not for the call that it was about to start
                return
            if not isinstance(suspension, Suspension):
                value, error = suspension(self), None
                continue
            suspension.call = self
            suspended.append(suspension)
            if self.stopped and suspension.claim():
                self._close()
                return
            if self.overdue is not None and self._hears_of_deadline(suspension):
                error = _cancelled_error()()
                continue
            if not suspension.begin(may_run):
                return
            self.is_shared = False
            error, suspension.error = suspension.error, None

    def stop(self, may_interrupt: bool) -> None:
        """End the call for a caller that gave up; release unused permits and probe places before this returns."""
        if not self._abandon(may_interrupt):
            future = self.future
            if future is not None:
                future.await_end_of(lambda: self.future is None)

    def _abandon(self, may_interrupt: bool) -> bool:
        """End the call and its suspension; return false if a thread steps the call, which then notices it."""
        self.stopped = True
        try:
            suspension = self.suspended.pop()
        except IndexError:
            return False
        suspension.abandon(may_interrupt)
        self._close()
        return True

    def _discard(self) -> None:
        """End the call if its caller never received the future, because a signal's handler raised."""
        if not self._abandon(may_interrupt=True) and not self.is_shared:
            self._close()

    def interrupt(self, deadline: TaskDeadline) -> None:
        """End the suspension of the call, because the call's own *deadline* has passed; called by the timer."""
        self.overdue = deadline
        for suspension in [*self.suspended]:
            if self._hears_of_deadline(suspension):
                suspension.abandon(may_interrupt=True)
                suspension.error = _cancelled_error()()
                suspension.submit(suspension.resume, urgent=True)

    def _hears_of_deadline(self, suspension: Suspension) -> bool:
        """Claim *suspension* for the passed deadline; return false if that is over, or the call was resumed."""
        overdue = self.overdue
        # During a suspension of the coroutine the deadline cannot end; so the claim may follow the check.
        if overdue is None or overdue.counts is not overdue or not suspension.claim():
            return False
        self.overdue = None
        return True

    def _end_with_ruling(self) -> None:
        future = self.future
        if future is not None:
            try:
                future.fail(TimeoutException("an enclosing deadline of this call passed"))
            finally:
                self.stop(may_interrupt=True)

    def give_up(self, error: BaseException) -> None:
        """Fail the call with *error*, because no thread is available to continue it; a suspension is claimed."""
        future = self.future
        self._close()
        if future is not None:
            future.fail(error)

    def leave_behind(self) -> None:
        """Fail in a forked child: the threads that would continue the call do not exist there."""
        future, self.future = self.future, None
        self.suspended.clear()
        if future is not None:
            future._condition = threading.Condition()  # a thread of the parent may hold the old lock
            future._done_callbacks.clear()
            future._waiters.clear()
            future.fail(RuntimeError("the call continues only in the process that forked this process"))

    def _close(self) -> None:
        try:
            if hasattr(self, "coroutine"):
                self.steps.run(self.coroutine.close)
        except Exception as error:  # for example of a listener; there is no caller to receive it
            log_dropped(error)
        finally:
            self._end()

    def _settle(self, value: Any, error: BaseException | None) -> None:
        future = self.future
        try:
            if future is None:
                pass
            elif self.stopped or (self.outer is None and isinstance(error, _cancelled_error())):
                future.cancel(False)  # the outer call decides about the cancellation of a part
            elif error is not None:
                future.fail(StoppedIteration.meant(error))
            elif isinstance(value, concurrent.futures.Future):
                future.follow(value)
            else:
                future.complete(value)
        finally:  # a callback of the application may have raised SystemExit
            self._end()

    def _end(self) -> None:
        future, self.future = self.future, None  # its failure refers to the frames that refer to this call
        if future is not None:
            future.ended()
        for heir in self.heirs:
            heir.deadlines.heirs.pop(heir, None)
        if self._watch is not None:
            self._watch.cancel()
        pool.leave(self)


class Part(OffloadedCall):
    """A call that runs beside the other parts of its outer call, each in a copy of the context."""

    def __init__(self, outer: OffloadedCall, future: Future[Any], prepare: Callable[[], object]) -> None:
        self.outer = outer
        self.future = future
        self.loop = outer.loop
        self.steps = outer.steps.copy()
        self.steps.run(prepare)
        self.suspended = []
        self._innermost, self._for_bodies = outer._innermost, outer._for_bodies


@coroutine
def step(take: Callable[[OffloadedCall], T]) -> Generator[object, T, T]:
    """Call *take* with the call that awaits this, and return its result; no time passes."""
    return (yield take)


class Suspension:
    """An event that the coroutine waits for; ``await`` returns ``value`` when the coroutine is resumed."""

    call: OffloadedCall
    ident = NO_THREAD
    """The thread that runs a body."""
    value: Any = None
    error: BaseException | None = None
    _timer: Timer | None = None

    def __await__(self) -> Generator[Suspension, None, Any]:
        yield self
        return self.value

    def begin(self, may_run: bool) -> bool:
        """Start the wait, on this thread if *may_run*; return whether it is over already, and claimed."""
        raise NotImplementedError

    def abandon(self, may_interrupt: bool) -> None:
        """Undo the start of the wait, for a caller that gave up and has claimed the suspension."""
        self.cancel_timer()

    def expire(self) -> None:
        """Continue, because the moment of the timer has come; called by the timer."""
        self.go_on()

    def set_timer(self, when: float) -> None:
        """Call ``expire`` when the moment *when* has come."""
        # A clock may keep a cancelled timer until it would have been due, but must not keep the call.
        self._timer = clock.call_at(when, partial(while_alive, ref(self), type(self).expire))

    def cancel_timer(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def claim(self) -> bool:
        """Claim the right to resume the coroutine; return false if it was claimed before."""
        try:
            self.call.suspended.remove(self)
        except ValueError:
            return False
        return True

    def submit(self, job: Callable[[], object], urgent: bool = False) -> None:
        """Run *job*, which continues the call, on a thread of the pool."""
        try:
            pool.submit(job, urgent)
        except RuntimeError as error:
            self.claim()
            self.call.give_up(error)

    def go_on(self) -> None:
        """Resume the coroutine on a thread of the pool, unless it was resumed already."""
        if self.claim():
            self.submit(self.resume)

    def resume(self) -> None:
        """Resume the coroutine on this thread of the pool; the suspension was claimed."""
        error, self.error = self.error, None
        try:
            self.call.run(error, may_run=True)
        finally:
            del error


class Waiting(Suspension):
    """The time until another call wakes this call, or until *seconds* are over; no thread waits meanwhile."""

    def __init__(self, seconds: float = inf) -> None:
        self._seconds = seconds
        self._is_woken = seconds <= 0.0

    def begin(self, may_run: bool) -> bool:
        """Set the timer; if the call was woken already, only leave the caller's thread."""
        self.call.is_shared = True
        if self._is_woken and may_run:
            return self.claim()
        if self._is_woken:
            self.go_on()
        elif self._seconds < inf:
            self.set_timer(clock.monotonic() + self._seconds)
        return False

    def wake(self) -> None:
        """Continue the call on a thread of the pool; from any thread."""
        self._is_woken = True
        if hasattr(self, "call"):
            self.go_on()


def _cancelled_error() -> Any:
    """Return the class of cancellations, which are control flow; an empty tuple before asyncio is imported."""
    asyncio = sys.modules.get("asyncio")
    return () if asyncio is None else asyncio.CancelledError


def log_dropped(error: BaseException) -> None:
    """Log an exception that no caller is left to receive."""
    log(DEBUG, "dropped the exception of a call whose caller no longer waits", error=error)
