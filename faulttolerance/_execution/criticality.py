"""How important a call is: who is served first where calls have to wait, and who is shed first."""

from __future__ import annotations

from contextvars import Context, ContextVar
from enum import IntEnum
from typing import Literal, TypeAlias

from .._shown import shown


class Criticality(IntEnum):
    """The importance of a call, the lowest first (rules K1, K2, K3)."""

    BEST_EFFORT = 0
    """Nobody minds if it fails, as with prefetching."""
    DEGRADED = 1
    """Without it something is missing that one can do without."""
    NORMAL = 2
    """What counts where nothing was said."""
    CRITICAL = 3
    """What the system is there for."""

    @classmethod
    def current(cls) -> Criticality:
        """Return the level that holds for calls of the running context."""
        return _level(_blocks.get())


def level_in(context: Context) -> Criticality:
    """Return the level that holds for calls of *context*."""
    return _level(context.get(_blocks, ()))


Level: TypeAlias = Criticality | Literal["best_effort", "degraded", "normal", "critical"]


class criticality:  # noqa: N801  # it is used as a statement, like a function
    """Let the guarded calls of a block, and of what the block starts, be as important as *level*.

    For ``with`` and ``async with``. It is read only where a call has to wait for a permit, or would be shed: important
    calls are served first and shed last, but no limit lets in more for them. Blocks may be nested; the innermost one
    counts. Tasks, threads of the pool and retries take the level along with their context.

    Args:
        level: A ``Criticality``, or its name in letters of any case.

    Raises:
        ValueError: *level* is neither.

    >>> with criticality("best_effort"):
    ...     Criticality.current()
    <Criticality.BEST_EFFORT: 0>
    """

    __slots__ = ("level",)

    def __init__(self, level: Level) -> None:
        found = level if isinstance(level, Criticality) else None
        if isinstance(level, str):
            found = Criticality.__members__.get(level.upper())
        if found is None:
            names = ", ".join(repr(name.lower()) for name in Criticality.__members__)
            raise ValueError(f"criticality(level) is {shown(level)}; allowed: a Criticality, or one of {names}")
        self.level = found

    def __enter__(self) -> Criticality:
        _blocks.set((*_blocks.get(), self))
        return self.level

    def __exit__(self, *_: object) -> None:
        blocks = _blocks.get()
        # Blocks of generators end in any order; one of a coroutine that is closed may end in another context.
        for index in reversed(range(len(blocks))):
            if blocks[index] is self:
                _blocks.set(blocks[:index] + blocks[index + 1 :])
                return

    async def __aenter__(self) -> Criticality:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __repr__(self) -> str:
        return f"criticality({self.level.name.lower()!r})"


_blocks: ContextVar[tuple[criticality, ...]] = ContextVar("faulttolerance_criticality", default=())
"""The blocks of the running context, the outermost first."""


def _level(blocks: tuple[criticality, ...]) -> Criticality:
    return blocks[-1].level if blocks else Criticality.NORMAL
