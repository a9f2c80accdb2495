"""Wake-ups of waiting calls, each of them whatever happens: a lost wake-up is a call that never ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Wakeable(Protocol):
    """A call that waits."""

    @property
    def wake(self) -> Callable[[], object] | None:
        """Wakes the call, from any thread, without a lock, seldom more than once; ``None``: the call never waits."""
        ...


W = TypeVar("W", bound=Wakeable)


def wake_all(woken: list[W], on_failure: Callable[[W], object]) -> None:
    """Wake all of *woken*, in order, and remove each from the list once it is woken.

    *on_failure* is called for a call that cannot be woken any more, as with a closed loop: its permit or turn goes
    on to the next. Control flow is raised again once all were woken.
    """
    while woken:
        waiting = woken[0]
        try:
            if waiting.wake is not None:
                waiting.wake()
        except Exception:  # noqa: BLE001  # the caller is gone
            del woken[0]
            on_failure(waiting)
        except BaseException:
            # Not the waiter's error: this thread was interrupted, perhaps before it woke the waiter.
            wake_all(woken, on_failure)
            raise
        else:
            del woken[0]
