"""Blocks of code as guarded functions: ``with guard.attempt()``, ``for attempt in guard.attempts()``.

The whole call is one coroutine of ``attempt``, which stops where it would call the function. The block runs there, and
its end resumes the coroutine. Every decision is the same as in other calls.

The exit of a block sends the outcome of the block to the coroutine in one step, the first after Python has begun to
leave the block. What a signal's handler raises later is received inside a ``try``. ``GeneratorExit`` is thrown: the
collector closes the generators of a block in any order, and only a throw passes those that are closed already.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from types import FrameType, TracebackType, coroutine
from typing import Any, Self
from weakref import ref

from .._deadline.threads.instructions import goes_round
from .._deadline.threads.roles import is_ours
from .._execution.caller_thread import GuardedCall, pause
from .._execution.environment import StoppedIteration
from .continuation import LOOP_LEFT, CallRecord

_CONTINUE, _NEXT_BLOCK, _BLOCK_START = 0, 1, 2
"""The stops of a call: nothing to report, another block follows, a block is about to start."""

FindPath = Callable[[bool], GuardedCall]
"""Returns the call path; its argument is whether the block belongs to a coroutine."""


@coroutine
def run_block(method: object, call: _BlockCall) -> Generator[int, BaseException | None, object]:
    """Stand for the guarded function: stop until the block has ended, and raise its exception."""
    error = yield _BLOCK_START
    try:
        if error is not None:
            raise StoppedIteration.of(error)
    finally:
        del error  # it refers to this frame
    return LOOP_LEFT if call.has_left() else None


class BlockingEnvironment:
    """The environment of a call whose block runs on the caller's thread, which waits for no loop."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def pause(self, seconds: float) -> None:
        if seconds:
            pause(self._name, seconds)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class _BlockCall:
    """The progress of one call from its first block to its last; it starts when the first block is entered."""

    def __init__(self) -> None:
        self.number = 1
        """The number of the attempt that is about to start, or runs."""
        self.is_over = False
        self.is_open = False
        """Whether the latest attempt has not ended yet, and perhaps has not been entered."""
        self.is_awaited: bool | None = None
        """Whether the blocks belong to a coroutine; ``None`` before the first block is entered."""
        self.attempt: Callable[[], Attempt | PlainBlock | None] = lambda: None
        """Returns the attempt whose block runs, by a weak reference, because it refers to this object."""
        self.handled: BaseException | None = None
        """The exception that the application handles where it enters the latest block."""
        self.asked: tuple[FrameType, int] | None = None
        """The frame and instruction at which a loop requested the latest attempt."""
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None

    def has_left(self) -> bool:
        """Return whether the end of the block, which raised no exception, also ends the loop around it."""
        if self.asked is None:
            return False
        (frame, loop), step = self.asked, sys._getframe()
        while is_ours(step) and step.f_back is not None:
            step = step.f_back
        return step is not frame or not goes_round(frame.f_code, frame.f_lasti, loop)

    @coroutine
    def reach_next(self, record: CallRecord) -> Generator[int, Any, None]:
        """Stop until the application enters another block, for the next attempt of *record*."""
        self.number = record.attempts
        yield _NEXT_BLOCK
        record.is_untraced, record.is_heard = False, True  # the application may have started a span meanwhile

    def run(self, find: FindPath, method: object, awaited: bool) -> Generator[Any, Any, None]:
        """Yield at each stop of the call, for blocks of a coroutine if *awaited*, for others otherwise."""
        call: Coroutine[Any, Any, Any] = find(awaited)((method, self), {})
        step: Callable[[Any], Any] = call.send
        given: Any = None
        hands_over = False
        try:
            while True:  # with a condition, CPython 3.13 has the jump back outside this `try`
                if self.is_over:
                    return
                try:
                    met = step(given)
                except BaseException as failure:
                    if call.cr_frame is not None:  # type: ignore[attr-defined]
                        step, given = call.throw, failure  # a signal handler raised it here
                        continue
                    self.is_over, met = True, _CONTINUE
                    if not (isinstance(failure, StopIteration) or self._is_own(failure)):
                        raise
                try:
                    step = call.send
                    if hands_over:
                        # The attempt is settled. The code after it may wait, which only an awaitable can.
                        hands_over = False
                        yield _CONTINUE
                    if met is _BLOCK_START:
                        hands_over = awaited
                        try:
                            given, self._trace = yield _BLOCK_START
                            self._error = given
                        finally:
                            self.is_open = False
                            if (attempt := self.attempt()) is not None:
                                attempt.release()
                            del attempt  # it may refer to this generator
                    else:
                        given = yield met
                except BaseException as error:
                    if self.is_over or call.cr_frame is None:  # type: ignore[attr-defined]
                        raise  # no code is left that could decide: garbage is closed in any order
                    step, given = call.throw, error  # the call decides
        finally:
            self._error = self._trace = self.handled = self.asked = None
            call.close()

    def _is_own(self, failure: BaseException) -> bool:
        """Return whether *failure* is the block's own exception, which then propagates with its original traceback."""
        error = self._error
        if error is None or StoppedIteration.meant(failure) is not error:
            return False
        BaseException.with_traceback(error, self._trace)
        return True


class _EntryModes:
    """The two modes to enter the blocks of a call, with or without ``async``, each with the generator of its steps.

    The call has no reference to this object: when the application drops the object, the call ends at once.
    """

    __slots__ = ("_steps", "call")

    def __init__(self, find: FindPath, method: object) -> None:
        self.call = _BlockCall()
        self._steps = [self.call.run(find, method, awaited) for awaited in (False, True)]  # one of them never starts

    def begin(self, *, awaited: bool) -> Generator[Any, Any, None]:
        """Return the generator of the steps, and fix the way of entering for this block and all later ones."""
        if self.call.is_awaited is (not awaited):
            raise RuntimeError("one loop enters all its blocks by `with`, or all of them by `async with`")
        self.call.is_awaited = awaited
        return self._steps[awaited]


_NO_STEPS: Any = (step for step in "")
"""Replaces the steps of an attempt that the collector has ended, and raises what is thrown into it."""


class Attempt:
    """One attempt of a guard, as a ``with`` or ``async with`` block.

    Attributes:
        number: The number of the attempt within the call, counted from 1. An attempt that a policy refuses counts, too:
            if a retry follows, it starts at once, and the block is entered with its number.
    """

    __slots__ = ("__weakref__", "_is_entered", "_modes", "_steps", "number")

    def __init__(self, modes: _EntryModes) -> None:
        self.number: int = modes.call.number
        self._is_entered = False
        self._modes: Any = modes
        """The call; ``None`` after the block."""
        self._steps: Any = None
        """The generator of the steps of the call, from the entry into the block to its end."""

    def __enter__(self) -> Self:
        steps = self._begin(awaited=False)
        try:
            _advance_to_block(steps)
            self._enter()
            return self
        except BaseException:
            steps.close()
            raise

    async def __aenter__(self) -> Self:
        await _next_stop(self._begin(awaited=True), self._enter)
        return self

    def _begin(self, *, awaited: bool) -> Generator[Any, Any, None]:
        if self._is_entered:
            raise RuntimeError("an attempt is entered only once")
        self._is_entered = True
        steps: Generator[Any, Any, None] = self._modes.begin(awaited=awaited)
        self._steps = steps
        self._modes.call.handled = sys.exception()
        return steps

    def _enter(self) -> None:
        call = self._modes.call
        self.number = call.number
        call.attempt = ref(self)

    def release(self) -> None:
        """End the attempt, which cannot be entered any more."""
        self._modes = self._steps = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        steps = self._steps
        met = (steps or _NO_STEPS).throw(error) if kind is GeneratorExit else steps.send((error, trace))
        return bool(met == _NEXT_BLOCK)

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Awaitable[bool | None]:
        steps = self._steps
        (steps or _NO_STEPS).throw(error) if kind is GeneratorExit else steps.send((error, trace))
        return _next_stop(steps)


@coroutine
def _next_stop(
    steps: Generator[Any, Any, None], entered: Callable[[], object] | None = None
) -> Generator[Any, Any, bool]:
    """Run a call to its next stop, and return whether another block follows.

    Args:
        steps: The steps of the call.
        entered: Called when a block may start; with it, only such a stop ends the waiting.
    """
    step: Callable[[Any], Any] = steps.send
    given: Any = None
    try:
        while True:
            met = step(given)
            if met is _BLOCK_START and entered is not None:
                entered()
                return True
            if type(met) is int and entered is None:
                return met is _NEXT_BLOCK
            step, given = steps.send, None
            if type(met) is not int:
                try:
                    given = yield met
                except BaseException as error:  # noqa: BLE001  # the call decides
                    step, given = steps.throw, error
    except BaseException:
        steps.close()
        raise


class Attempts:
    """The attempts of a guard, each as a block, for ``for`` and ``async for``; each loop is one call."""

    def __init__(self, find: FindPath, method: object) -> None:
        self._find = find
        self._method = method

    def __iter__(self) -> Iterator[Attempt]:
        return _Loop(_EntryModes(self._find, self._method))

    def __aiter__(self) -> AsyncIterator[Attempt]:
        return _Loop(_EntryModes(self._find, self._method))


class _Loop:
    """One loop over the attempts of a call. It never waits: the entry and the exit of blocks do."""

    def __init__(self, modes: _EntryModes) -> None:
        self._modes = modes
        self._latest: Attempt | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Attempt:
        return self._next(sys._getframe(1), StopIteration)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Attempt:
        return self._next(sys._getframe(1), StopAsyncIteration)

    def _next(self, asking: FrameType, end: type[Exception]) -> Attempt:
        latest, call = self._latest, self._modes.call
        if call.is_over:
            raise end
        if latest is not None and call.is_open:
            raise RuntimeError(
                f"attempt {latest.number} has not ended: put the code to attempt into a block, `with attempt:`"
            )
        call.asked, call.is_open = (asking, asking.f_lasti), True
        self._latest = Attempt(self._modes)
        return self._latest


def _advance_to_block(steps: Generator[Any, Any, None]) -> None:
    """Advance the call to the stop at which a block may start."""
    while next(steps) != _BLOCK_START:
        pass


class PlainBlock:
    """One entry into a block that is no attempt, left by a ``with`` statement even in a coroutine.

    Args:
        find: Returns the call path.
        release: Called with this object when the block has ended.
        owners: The objects that enter and leave a series of blocks one in another, including this block.
    """

    __slots__ = ("__weakref__", "_call", "_release", "owners", "steps")

    def __init__(self, find: FindPath, release: Callable[[PlainBlock], object], owners: tuple[object, ...]) -> None:
        self._call = _BlockCall()
        self._call.attempt = ref(self)
        self._release = release
        self.steps = self._call.run(find, None, awaited=False)
        """The generator to which ``__exit__`` sends the exception and its traceback, after the entry."""
        self.owners = owners

    def enter(self) -> None:
        """Advance the call to the start of the block."""
        _advance_to_block(self.steps)

    @property
    def is_over(self) -> bool:
        """Whether the block has ended."""
        return self._call.is_over

    def release(self) -> None:
        """Notify the owner that the block has ended."""
        self._release(self)


def single_attempt(find: FindPath, method: object) -> Attempt:
    """Return the only attempt of a call."""
    return Attempt(_EntryModes(find, method))
