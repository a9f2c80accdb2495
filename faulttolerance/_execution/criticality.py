"""The importance of a call, which decides the order of waiting calls and of the calls to refuse."""

from __future__ import annotations

from contextvars import Context, ContextVar
from enum import IntEnum
from typing import Literal, TypeAlias

from .._shown import shown


class Criticality(IntEnum):
    """The importance of a call, the lowest first (rules K1, K2, K3)."""

    BEST_EFFORT = 0
    """A failure of the call does not matter, as for prefetching."""
    DEGRADED = 1
    """Without the call the result lacks a dispensable part."""
    NORMAL = 2
    """The level of calls without a declared criticality."""
    CRITICAL = 3
    """The purpose of the system depends on the call."""

    @classmethod
    def current(cls) -> Criticality:
        """Return the level of calls in the running context."""
        return _level(_blocks.get())


def level_in(context: Context) -> Criticality:
    """Return the level of calls in *context*."""
    return _level(context.get(_blocks, ()))


Level: TypeAlias = Criticality | Literal["best_effort", "degraded", "normal", "critical"]


class criticality:  # noqa: N801  # it is used as a statement, like a function
    """A block whose guarded calls, and those of everything that the block starts, have the importance *level*.

    For ``with`` and ``async with``. The level is read only if a call must wait for a permit, or would be refused in an
    overload. Important calls are then served first and refused last, but no limit admits more of them. Blocks may be
    nested; the innermost block counts. Tasks, threads of the pool and retries inherit the level with their context.

    Args:
        level: A ``Criticality``, or its name in letters of any case.

    Raises:
        ValueError: *level* is neither a ``Criticality`` nor a name of one.

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
        _blocks.set((self, *_blocks.get()))
        return self.level

    def __exit__(self, *_: object) -> None:
        blocks = list(_blocks.get())
        # Blocks of generators end in any order; the block of a coroutine that is closed may end in another context.
        if self in blocks:
            blocks.remove(self)
            _blocks.set(tuple(blocks))

    async def __aenter__(self) -> Criticality:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __repr__(self) -> str:
        return f"criticality({self.level.name.lower()!r})"


_blocks: ContextVar[tuple[criticality, ...]] = ContextVar("faulttolerance_criticality", default=())
"""The blocks of the running context, the innermost first."""


def _level(blocks: tuple[criticality, ...]) -> Criticality:
    return blocks[0].level if blocks else Criticality.NORMAL
