"""What ``deadline(...)`` gives: a decorator for whole calls, and a context manager for blocks of code.

Each entry into a block is an attempt of ``_call/block.py`` under nothing but a deadline. A ``with`` statement asks for
``__exit__`` before it enters: the attempt is made there, so that each statement leaves the attempt that it entered,
whoever else enters meanwhile: a signal's handler, another generator, another task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache, partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Self

from ..._call.attempt import compose
from ..._call.block import BlockingEnvironment, PlainBlock, run_block
from ..._call.settle import conclude_of
from ..._deadline.task import current
from ..._deadline.threads.block import holder_of_block
from ..._deadline.threads.chain import current_greenlet, deadlines_here
from ..._execution.caller_thread import GuardedCall
from ..._guard.declare.place import user_frames
from ..._guard.decorate.decorator import Decorator
from ..._platform.frames import module_of
from ..._platform.unpatched import get_ident
from ..._policy import ChronoUnit, Policy, check, parameters, seconds
from ...exceptions import Fault, FaultToleranceDefinitionException
from .layer import Asking, WholeCallPolicies, refuse_late

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["WholeCall"]

_AWAITED = 0x80 | 0x100 | 0x200
"""The flags of the code of coroutines and asynchronous generators."""


class _Nothing:
    """What is awaited where nothing is left to wait for."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


class _Exit:
    """Gives what leaves a block, in C code: for a ``with`` statement that of a new attempt, which it then enters."""

    def __init__(self, gives: object) -> None:
        self._gives = gives

    def __get__(self, block: WholeCall | None, owner: type | None = None) -> Any:
        # ``contextlib.ExitStack`` asks the class.
        return self if block is None else block._prepare(self._gives)

    def __call__(self, block: WholeCall, *error: Any) -> Any:
        return block._leaving(self._gives)(*error)


class WholeCall(Decorator):
    """A deadline that waits for the function or class to guard, or for a block of code; any number of both."""

    __slots__ = ("_entered", "_name", "_prepared")

    def __init__(self, kind: type[Policy], values: Mapping[str, Any]) -> None:
        super().__init__(kind, values)
        frame = next(user_frames(), None)
        self._name = "a block" if frame is None else f"{module_of(frame) or 'a block'}:{frame.f_lineno}"
        if faults := self._faults(self._name):  # now: it may guard blocks alone, which begin much later
            raise FaultToleranceDefinitionException(*faults)
        self._prepared: dict[tuple[int, bool], list[PlainBlock]] = {}
        """By thread, and whether it is awaited: what statements are about to enter."""
        self._entered: dict[object, list[PlainBlock]] = {}
        """By task, greenlet or thread, what was not left yet."""
        if not Asking.is_on:
            from ..._guard.resolve.transaction import replan

            Asking.is_on = True
            replan()

    def __set_name__(self, owner: type, name: str) -> None:
        """Be an attribute of a class, for the blocks of its methods."""

    def __enter__(self) -> Self:
        return self._enter(is_awaited=False)

    async def __aenter__(self) -> Self:
        return self._enter(is_awaited=True)

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
        ) -> None: ...
        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
        ) -> None: ...

    else:
        __exit__ = _Exit(None)
        __aexit__ = _Exit(_Nothing())

    def _enter(self, *, is_awaited: bool) -> Self:
        prepared = self._prepared.get((get_ident(), is_awaited))
        block = prepared.pop() if prepared else self._block(is_awaited)
        try:
            block.course = _course()
            self._entered.setdefault(block.course, []).append(block)
            block.enter()
        except BaseException:
            block.steps.close()
            self._forget(block)
            raise
        return self

    def _own_faults(self, where: str) -> list[Fault]:
        return check(self._kind, self._values, "", lambda _: ("deadline(value)", f"at {self._name}"))

    @property
    def _seconds(self) -> float:
        """The length of a block's deadline."""
        return seconds(parameters(self._kind)["value"].kind.normalised(self._values["value"]), ChronoUnit.MILLIS)

    def _block(self, is_awaited: bool) -> PlainBlock:
        def find(_: bool) -> GuardedCall:
            """Find the call path of a block; a ``with`` block of a coroutine, too, is one of its task."""
            holder = holder_of_block()
            of_task = is_awaited or (holder is not None and bool(holder.f_code.co_flags & _AWAITED))
            return _path(self._name, self._seconds, of_task)

        return PlainBlock(find, self._forget)

    def _prepare(self, gives: object) -> Callable[..., Any]:
        """Make what a statement is about to enter, and give what leaves that."""
        block = self._block(is_awaited := gives is not None)
        self._prepared.setdefault((get_ident(), is_awaited), []).append(block)
        return self._leaving(gives, block)

    def _leaving(self, gives: object, block: PlainBlock | None = None) -> Callable[..., Any]:
        """Give what leaves *block*, or where that was never entered the latest one, and gives *gives*."""
        steps = self._until_left(block)
        next(steps)
        return partial(max, gives, key=steps.send)

    def _until_left(self, block: PlainBlock | None) -> Generator[int, Any, None]:
        try:
            yield 0  # inside: going on here is the first moment at which a handler may raise
            block = self._opened(block)
        except GeneratorExit:
            self._drop(block)
            raise  # nobody ever left by this: who asks for ``__exit__`` may be ``hasattr``
        except BaseException:
            self._opened(block).steps.close()
            raise
        yield from block.steps  # what is handed over first says nothing

    def _opened(self, block: PlainBlock | None) -> PlainBlock:
        """Give what is left: *block*, unless that was not entered by a statement, but by hand."""
        if block is not None and block.has_begun:
            return block
        self._drop(block)
        return next(other for other in reversed(self._entered[_course()]) if not other.is_over)

    def _drop(self, block: PlainBlock | None) -> None:
        """Prepare *block* no longer."""
        for is_awaited in False, True:
            prepared = self._prepared.get((get_ident(), is_awaited), [])
            if block in prepared:
                prepared.remove(block)

    def _forget(self, block: PlainBlock) -> None:
        """Note that *block* is over; each step may be taken twice."""
        blocks = self._entered.get(block.course, [])
        blocks[:] = [other for other in blocks if other is not block and not other.is_over]
        if not blocks:
            self._entered.pop(block.course, None)


def _course() -> object:
    """Give what enters and leaves blocks one after the other: the running task, greenlet or thread."""
    asyncio = sys.modules.get("asyncio")
    loop = asyncio._get_running_loop() if asyncio is not None else None
    task = asyncio.current_task(loop) if asyncio is not None and loop is not None else None
    return task or current_greenlet() or get_ident()


@lru_cache(maxsize=256)
def _path(name: str, limit: float, of_task: bool) -> GuardedCall:
    """Make the call path of the blocks of one line."""
    conclude = conclude_of(of_task) if limit else None
    policies = WholeCallPolicies(name, seconds=limit, conclude=conclude, asynchronous=of_task, counts_calls=False)
    policies.is_block = True
    environment: Any = BlockingEnvironment(name)
    if of_task:
        from ..._execution.task import BlockEnvironment

        environment = BlockEnvironment()

    @coroutine  # and no ``async def``: it may be ended before its first step
    def run(method: object, course: Any) -> Generator[int, BaseException | None, object]:
        if limit:
            refuse_late(name)
            if of_task:
                current.get().bind()
            else:
                deadlines_here().innermost.is_binding = True
        block: Any = run_block(method, course)
        return (yield from block)

    return compose(run, policies, environment=environment)
