"""An offloaded call, stepped by whoever makes it go on, and what it can wait for.

A suspension ends once: for the body that ended, the deadline that passed, or the caller that gave up, whoever takes it
off ``suspended`` first. A body that comes second is not looked at; all that it still does is to give its permit back.
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
"""Stands for the thread of a permit or a place in the queue while no thread runs the body; no thread has this ident."""


def call_later(seconds: float, callback: Callable[[], object], is_usual: bool = False) -> Timer:
    """Run a short callback after so long, on a thread of the clock."""
    return clock.call_at(clock.monotonic() + seconds, callback)


class OffloadedCall:
    """One call: its coroutine, its future, and what it waits for."""

    coroutine: Coroutine[Any, Any, Any]
    """Not there before the call is under way."""
    outer: OffloadedCall | None = None
    """The call of which it is a part."""
    attempted = False
    """Whether a first attempt was made."""
    stopped = False
    """Whether the caller gave up."""
    is_shared = False
    """Whether another thread than the caller's may have gone on with the call."""
    overdue: TaskDeadline | None = None
    """The deadline of the call itself that has passed, as long as the coroutine has not heard of it."""
    heirs: Sequence[Inherited] = ()
    """The deadlines of the caller's thread that decide on further attempts."""
    _for_bodies: Inherited | None = None
    """What stands for the innermost of them in a body, which they do not outlive."""
    _watch: RulingWatch | None = None

    def __init__(self, future: Future[Any]) -> None:
        self.future: Future[Any] | None = future
        self.steps = copy_context()
        """The context of the coroutine; each body runs in a copy of it."""
        self.loop = loop_here()
        self.suspended: list[Suspension] = []
        """The suspension that the coroutine awaits; written before ``stopped`` is read, and read after that is set."""
        self._innermost = current.get()
        """The innermost deadline under which it was made."""
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
        """Return the context in which a body, or another function of the application, is to run."""
        context = self.steps.copy()
        if self._for_bodies is not None and context[current] is self._innermost:
            context.run(current.set, self._for_bodies)
        return context

    def begin(self, make: MakeCall) -> None:
        """Begin the coroutine that *make* makes, and go on to its first body on this thread."""
        future = self.future
        assert future is not None
        try:
            if not pool.enter(self, is_part=self.outer is not None):
                self.give_up(RuntimeError("no new calls are taken while faulttolerance.shutdown() waits"))
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
        """Go on, by raising *error* where there is one, until the coroutine waits for something that is not there yet.

        Args:
            error: The failure of what it waited for.
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
                error = suspension = value = None  # tracebacks keep this frame, and would keep what it refers to
                self._settle(end.value, None)
                return
            except BaseException as failure:
                error = suspension = value = None
                self._settle(None, failure)
                if not may_run and not isinstance(failure, Exception):
                    raise  # somebody means this thread, and not the call that it was about to begin
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
        """End the call for a caller who gave up; what was neither used nor failed is given back before this returns."""
        if not self._abandon(may_interrupt):
            future = self.future
            if future is not None:
                future.await_end_of(lambda: self.future is None)

    def _abandon(self, may_interrupt: bool) -> bool:
        """End the call, and what it waits for; return false where some thread steps it, which will see."""
        self.stopped = True
        try:
            suspension = self.suspended.pop()
        except IndexError:
            return False
        suspension.abandon(may_interrupt)
        self._close()
        return True

    def _discard(self) -> None:
        """End the call where its caller never got the future: a signal's handler raised meanwhile."""
        if not self._abandon(may_interrupt=True) and not self.is_shared:
            self._close()

    def interrupt(self, deadline: TaskDeadline) -> None:
        """End what the call waits for, because its own *deadline* has passed; called by the timer."""
        self.overdue = deadline
        for suspension in [*self.suspended]:
            if self._hears_of_deadline(suspension):
                suspension.abandon(may_interrupt=True)
                suspension.error = _cancelled_error()()
                suspension.submit(suspension.resume, urgent=True)

    def _hears_of_deadline(self, suspension: Suspension) -> bool:
        """Claim *suspension* for the deadline that has passed; false where that is over, or somebody goes on."""
        overdue = self.overdue
        # While the coroutine stands in a suspension, the deadline cannot end; so the claim may come behind the look.
        if overdue is None or overdue.counts is not overdue or not suspension.claim():
            return False
        self.overdue = None
        return True

    def _end_with_ruling(self) -> None:
        future = self.future
        if future is not None:
            try:
                future.fail(TimeoutException("an enclosing deadline passed, under which this call was made"))
            finally:
                self.stop(may_interrupt=True)

    def give_up(self, error: BaseException) -> None:
        """End the call where no thread can be had to go on with it; a suspension is claimed."""
        future = self.future
        self._close()
        if future is not None:
            future.fail(error)

    def leave_behind(self) -> None:
        """Fail in a forked child: the threads that would go on with the call do not exist there."""
        future, self.future = self.future, None
        self.suspended.clear()
        if future is not None:
            future._condition = threading.Condition()  # somebody who does not exist may hold the old one's lock
            future._done_callbacks.clear()
            future._waiters.clear()
            future.fail(RuntimeError("the call goes on in the process that forked this one, and only there"))

    def _close(self) -> None:
        try:
            if hasattr(self, "coroutine"):
                self.steps.run(self.coroutine.close)
        except Exception as error:  # of a listener, say; there is nobody to whom it could be raised
            log_dropped(error)
        finally:
            self._end()

    def _settle(self, value: Any, error: BaseException | None) -> None:
        future = self.future
        try:
            if future is None:
                pass
            elif self.stopped or (self.outer is None and isinstance(error, _cancelled_error())):
                future.cancel(False)  # a cancellation that comes out of a part is for the call to judge
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
    """A call that goes on beside the others of which one call consists, each in a copy of the context."""

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
    """Something that the coroutine waits for; ``await`` returns ``value`` once it is resumed."""

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
        """Begin what is waited for, on this thread if *may_run*; whether it is over, and claimed."""
        raise NotImplementedError

    def abandon(self, may_interrupt: bool) -> None:
        """Undo what was begun, for a caller who gave up and has claimed the suspension."""
        self.cancel_timer()

    def expire(self) -> None:
        """Go on because its time has come; called by the timer."""
        self.go_on()

    def set_timer(self, when: float) -> None:
        """Have ``expire`` called once *when* has come."""
        # A clock may keep a timer that was cancelled until it would have been due, but not the call.
        self._timer = clock.call_at(when, partial(while_alive, ref(self), type(self).expire))

    def cancel_timer(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def claim(self) -> bool:
        """Take the right to resume the coroutine; false where somebody else has taken it."""
        try:
            self.call.suspended.remove(self)
        except ValueError:
            return False
        return True

    def submit(self, job: Callable[[], object], urgent: bool = False) -> None:
        """Run *job*, which goes on with the call, on a thread of the pool."""
        try:
            pool.submit(job, urgent)
        except RuntimeError as error:
            self.claim()
            self.call.give_up(error)

    def go_on(self) -> None:
        """Let a thread of the pool go on with the coroutine, unless somebody has resumed it."""
        if self.claim():
            self.submit(self.resume)

    def resume(self) -> None:
        """Go on with the coroutine on this thread of the pool; it was claimed."""
        error, self.error = self.error, None
        try:
            self.call.run(error, may_run=True)
        finally:
            del error


class Waiting(Suspension):
    """The time until another call wakes this one, or until *seconds* are over; no thread waits for it."""

    def __init__(self, seconds: float = inf) -> None:
        self._seconds = seconds
        self._is_woken = seconds <= 0.0

    def begin(self, may_run: bool) -> bool:
        """Set the timer; where it was woken already, only leave the caller's thread."""
        self.call.is_shared = True
        if self._is_woken and may_run:
            return self.claim()
        if self._is_woken:
            self.go_on()
        elif self._seconds < inf:
            self.set_timer(clock.monotonic() + self._seconds)
        return False

    def wake(self) -> None:
        """Let the call go on, on a thread of the pool; from any thread."""
        self._is_woken = True
        if hasattr(self, "call"):
            self.go_on()


def _cancelled_error() -> Any:
    """Return the class of cancellations, which is control flow; no class at all before asyncio is imported."""
    asyncio = sys.modules.get("asyncio")
    return () if asyncio is None else asyncio.CancelledError


def log_dropped(error: BaseException) -> None:
    """Write down what was raised where nobody is left to whom it could be raised."""
    log(DEBUG, "dropped what a call raised that its caller gave up on", error=error)
