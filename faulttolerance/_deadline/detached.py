"""Deadlines of ``deadline`` and the calls that run detached from whoever made them under one (rule D4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from .._platform.loop_callback import while_alive
from .clock import clock
from .task import EXPIRED, TaskDeadline, current, nearest_ruling, standing

if TYPE_CHECKING:
    from ..typing import Timer


class RulingWatch:
    """Ends a detached call at the nearest of the deadlines under which it was made.

    Args:
        deadline: The innermost of them.
        call_later: Runs a short callback after so many seconds.
        end: Ends the call.
        task: The task that runs the call, whose own deadlines end it without this.
    """

    __slots__ = ("__weakref__", "_call_later", "_deadline", "_end", "_task", "_timer")

    def __init__(
        self,
        deadline: TaskDeadline,
        call_later: Callable[[float, Callable[[], object]], Timer],
        end: Callable[[], object],
        task: object = None,
    ) -> None:
        self._deadline = deadline
        self._call_later = call_later
        self._end: Callable[[], object] | None = end
        self._task = task
        self._timer: Timer | None = None

    def look(self) -> None:
        """End the call, if the nearest one that rules has passed; else look again when it does."""
        end, nearest = self._end, nearest_ruling(self._deadline, self._task)
        if end is None or nearest is None:
            return
        seconds = nearest.when - clock.monotonic()
        if seconds <= 0.0:
            self.cancel()
            end()
        else:
            self._timer = self._call_later(seconds, partial(while_alive, ref(self), RulingWatch.look))

    def cancel(self) -> None:
        """Look no more."""
        self._end = None
        if self._timer is not None:
            self._timer.cancel()


class CallDeadline(TaskDeadline):
    """The deadline of an offloaded call, which no loop watches."""

    __slots__ = ("__weakref__", "_ends", "_timer")

    _ends: list[Callable[[TaskDeadline], object]]
    """Ends what the call waits for, as long as it is watched."""
    _timer: Timer

    def watch(self, end: Callable[[TaskDeadline], object]) -> Self:
        """Have *end* called when it passes."""
        self._ends = [end]
        self._timer = clock.call_at(self.when, partial(while_alive, ref(self), CallDeadline.expire))
        return self

    def cancel(self) -> None:
        """Watch it no more."""
        self._timer.cancel()
        self._ends.clear()  # which refers to the call

    def expire(self) -> None:
        """End what the call waits for; an ``uninterruptible`` block holds back its body, and not the call."""
        if self.counts is self:
            self.state = EXPIRED
            for end in [*self._ends]:
                end(self)


_NO_QUEUE: Any = SimpleNamespace(ident=0, loop=None, pending={})
"""Stands for the queue of a deadline that no loop watches; nothing is ever stored in it."""


def begin_call_deadline(seconds: float, when: float, what: str) -> CallDeadline:
    """Begin the deadline of an offloaded call, which passes at *when*."""
    deadline = CallDeadline()
    deadline.start(when, standing(current.get()))
    deadline.queue = _NO_QUEUE
    deadline.rule()
    current.set(deadline)
    return deadline
