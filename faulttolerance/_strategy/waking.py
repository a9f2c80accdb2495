"""Wake-ups of waiting calls, each of them whatever happens: a lost wake-up is a call that never ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def wake_all(woken: list[T], on_failure: Callable[[T], object]) -> None:
    """Call ``wake`` of all of *woken*, in order, and remove each from the list once it is woken.

    *on_failure* is called for a call that cannot be woken any more, as with a closed loop: its permit or turn goes
    on to the next. Control flow is raised again once all were woken.
    """
    while woken:
        waiting: Any = woken[0]
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
