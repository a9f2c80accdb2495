"""An offloaded call, the threads that step it, and the suspensions that it can wait for.

A suspension ends once: when the body ended, when the deadline passed, or when the caller gave up. The first of them to
remove it from ``suspended`` decides. A body that comes second is ignored; it only releases its permit.
"""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from functools import partial
from math import inf
from types import coroutine
from typing import Any, TypeVar
from weakref import ref

from .._deadline.clock import clock
from .._deadline.detached import DetachedCallWatch
from .._deadline.parent import ParentDeadline, inherit_deadlines
from .._deadline.task import EXPIRED, NO_DEADLINE, TaskDeadline, binding_deadlines, current, effective_deadline
from .._deadline.threads.chain import ThreadDeadlines, deadlines_here
from .._log import DEBUG, log
from .._platform.event_loop import loop_here
from .._platform.loop_callback import while_alive
from ..exceptions import TimeoutException
from ..typing import Timer
from .environment import MakeCall, StoppedIteration
from .future import Future
from .pool import pool

T = TypeVar("T")

NO_THREAD = 0
"""Replaces the thread of a permit or a place in the queue while no thread runs the body; no thread has this ident."""


def call_later(seconds: float, callback: Callable[[], object], is_usual: bool = False) -> Timer:
    """Run a short callback after *seconds*, on a thread of the clock."""
    return clock.call_at(clock.monotonic() + seconds, callback)


def _check_later(seconds: float, check: Callable[[], object]) -> Timer:
    """Run *check* after *seconds*, on a thread of the pool, because it may run callbacks of the application."""
    return call_later(seconds, partial(run_urgently, check))


def run_urgently(job: Callable[[], object]) -> None:
    """Run *job* on a thread of the pool, even if all its threads are busy."""
    try:
        pool.submit(job, urgent=True)
    except RuntimeError:
        job()  # the interpreter is ending, and the caller may wait


class ThreadCall:
    """One call: its coroutine, its future, and its suspension."""

    coroutine: Coroutine[Any, Any, Any]
    """Missing before the call is under way."""
    parent: ThreadCall | None = None
    """The call that started this call beside itself."""
    attempted = False
    """Whether a first attempt was made."""
    stopped = False
    """Whether the caller gave up."""
    is_late = False
    """Whether an enclosing deadline has ended the call, and its future fails."""
    is_shared = False
    """Whether a thread other than the caller's may have continued the call."""
    overdue: TaskDeadline | None = None
    """The call's own deadline after it has passed, until the coroutine is notified."""
    parent_deadlines: Sequence[ParentDeadline] = ()
    """The deadlines of the caller's thread that decide on further attempts."""
    _body_deadline: ParentDeadline | None = None
    """Replaces the innermost of them in a body, as a deadline that ends with its own call."""
    _watch: DetachedCallWatch | None = None

    def __init__(self, future: Future[Any]) -> None:
        self.future: Future[Any] | None = future
        self.context = copy_context()
        """The context of the coroutine; each body runs in a copy of it."""
        self.loop = loop_here()
        self.suspended: list[Suspension] = []
        """The suspension that the coroutine awaits; written before ``stopped`` is read, and read after that is set."""
        self._innermost = current.get()
        """The innermost deadline under which the call was made."""
        deadlines = deadlines_here()
        if deadlines.innermost is not None:
            self._inherit_deadlines(deadlines)

    def _inherit_deadlines(self, deadlines: ThreadDeadlines) -> None:
        enclosing = effective_deadline(current.get())
        body_deadlines = inherit_deadlines(deadlines, enclosing)
        self.parent_deadlines = inherit_deadlines(deadlines, enclosing)
        deadlines.dependents.update(dict.fromkeys(self.parent_deadlines))
        if self.parent_deadlines:
            self._innermost, self._body_deadline = self.parent_deadlines[-1], body_deadlines[-1]
            self.context.run(current.set, self._innermost)

    def body_context(self) -> Context:
        """Return the context in which a body, or another function of the application, must run."""
        context = self.context.copy()
        if self._body_deadline is not None and context[current] is self._innermost:
            context.run(current.set, self._body_deadline)
        return context

    def begin(self, make: MakeCall) -> None:
        """Start the coroutine that *make* creates, and step it to its first body on this thread."""
        try:
            if not pool.register(self, is_child=self.parent is not None):
                when = "during faulttolerance.shutdown(), at the interpreter's end, or in an isolated sub-interpreter"
                self.fail(RuntimeError(f"no new calls on other threads {when}"))
                return
            self.future._stop = self.stop  # type: ignore[union-attr]  # it has not ended
            self.coroutine = make()
            innermost = self._innermost
            if self.parent is None and innermost is not NO_DEADLINE and (deadlines := binding_deadlines(innermost)):
                self._watch = DetachedCallWatch(deadlines, _check_later, self._fail_at_deadline)
                self._watch.check()
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
        context, suspended = self.context, self.suspended
        suspension: Any = None
        value: Any = None
        while True:
            try:
                if error is None:
                    suspension = context.run(self.coroutine.send, value)
                else:
                    suspension = context.run(self.coroutine.throw, error)
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
            if self.overdue is not None and self._claim_for_deadline(suspension):
                error = _cancelled_error()()
                continue
            error = None  # as above
            if not suspension.begin(may_run):
                return
            self.is_shared = False
            error, suspension.error = suspension.error, None

    def stop(self, may_interrupt: bool) -> None:
        """End the call for a caller that gave up; release unused permits and probe places before this returns."""
        if not self._abandon(may_interrupt) and (future := self.future) is not None:
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

    def watch(self, deadline: TaskDeadline) -> Timer:
        """End the suspension of the call when its own *deadline* passes; return an object to cancel before."""
        watch = DetachedCallWatch([deadline], call_later, partial(self._interrupt, deadline))
        watch.check()
        return watch

    def _interrupt(self, deadline: TaskDeadline) -> None:
        deadline.state = EXPIRED
        self.overdue = deadline
        for suspension in [*self.suspended]:
            if self._claim_for_deadline(suspension):
                suspension.abandon(may_interrupt=True)
                suspension.error = _cancelled_error()()
                suspension.submit(suspension.resume)

    def _claim_for_deadline(self, suspension: Suspension) -> bool:
        """Claim *suspension* for the passed deadline; return false if that is over, or the call was resumed."""
        overdue = self.overdue
        # During a suspension of the coroutine the deadline cannot end; so the claim may follow the check.
        if overdue is None or overdue.effective is not overdue or not suspension.claim():
            return False
        self.overdue = None
        return True

    def _fail_at_deadline(self) -> None:
        future, self.is_late = self.future, True
        if future is not None:
            try:
                self._abandon(may_interrupt=True)
            finally:  # all counters are updated by then, unless a thread steps the call
                future.fail(TimeoutException("an enclosing deadline of this call passed"))

    def fail(self, error: BaseException) -> None:
        """Fail the call with *error*, because no thread is available to continue it; a suspension is claimed."""
        future = self.future
        self._close()
        if future is not None:
            future.fail(error)

    def _close(self) -> None:
        try:
            if hasattr(self, "coroutine"):
                self.context.run(self.coroutine.close)
        except Exception as error:  # for example of a listener; there is no caller to receive it
            log_dropped(error)
        finally:
            self._end()

    def _settle(self, value: Any, error: BaseException | None) -> None:
        future = self.future
        try:
            if future is None or self.is_late:
                pass
            elif self.stopped or (self.parent is None and isinstance(error, _cancelled_error())):
                future.cancel(False)  # the parent decides about the cancellation of a child
            elif error is not None:
                future.fail(StoppedIteration.meant(error))
            elif issubclass(type(value), concurrent.futures.Future):  # a lazy object is not asked
                future.follow(value)
            else:
                future.complete(value)
        finally:  # a callback of the application may have raised SystemExit
            self._end()

    def _end(self) -> None:
        future, self.future = self.future, None  # its failure refers to the frames that refer to this call
        if future is not None:
            future.ended()
        for dependent in self.parent_deadlines:
            dependent.deadlines.dependents.pop(dependent, None)
        if self._watch is not None:
            self._watch.cancel()
        pool.unregister(self)


class ChildCall(ThreadCall):
    """A call that runs beside other children of its parent, each in a copy of the context."""

    def __init__(self, parent: ThreadCall, future: Future[Any], prepare: Callable[[], object]) -> None:
        self.parent = parent
        self.future = future
        self.loop = parent.loop
        self.context = parent.context.copy()
        self.context.run(prepare)
        self.suspended = []
        self._innermost, self._body_deadline = parent._innermost, parent._body_deadline


@coroutine
def step(action: Callable[[ThreadCall], T]) -> Generator[object, T, T]:
    """Call *action* with the call that awaits this, and return its result; no time passes."""
    return (yield action)


class Suspension:
    """An event that the coroutine waits for; ``await`` returns ``value`` when the coroutine is resumed."""

    call: ThreadCall
    ident = NO_THREAD
    """The thread that runs a body."""
    value: Any = None
    error: BaseException | None = None
    _timers: tuple[Timer, ...] = ()

    def __await__(self) -> Generator[Suspension, None, Any]:
        yield self
        return self.value

    def begin(self, may_run: bool) -> bool:
        """Start the wait, on this thread if *may_run*; return whether it is over already, and claimed."""
        raise NotImplementedError

    def abandon(self, may_interrupt: bool) -> None:
        """Undo the start of the wait, for a caller that gave up and has claimed the suspension."""
        self.cancel_timers()

    def expire(self) -> None:
        """Continue, because the moment of the timer has come; called by the timer."""
        self.resume_on_pool()

    def set_timer(self, when: float) -> None:
        """Call ``expire`` when the moment *when* has come."""
        # A clock may keep a cancelled timer until it would have been due, but must not keep the call.
        self.call_at(when, partial(while_alive, ref(self), type(self).expire))

    def call_at(self, when: float, callback: Callable[[], object]) -> None:
        """Run *callback* when the moment *when* has come, unless the suspension is over."""
        self._timers = (*self._timers, clock.call_at(when, callback))

    def cancel_timers(self) -> None:
        """Cancel the timers."""
        for timer in self._timers:
            timer.cancel()

    def claim(self) -> bool:
        """Claim the right to resume the coroutine; return false if it was claimed before."""
        try:
            self.call.suspended.remove(self)
        except ValueError:
            return False
        return True

    def submit(self, job: Callable[[], object], urgent: bool = True) -> None:
        """Run *job*, which continues the call, on a thread of the pool; a body that follows waits for a free thread."""
        try:
            pool.submit(job, urgent)
        except RuntimeError as error:
            self.claim()
            self.abandon(may_interrupt=False)
            self.call.fail(error)

    def resume_on_pool(self) -> None:
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


class Pause(Suspension):
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
            self.resume_on_pool()
        elif self._seconds < inf:
            self.set_timer(clock.monotonic() + self._seconds)
        return False

    def wake(self) -> None:
        """Continue the call on a thread of the pool; from any thread."""
        self._is_woken = True
        if hasattr(self, "call"):
            self.resume_on_pool()


def _cancelled_error() -> Any:
    """Return the class of cancellations, which are control flow; an empty tuple before asyncio is imported."""
    return getattr(sys.modules.get("asyncio"), "CancelledError", ())


def log_dropped(error: BaseException) -> None:
    """Log the class of an exception that no caller is left to receive; its message may be confidential."""
    log(DEBUG, "dropped the exception of a call whose caller no longer waits: %s", type(error).__qualname__)
