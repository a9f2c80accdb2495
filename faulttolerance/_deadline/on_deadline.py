"""A block of the application's code with a function that is called when a deadline passes (rule S1)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from inspect import iscoroutinefunction
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING

from .._platform.event_loop import loop_here
from .._platform.greenlets import lock_here
from .._platform.unpatched import get_ident
from .clock import clock, raise_if_expired
from .parent import ParentDeadline
from .task import EXPIRED, NO_QUEUE, TaskDeadline, current, effective_deadline
from .threads.callbacks import DeadlineCallback, call_due
from .threads.chain import Entry, ThreadDeadlines, deadlines_here, uncovered

if TYPE_CHECKING:
    from ..typing import Timer


class _Exit:
    """The descriptor of ``__exit__``, which is C code, so that no signal handler raises before its first step."""

    def __get__(self, block: on_deadline | None, owner: type | None = None) -> Callable[..., None]:
        # A ``with`` statement reads it before it enters the block; ``contextlib.ExitStack`` reads it from the class.
        return _leave_explicitly if block is None else block._prepare()


def _leave_explicitly(block: on_deadline, *_: object) -> None:
    block._leave(None)


class on_deadline:  # noqa: N801
    """A ``with`` block inside a guarded body that calls *cancel* when the nearest deadline passes.

    Use it for code that no interruption ends: C code, and blocking calls off the main thread. ``connection.interrupt``
    of sqlite3, ``connection.cancel`` of psycopg, ``call.cancel`` of gRPC and ``sock.shutdown`` make such code fail. The
    exception that the body then raises becomes the cause of ``TimeoutException``.

    *cancel* is called at most once, without arguments, on a thread of the library. For the deadline of a coroutine, the
    event loop calls it before it cancels the task. *cancel* is never called after the block was left; the end of the
    block waits for a call that is under way. An exception of *cancel* is logged. The block does nothing if there is no
    deadline, or for deadlines that an ``uninterruptible()`` block holds back.

    Raises:
        TypeError: *cancel* cannot be called, or is a coroutine function.
        Interrupted: A deadline had passed before the block was entered.
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        if not callable(cancel) or iscoroutinefunction(cancel) or iscoroutinefunction(type(cancel).__call__):
            raise TypeError(f"on_deadline(cancel) is {cancel!r}; allowed: a function without arguments, not async def")
        self._cancel = cancel
        self._prepared: dict[int, _Registration] = {}
        self._entered: list[_Registration] = []

    def __enter__(self) -> None:
        registration = self._prepared.pop(get_ident(), None) or _Registration(self._cancel)
        try:
            raise_if_expired(clock.monotonic())
            self._entered.append(registration)
            registration.begin()
        except BaseException:
            self._remove(registration)
            raise

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
    else:
        __exit__ = _Exit()

    def _prepare(self) -> Callable[..., None]:
        registration = self._prepared[get_ident()] = _Registration(self._cancel)
        steps = self._until_left(registration)
        next(steps)
        # ``partial(max, None, key=steps.send)`` takes three arguments, resumes the generator, and returns ``None``.
        return partial(max, None, key=steps.send)

    def _until_left(self, registration: _Registration) -> Generator[int, object, None]:
        try:
            yield 0  # inside the block: a signal handler may raise from the resumption on
            self._leave(registration)
        except GeneratorExit:
            raise  # the block was never entered
        except BaseException:
            self._leave(registration)
            raise
        while True:
            yield 0

    def _leave(self, registration: _Registration | None) -> None:
        """Leave the entry *registration*, or the last entry if that was not entered. Each step may be repeated."""
        if registration is not None and registration.is_entered:
            self._remove(registration)
        elif self._entered:
            self._remove(self._entered[-1])

    def _remove(self, registration: _Registration) -> None:
        registration.end()
        if registration in self._entered:
            self._entered.remove(registration)


class _Registration:
    """One entry into a block, with the mechanism that calls its ``cancel``."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._cancel = DeadlineCallback(function, lock_here())
        self._callbacks: dict[DeadlineCallback, None] = {}
        self._timer: Timer | None = None
        self.is_entered = False
        """Whether the block was entered."""

    def begin(self) -> None:
        """Register for the nearest deadline of the running call, if there is a deadline."""
        self.is_entered = True
        cancel, deadlines = self._cancel, deadlines_here()
        when, entry = _nearest_of_thread(deadlines)
        deadline = _nearest_of_task(when)
        if deadline is not None:
            cancel.when, cancel.is_effective = deadline.when, partial(_counts, deadline)
            if _is_of_running_loop(deadline):
                self._callbacks = deadline.callbacks_before()
                self._callbacks[cancel] = None
                return
        elif entry is not None:
            cancel.when, cancel.entry, cancel.is_effective = when, entry, partial(_is_uncovered, deadlines, entry)
        else:
            return
        self._callbacks = deadlines.callbacks
        self._callbacks[cancel] = None
        self._timer = clock.call_at(cancel.when, partial(_look, deadlines))

    def end(self) -> None:
        """Remove the registration; each step may be repeated."""
        self._cancel.revoke()
        self._callbacks.pop(self._cancel, None)
        if self._timer is not None:
            self._timer.cancel()


def _look(deadlines: ThreadDeadlines) -> None:
    call_due(deadlines, clock.monotonic())


def _nearest_of_thread(deadlines: ThreadDeadlines) -> tuple[float, Entry]:
    return min(((entry[0], entry) for entry in uncovered(deadlines)), key=lambda one: one[0], default=(inf, None))


def _nearest_of_task(before: float) -> TaskDeadline | None:
    """Return the nearest deadline before *before* that counts for the running context, or ``None``."""
    nearest = None
    deadline = effective_deadline(current.get())
    while deadline is not None:
        if deadline.when < before and deadline.state < EXPIRED and not deadline.is_held:
            nearest, before = deadline, deadline.when
        deadline = effective_deadline(deadline.previous)
    return nearest


def _is_of_running_loop(deadline: TaskDeadline) -> bool:
    """Return whether the loop that watches *deadline* runs on this thread, so that *cancel* may use the loop."""
    loop = loop_here()
    if loop is None or isinstance(deadline, ParentDeadline):
        return False
    queue = getattr(deadline, "queue", NO_QUEUE)
    return queue is NO_QUEUE or queue.loop is loop


def _counts(deadline: TaskDeadline) -> bool:
    return not deadline.is_held and (deadline.effective is deadline or deadline.state >= EXPIRED)


def _is_uncovered(deadlines: ThreadDeadlines, entry: Entry) -> bool:
    return any(other is entry for other in uncovered(deadlines))
