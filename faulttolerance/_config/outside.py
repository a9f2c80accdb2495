"""What is run only because a value, a file or a command line names it: modules, and sources of others."""

from __future__ import annotations

__all__ = ["is_from_outside"]


def is_from_outside(error: BaseException) -> bool:
    """Whether *error* ends who waits, and not what was run: Ctrl-C, or a deadline of this library.

    Everything else is what was run failing: a script ends its program by ``SystemExit``, which must not end ours.
    """
    is_ours = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return isinstance(error, KeyboardInterrupt) or (is_ours and not isinstance(error, Exception))
