"""Waking those whose wait is over, each of them whatever happens: a lost wake-up is a call that never ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["wake_all"]


class Waiting(Protocol):
    """Whoever waits."""

    @property
    def wake(self) -> Callable[[], object] | None:
        """Wakes it, from any thread; called without a lock, seldom more than once. ``None``: it never waits."""
        ...


W = TypeVar("W", bound=Waiting)


def wake_all(woken: list[W], leave: Callable[[W], object]) -> None:
    """Wake all of *woken*, in order, and take each out once it has heard of it.

    *leave* is called for one whom nobody can wake any more, as with a loop that was closed: what it got goes on to the
    next. Control flow comes out once all were woken.
    """
    while woken:
        waiting = woken[0]
        try:
            if waiting.wake is not None:
                waiting.wake()
        except Exception:  # noqa: BLE001  # nobody is there any more
            del woken[0]
            leave(waiting)
        except BaseException:
            # Not the one's who waits: this thread was interrupted, perhaps before that one heard of it.
            wake_all(woken, leave)
            raise
        else:
            del woken[0]
