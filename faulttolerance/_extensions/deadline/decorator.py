"""The objects that ``deadline(...)`` returns: decorators for whole calls, and context managers for blocks of code.

Each entry into a block is an attempt of ``_call/block.py`` under a deadline only. A ``with`` statement enters and
leaves in one frame, and the blocks of a frame end from the inside out. So each statement leaves the attempt that it
entered, even if others enter meanwhile: a signal handler, another generator, another task.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from functools import lru_cache
from itertools import chain
from types import coroutine
from typing import TYPE_CHECKING, Any, Self

from ..._call.attempt import compose
from ..._call.block import BlockingEnvironment, PlainBlock, run_block
from ..._call.bound_policies import conclude_of
from ..._deadline.task import current
from ..._deadline.threads.block import holder_of_block
from ..._deadline.threads.chain import current_greenlet, deadlines_here
from ..._execution.caller_thread import GuardedCall
from ..._guard.declare.creation_site import declaring_frame
from ..._guard.decorate.decorator import Decorator
from ..._platform.event_loop import loop_here
from ..._platform.frames import module_of
from ..._platform.unpatched import get_ident
from ..._policy import ChronoUnit, Policy, check, parameters, seconds
from ...exceptions import Fault, raise_faults
from .layer import WholeCallPolicies, ask_the_time, refuse_late

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import TypeVar

    F = TypeVar("F")

_AWAITED = 0x80 | 0x100 | 0x200
"""The flags of the code of coroutines and asynchronous generators."""


class _Left:
    """The result of leaving a block: false, so that its exception propagates, and awaitable for ``async with``."""

    def __bool__(self) -> bool:
        return False

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


_LEFT = _Left()


class WholeCall(Decorator):
    """A deadline for a function, a class, or a block of code; for any number of them."""

    __slots__ = ("_entered", "_name")

    def __init__(self, kind: type[Policy], values: Mapping[str, Any], name: str = "") -> None:
        super().__init__(kind, values)
        self._name = name
        if not name:  # else a framework calls the library, and is no part of the application
            frame = declaring_frame()
            self._name = "a block" if frame is None else f"{module_of(frame) or 'a block'}:{frame.f_lineno}"
            raise_faults(self._faults(self._name))  # now: it may guard only blocks, which start much later
        self._entered: dict[object, list[PlainBlock]] = {}
        """The blocks that have not ended yet, by the frame that entered them, and by task, greenlet or thread."""

    def __set_name__(self, owner: type, name: str) -> None:
        """Accept the attribute of a class, for the blocks of its methods."""

    def __enter__(self) -> Self:
        return self._enter(sys._getframe(1), is_awaited=False)

    async def __aenter__(self) -> Self:
        return self._enter(sys._getframe(1), is_awaited=True)

    if TYPE_CHECKING:

        def __call__(self, target: F, /) -> F: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> _Left:
        block: Any = None
        try:
            block = self._innermost(sys._getframe(1))
            if kind is not GeneratorExit:
                block.steps.send((error, trace))
            elif block is not None:  # otherwise the collector, which closes garbage in any order, has closed it
                block.steps.close()
        except BaseException:  # of the block, or of a signal handler that raised before the block was left
            (block or self._innermost(sys._getframe(1))).steps.close()
            raise
        return _LEFT

    __aexit__ = __exit__

    def _enter(self, holder: FrameType, *, is_awaited: bool) -> Self:
        # A ``with`` block of a coroutine, too, belongs to its task.
        of_task = is_awaited or bool((holder_of_block(holder) or holder).f_code.co_flags & _AWAITED)
        length = seconds(parameters(self._kind)["value"].kind.normalised(self._values["value"]), ChronoUnit.MILLIS)
        block = PlainBlock(lambda _: _path(self._name, length, of_task), self._forget, (holder, _course()))
        try:
            for owner in block.owners:
                self._entered.setdefault(owner, []).append(block)
            block.enter()
        except BaseException:
            block.steps.close()
            self._forget(block)
            raise
        return self

    def _faults(self, where: str) -> list[Fault]:
        return check(self._kind, self._values, "", lambda _: ("deadline(value)", f"at {self._name}"))

    def _innermost(self, holder: FrameType) -> Any:
        """Return the latest block that *holder* entered, or the latest of this course, or of another one."""
        blocks = self._entered.get(holder) or self._entered.get(_course()) or [*chain(*self._entered.values())]
        return next((block for block in reversed(blocks) if not block.is_over), None)

    def _forget(self, block: PlainBlock) -> None:
        """Remove *block*, which has ended; each step may run twice."""
        for owner in block.owners:
            blocks = self._entered.get(owner, [])
            blocks[:] = [other for other in blocks if other is not block and not other.is_over]
            if not blocks:
                self._entered.pop(owner, None)


def _course() -> object:
    """Return the object that enters and leaves blocks one after the other: the running task, greenlet or thread."""
    loop = loop_here()
    task = None if loop is None else sys.modules["asyncio"].current_task(loop)
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
                current.get().is_binding = True
            else:
                deadlines_here().innermost.is_binding = True
        block: Any = run_block(method, course)
        return (yield from block)

    return compose(run, policies, environment=environment)
