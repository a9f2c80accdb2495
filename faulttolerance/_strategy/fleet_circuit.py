"""The circuit of a function that the processes of a fleet share, as one of them sees it (rules F3, F4, F6)."""

from __future__ import annotations

__all__ = ["Member"]


class Member:
    """What is the fleet's of one function, or of one key of it, in this process.

    Args:
        key: Names it in the whole fleet.
    """

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten."""
        return True

    def keep_only(self, ident: int) -> None:
        """Drop what other threads than *ident* held: they do not exist after a fork. Call it in the child only."""
