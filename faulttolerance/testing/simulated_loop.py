"""The event loop of a simulated run: no input, the run's time, and tasks in the order of the schedule."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any

from .simulated_run import SimulatedRun
from .simulated_threads import Due
from .thread_observer import place_of
from .virtual_loop import VirtualLoop
from .waiter import settle


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop in a thread of its own. Functions in its executors run in simulated threads, too."""

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _clock_resolution = VirtualLoop._clock_resolution

    def __init__(self, run: SimulatedRun) -> None:
        super().__init__()
        self._run = run
        self._selector = self
        self._ready = _Ready(self, run)
        self._wait: Due | None = None
        self._tasks_begun = 0
        self._tasks: list[asyncio.Task[Any]] = []
        """The tasks that were created; those at the end that are over are removed when somebody looks."""
        self.set_debug(False)
        run.start_thread("loop", self.run_forever).loop = self
        run.alive -= 1
        run.loops.append(self)

    def time(self) -> float:
        """Return the seconds of the run."""
        return self._run.now

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until something is ready or *timeout* is over; there is no input."""
        if (timeout is None or timeout > 0) and not self._stopping:
            wait = self._wait = self._run.new_wait()
            try:
                self._run.wait(wait, math.inf if timeout is None else self._run.now + timeout)
            finally:
                self._wait = None
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        if self._wait is not None:
            self._wait.fire()

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        """Create a task; its name does not depend on earlier runs."""
        if options.get("name") is None:
            self._tasks_begun += 1
            options["name"] = f"task {self._tasks_begun}"
        task = super().create_task(coro, **options)
        self._tasks.append(task)
        return task

    def begin_task(self, coroutine: Coroutine[Any, Any, Any], name: str, ended: Callable[[Any], None]) -> None:
        """Start a task, from any thread; *ended* is called with it when it is over."""
        context = copy_context()

        def begin() -> None:
            self.create_task(coroutine, name=name, context=context).add_done_callback(ended)

        self.call_soon_threadsafe(begin)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a thread of its own, whatever the executor."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # a cancelled call goes on
        work = partial(settle, future, partial(func, *args))
        self._run.start_thread(self._run.name_for("executor"), work)
        return asyncio.wrap_future(future, loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error beside the callers, unless the run was given up, which causes such errors."""
        if not self._run.is_abandoned:
            super().call_exception_handler(context)

    def current_name(self) -> str:
        """Return the name of the task that runs; empty between tasks."""
        task = asyncio.current_task(self)
        return "" if task is None else task.get_name()

    def is_busy(self) -> bool:
        """Return whether a task is not over."""
        while self._tasks and self._tasks[-1].done():
            self._tasks.pop()
        return bool(self._ready or self._tasks)

    def waiting_tasks(self) -> Iterator[str]:
        """Yield a line for each task that waits, with its place, for people."""
        for task in sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name):
            yield f"{task.get_name()} waits {place_of(next(iter(task.get_stack(limit=1)), None))}"

    def discard(self) -> None:
        """Close the loop, of which nothing runs any more."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._ready.clear()
        if not self.is_running():
            self.close()


class _Ready(deque[asyncio.Handle]):
    """The handles that a loop is to call: tasks in the order of the schedule, all others in the order of arrival."""

    def __init__(self, loop: SimulatedLoop, run: SimulatedRun) -> None:
        super().__init__()
        self._loop = loop
        self._run = run

    def popleft(self) -> asyncio.Handle:
        run = self._run
        if run.is_over or run.is_abandoned:
            return super().popleft()
        run.step()
        handles = [handle for handle in self if _steps_task(handle)]
        if len(handles) < 2 or handles[0] is not self[0] or run.failure is not None:
            return super().popleft()
        names = [_task_of(handle).get_name() for handle in handles]
        run.current.points += 1
        chosen = handles[run.schedule.choose(run.current.name, run.current.points, names, 0)]
        self.remove(chosen)
        run.record(f"{_task_of(chosen).get_name()} goes on, of the tasks {', '.join(names)}")
        return chosen


def _task_of(handle: asyncio.Handle) -> Any:
    return getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]


def _steps_task(handle: asyncio.Handle) -> bool:
    return not handle.cancelled() and isinstance(_task_of(handle), asyncio.Task)
