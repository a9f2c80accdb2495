"""The threads of a simulated run, their waits, and where they stand."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .simulated_loop import SimulatedLoop
    from .simulated_run import SimulatedRun


class SimulatedThread:
    """A part of the run that goes on by itself: a caller, a timer's callback, a job of the pool, a loop."""

    ident = 0
    may_go: Callable[[], bool] | None = None
    """Returns whether it can go on; ``None``: it can whenever it is ready."""
    loop: SimulatedLoop | None = None
    is_over = False
    is_unwound = False

    def __init__(self, run: SimulatedRun, name: str, work: Callable[[], object]) -> None:
        self.run = run
        self.name = name
        self.work = work
        self.points = 0
        """The number of points so far at which it could have been stopped."""
        self.next_stop = run.schedule.next_stop(name, 0)
        self.gate = threading.Lock()
        self.gate.acquire()
        self.system_thread = threading.Thread(target=self._serve, name="simulated", daemon=True)
        self.system_thread.start()

    def _serve(self) -> None:
        run = self.run
        self.gate.acquire()
        self.ident = threading.get_ident()
        if run.trace is not None:
            sys.settrace(run.trace)
        try:
            if not run.is_abandoned:
                Context().run(self.work)
        except BaseException as error:  # noqa: BLE001  # nobody else is on this thread
            run.fail(error)
        finally:
            del self.work  # while it has the turn: finalizers are the program's, too
            run.end(self)


class Due:
    """An event that is due at a moment, such as the end of a wait, unless it comes before or is cancelled."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    @property
    def is_over(self) -> bool:
        """Whether it has come or was cancelled."""
        return self._act is None

    def fire(self) -> None:
        """Trigger the event; a second call does nothing."""
        act, self._act = self._act, None
        if act is not None:
            act()

    release = fire
    """The name under which ``threading.Condition`` calls it."""

    def cancel(self) -> None:
        """Drop the event if it has not come."""
        self._act = None
