"""A block of code in the place of a guarded function: ``with guard.attempt()``, ``for attempt in guard.attempts()``.

The whole call is one coroutine, as ``attempt`` and ``retrying`` give it, that stops where it would call the function:
there the block runs, and its end makes the coroutine go on. Every decision is the one of any other call.

A signal's handler may raise at the very beginning of any function written in Python, before that has done anything; so
what leaves a block is none. ``max`` is C code, hands each argument of ``__exit__`` to the coroutine, which takes them
inside a ``try``, and gives the traceback, which is true, where the exception is to go no further.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from functools import partial
from types import FrameType, TracebackType, coroutine
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from .._deadline.threads.instructions import goes_round
from .._deadline.threads.roles import is_ours
from .._execution.caller_thread import GuardedCall, pause
from .._execution.environment import StoppedIteration
from .follow import LEFT
from .settle import BoundPolicies

__all__ = ["Attempt", "Attempts", "BlockingEnvironment", "PlainBlock", "run_block", "single", "stop_between_attempts"]

_ON, _AGAIN, _IN = 0, 1, 2
"""The stops of a call, as ``max`` compares them: nothing to say, there is to be another block, one is to begin."""

Find = Callable[[bool], GuardedCall]
"""Finds the call path, given whether the block belongs to a coroutine."""


def _nobody() -> None:
    pass


@coroutine
def run_block(method: object, course: _Course) -> Generator[int, BaseException | None, object]:
    """Stand for the guarded function: stop until the block was left, and raise what it raised."""
    error = yield _IN
    try:
        if error is not None:
            raise StoppedIteration.of(error)
    finally:
        del error  # it refers to this frame
    return LEFT if course.has_left() else None


def stop_between_attempts(policies: BoundPolicies) -> None:
    """Let each attempt but the first wait until the application begins another block."""
    first = policies.attempt

    async def again(args: tuple[Any, ...], kwargs: Any, record: Any) -> Any:
        args[1].number = record.attempts
        await _stop()
        record.is_untraced = False  # the application may have begun a span meanwhile
        return await first()(args, kwargs, record)

    policies.attempt = lambda: again


@coroutine
def _stop() -> Generator[int, Any, None]:
    yield _AGAIN


class BlockingEnvironment:
    """The environment of a call whose block runs on the caller's thread: nothing waits for a loop."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def pause(self, seconds: float) -> None:
        if seconds:
            pause(self._name, seconds)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class _Course:
    """The course of one call, from its first block to its last; begun when that is entered."""

    def __init__(self) -> None:
        self.number = 1
        """Which attempt is to begin, or runs."""
        self.is_over = False
        self.is_open = False
        """Whether the latest attempt was not left yet, nor perhaps entered."""
        self.is_awaited: bool | None = None
        """Whether the blocks belong to a coroutine; ``None`` before the first one is entered."""
        self.attempt: Callable[[], Attempt | PlainBlock | None] = _nobody
        """Gives the one whose block runs; weakly, for that leads here."""
        self.asked: tuple[FrameType, int] | None = None
        """The frame and instruction at which a loop asked for the latest attempt."""
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None

    def has_left(self) -> bool:
        """Tell whether the block, which is being left without an exception, ends the loop that it stands in."""
        if self.asked is None:
            return False
        (frame, loop), step = self.asked, sys._getframe()
        while is_ours(step) and step.f_back is not None:
            step = step.f_back
        return step is not frame or not goes_round(frame.f_code, frame.f_lasti, loop)

    def run(self, find: Find, method: object, awaited: bool) -> Generator[Any, Any, None]:
        """Go from one stop to the next, for blocks that belong to a coroutine, or for others."""
        call: Coroutine[Any, Any, Any] = find(awaited)((method, self), {})
        step: Callable[[Any], Any] = call.send
        given: Any = None
        hands_over = False
        try:
            while not self.is_over:
                try:
                    met = step(given)
                except BaseException as failure:
                    if call.cr_frame is not None:  # type: ignore[attr-defined]
                        step, given = call.throw, failure  # raised by a signal's handler, here
                        continue
                    self.is_over, met = True, _ON
                    if not (isinstance(failure, StopIteration) or self._is_own(failure)):
                        raise
                try:
                    step = call.send
                    if hands_over:
                        # The attempt is settled. What follows may wait, which ``max`` cannot.
                        hands_over = False
                        yield _ON
                    if met is _IN:
                        hands_over = awaited
                        given = yield from self._left()
                    else:
                        given = yield met
                except BaseException as error:
                    if self.is_over or call.cr_frame is None:  # type: ignore[attr-defined]
                        raise  # nothing is left that could decide: garbage is closed in any order
                    step, given = call.throw, error  # the call decides
        finally:
            self._error = self._trace = None
            call.close()

    def _left(self) -> Generator[int, Any, BaseException | None]:
        """Wait for the end of the block: for what ``max`` hands over, its own argument and those of ``__exit__``."""
        struck: BaseException | None = None
        error: BaseException | None = None
        trace: TracebackType | None = None
        try:
            # What a signal's handler raises is kept until all is handed over; not in a loop, whose jumps it may strike.
            try:
                yield _IN
            except GeneratorExit:
                raise
            except BaseException as raised:  # noqa: BLE001
                struck = raised
            try:
                yield _ON
            except BaseException as raised:  # noqa: BLE001
                struck = raised
            try:
                error = yield _ON
            except BaseException as raised:  # noqa: BLE001
                struck = raised
            try:
                trace = yield _ON
            except BaseException as raised:  # noqa: BLE001
                struck = raised
            if struck is not None:
                raise struck
            self._error, self._trace = error, trace
            return error
        finally:
            self.is_open = False
            del error, trace, struck  # they refer to this frame
            attempt = self.attempt()
            if attempt is not None:
                attempt.let_go()

    def _is_own(self, failure: BaseException) -> bool:
        """Tell whether the block's own exception comes out: it goes on by itself, with the traceback that it had."""
        error = self._error
        if error is None or StoppedIteration.meant(failure) is not error:
            return False
        BaseException.with_traceback(error, self._trace)
        return True


class _Exit(property):
    """Gives what leaves a block, which is no function of Python; where it is called itself, it calls that."""

    def __call__(self, attempt: Attempt, *error: Any) -> Any:
        return self.__get__(attempt, type(attempt))(*error)


class _Ways:
    """The two ways in which the blocks of a call may be entered; what goes through the call, for each.

    Nothing of the call leads here: when the application lets go of it, it ends at once.
    """

    __slots__ = ("_steps", "course")

    def __init__(self, find: Find, method: object) -> None:
        self.course = _Course()
        self._steps = [self.course.run(find, method, awaited) for awaited in (False, True)]  # one is never begun

    def steps(self, *, awaited: bool) -> Generator[Any, Any, None]:
        """Give what goes from one stop to the next."""
        return self._steps[awaited]

    def begin(self, *, awaited: bool) -> Generator[Any, Any, None]:
        """Give the same, for this block and all that follow it."""
        if self.course.is_awaited is (not awaited):
            raise RuntimeError("the blocks of one loop are entered by `with`, or all of them by `async with`")
        self.course.is_awaited = awaited
        return self._steps[awaited]


class Attempt:
    """One attempt of a guard, as a ``with`` or ``async with`` block.

    Attributes:
        number: Which attempt of the call it is, counted from 1. One that a policy refuses is an attempt, too: where a
            retry follows, that is made at once, and the block is entered by it.
    """

    __slots__ = ("__weakref__", "_is_entered", "_ways", "number")

    def __init__(self, ways: _Ways) -> None:
        self.number = ways.course.number
        self._is_entered = False
        self._ways: _Ways | None = ways

    def __enter__(self) -> Self:
        steps = self._begin(awaited=False)
        try:
            _go_inside(steps)
            self._enter()
            return self
        except BaseException:
            steps.close()
            raise

    async def __aenter__(self) -> Self:
        await _Wait(self._begin(awaited=True), self._enter)
        return self

    def _of_call(self) -> _Ways:
        if self._ways is None:
            raise RuntimeError("an attempt is made once; ask the guard for another one")
        return self._ways

    def _begin(self, *, awaited: bool) -> Generator[Any, Any, None]:
        if self._is_entered:
            raise RuntimeError("an attempt is entered once")
        self._is_entered = True
        return self._of_call().begin(awaited=awaited)

    def _enter(self) -> None:
        course = self._of_call().course
        self.number = course.number
        course.attempt = ref(self)

    def let_go(self) -> None:
        """Be over."""
        self._ways = None

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
        ) -> bool | None: ...
        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
        ) -> bool | None: ...

    else:

        @_Exit
        def __exit__(self):
            return partial(max, False, key=self._of_call().steps(awaited=False).send)

        @_Exit
        def __aexit__(self):
            steps = self._of_call().steps(awaited=True)
            return partial(max, _Wait(steps), key=steps.send)


class _Wait:
    """Waits until a call comes to its next stop, and gives whether there is to be another block.

    Args:
        steps: The steps of the call.
        entered: Called when a block may begin, which is then the stop that counts.
    """

    __slots__ = ("_entered", "_steps")

    def __init__(self, steps: Generator[Any, Any, None], entered: Callable[[], object] | None = None) -> None:
        self._steps = steps
        self._entered = entered

    def __await__(self) -> Generator[Any, Any, bool]:
        step: Callable[[Any], Any] = self._steps.send
        given: Any = None
        try:
            while True:
                met = step(given)
                if met is _IN and self._entered is not None:
                    self._entered()
                    return True
                if type(met) is int and self._entered is None:
                    return met is _AGAIN
                step, given = self._steps.send, None
                if type(met) is not int:
                    try:
                        given = yield met
                    except BaseException as error:  # noqa: BLE001  # the call decides
                        step, given = self._steps.throw, error
        except BaseException:
            self._steps.close()
            raise


class Attempts:
    """The attempts of a guard, each a block, for ``for`` and ``async for``: each loop is one call."""

    def __init__(self, find: Find, method: object) -> None:
        self._find = find
        self._method = method

    def __iter__(self) -> Iterator[Attempt]:
        return _Loop(_Ways(self._find, self._method))

    def __aiter__(self) -> AsyncIterator[Attempt]:
        return _Loop(_Ways(self._find, self._method))


class _Loop:
    """One loop over the attempts of a call; it waits for nothing, as that is done where blocks are entered and left."""

    def __init__(self, ways: _Ways) -> None:
        self._ways = ways
        self._latest: Attempt | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Attempt:
        attempt = self._next(sys._getframe(1))
        if attempt is None:
            raise StopIteration
        return attempt

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Attempt:
        attempt = self._next(sys._getframe(1))
        if attempt is None:
            raise StopAsyncIteration
        return attempt

    def _next(self, asking: FrameType) -> Attempt | None:
        latest, course = self._latest, self._ways.course
        course.asked = asking, asking.f_lasti
        if course.is_over:
            return None
        if latest is not None and course.is_open:
            raise RuntimeError(
                f"attempt {latest.number} is not over: what is to be attempted stands in a block, `with attempt:`"
            )
        course.is_open = True
        self._latest = Attempt(self._ways)
        return self._latest


def _go_inside(steps: Generator[Any, Any, None]) -> None:
    """Go on to where a block may begin."""
    while next(steps) != _IN:
        pass


class PlainBlock:
    """One entry into a block that is no attempt, and left by a ``with`` statement, also where a coroutine has it.

    Args:
        find: Finds the call path.
        let_go: Is given this when the block is left.
    """

    __slots__ = ("__weakref__", "_course", "_let_go", "course", "has_begun", "steps")

    def __init__(self, find: Find, let_go: Callable[[PlainBlock], object]) -> None:
        self._course = _Course()
        self._course.attempt = ref(self)
        self._let_go = let_go
        self.steps = self._course.run(find, None, awaited=False)
        """Once it was entered: what ``max`` hands over what ``__exit__`` is given."""
        self.has_begun = False
        self.course: object = None
        """Who enters and leaves blocks one after the other, of whom this is one."""

    def enter(self) -> None:
        """Go on to where the block begins."""
        self.has_begun = True
        _go_inside(self.steps)

    @property
    def is_over(self) -> bool:
        """Whether it was left."""
        return self._course.is_over

    def let_go(self) -> None:
        """Be over."""
        self._let_go(self)


def single(find: Find, method: object) -> Attempt:
    """Give the one attempt of a call."""
    return Attempt(_Ways(find, method))
