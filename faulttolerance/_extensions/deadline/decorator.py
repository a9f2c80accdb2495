"""The objects that ``deadline(...)`` returns: decorators for whole calls, and context managers for blocks of code.

Each entry into a block is an attempt of ``_call/block.py`` under a deadline only. A ``with`` statement looks up
``__exit__`` before it enters: the attempt is created there. So each statement leaves the attempt that it entered, even
if others enter meanwhile: a signal handler, another generator, another task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache, partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Self

from ..._call.attempt import compose
from ..._call.block import BlockingEnvironment, PlainBlock, run_block
from ..._call.bound_policies import conclude_of
from ..._deadline.task import current
from ..._deadline.threads.block import holder_of_block
from ..._deadline.threads.chain import current_greenlet, deadlines_here
from ..._execution.caller_thread import GuardedCall
from ..._guard.declare.creation_site import application_frames
from ..._guard.decorate.decorator import Decorator
from ..._platform.frames import module_of
from ..._platform.unpatched import get_ident
from ..._policy import ChronoUnit, Policy, check, parameters, seconds
from ...exceptions import Fault, FaultToleranceDefinitionException
from .layer import WholeCallPolicies, ask_the_time, refuse_late

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["WholeCall"]

_AWAITED = 0x80 | 0x100 | 0x200
"""The flags of the code of coroutines and asynchronous generators."""


class _Nothing:
    """An awaitable that returns at once, when there is nothing left to wait for."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


class _Exit:
    """A descriptor that returns the exit of a block, in C code; a ``with`` statement then enters a new attempt."""

    def __init__(self, gives: object) -> None:
        self._gives = gives

    def __get__(self, block: WholeCall | None, owner: type | None = None) -> Any:
        # ``contextlib.ExitStack`` looks it up on the class.
        return self if block is None else block._prepare(self._gives)

    def __call__(self, block: WholeCall, *error: Any) -> Any:
        return block._leaving(self._gives)(*error)


class WholeCall(Decorator):
    """A deadline for a function, a class, or a block of code; for any number of them."""

    __slots__ = ("_entered", "_name", "_prepared")

    def __init__(self, kind: type[Policy], values: Mapping[str, Any]) -> None:
        super().__init__(kind, values)
        frame = next(application_frames(), None)
        self._name = "a block" if frame is None else f"{module_of(frame) or 'a block'}:{frame.f_lineno}"
        if faults := self._faults(self._name):  # now: it may guard only blocks, which start much later
            raise FaultToleranceDefinitionException(*faults)
        self._prepared: dict[tuple[int, bool], list[PlainBlock]] = {}
        """The blocks that statements are about to enter, by thread, and by whether they are awaited."""
        self._entered: dict[object, list[PlainBlock]] = {}
        """The blocks that have not ended yet, by task, greenlet or thread."""

    def __set_name__(self, owner: type, name: str) -> None:
        """Accept the attribute of a class, for the blocks of its methods."""

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
            block.owner = _course()
            self._entered.setdefault(block.owner, []).append(block)
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
            """Return the call path of a block; a ``with`` block of a coroutine, too, belongs to its task."""
            holder = holder_of_block()
            of_task = is_awaited or (holder is not None and bool(holder.f_code.co_flags & _AWAITED))
            return _path(self._name, self._seconds, of_task)

        return PlainBlock(find, self._forget)

    def _prepare(self, gives: object) -> Callable[..., Any]:
        """Create the block that a statement is about to enter, and return its exit."""
        block = self._block(is_awaited := gives is not None)
        self._prepared.setdefault((get_ident(), is_awaited), []).append(block)
        return self._leaving(gives, block)

    def _leaving(self, gives: object, block: PlainBlock | None = None) -> Callable[..., Any]:
        """Return the exit of *block*, or of the latest block if that was never entered; the exit returns *gives*."""
        steps = self._until_left(block)
        next(steps)
        return partial(max, gives, key=steps.send)

    def _until_left(self, block: PlainBlock | None) -> Generator[int, Any, None]:
        try:
            yield 0  # inside: resuming here is the first moment at which a handler may raise
            block = self._opened(block)
        except GeneratorExit:
            self._drop(block)
            raise  # this exit was never used: ``hasattr``, for example, looks up ``__exit__``
        except BaseException:
            self._opened(block).steps.close()
            raise
        yield from block.steps  # the first value that is sent has no meaning

    def _opened(self, block: PlainBlock | None) -> PlainBlock:
        """Return the block to leave: *block*, unless it was not entered by a statement, but by hand."""
        if block is not None and block.has_begun:
            return block
        self._drop(block)
        return next(other for other in reversed(self._entered[_course()]) if not other.is_over)

    def _drop(self, block: PlainBlock | None) -> None:
        """Remove *block* from the prepared blocks."""
        for is_awaited in False, True:
            prepared = self._prepared.get((get_ident(), is_awaited), [])
            if block in prepared:
                prepared.remove(block)

    def _forget(self, block: PlainBlock) -> None:
        """Remove *block*, which has ended; each step may run twice."""
        blocks = self._entered.get(block.owner, [])
        blocks[:] = [other for other in blocks if other is not block and not other.is_over]
        if not blocks:
            self._entered.pop(block.owner, None)


def _course() -> object:
    """Return the object that enters and leaves blocks one after the other: the running task, greenlet or thread."""
    asyncio = sys.modules.get("asyncio")
    loop = asyncio._get_running_loop() if asyncio is not None else None
    task = asyncio.current_task(loop) if asyncio is not None and loop is not None else None
    return task or current_greenlet() or get_ident()


@lru_cache(maxsize=256)
def _path(name: str, limit: float, of_task: bool) -> GuardedCall:
    """Return the call path of the blocks of one line."""
    ask_the_time()
    conclude = conclude_of(of_task) if limit else None
    policies = WholeCallPolicies(name, seconds=limit, conclude=conclude, asynchronous=of_task, counts_calls=False)
    policies.is_block = True
    environment: Any = BlockingEnvironment(name)
    if of_task:
        from ..._execution.task import BlockEnvironment

        environment = BlockEnvironment()

    @coroutine  # no ``async def``: it may be ended before its first step
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
