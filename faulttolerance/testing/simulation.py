"""Many concurrent callers in virtual time, one at a time, in an order that a seed chooses: ``simulate``."""

from __future__ import annotations

import asyncio
import gc
import inspect
import random
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import copy_context
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar

from .._control.configure import forget_state
from .._deadline.interruption import sleep
from .._shown import one_or_several, shown
from ..exceptions import Fault, FaultToleranceDefinitionException, FaultToleranceException, raise_faults
from .active_clock import exclusive_clock
from .line_tracer import LineTracer
from .schedule import Plan, Switches
from .simulated_clock import SimulatedClock, in_use
from .simulated_run import START_TIME, SimulatedRun
from .waiter import VirtualTimeStalled, settle

T = TypeVar("T")

_SEEDS_PER_COLLECTION: Final = 50
"""The number of seeds after which garbage is collected."""
_DRAWS: Final = 40
"""The number of orders that are tried for a failure with fewer callers."""


class Explored(NamedTuple):
    """The extent of a ``simulate`` without a failure."""

    seeds: int
    schedules: int
    """The number of different orders; 1: no caller could ever have been stopped, or overtaken."""
    steps: int


class SimulationFailed(AssertionError):
    """A seed for which the scenario fails; its cause is the failure, its text how the failure came about.

    ``simulate(scenario, seeds=[seed])`` replays the run of ``seed``; ``schedule`` has the lines of the smallest run
    that was found, ``callers`` and ``switches`` its size.
    """

    def __init__(self, seed: object, schedule: list[str], callers: int, switches: int, reason: str) -> None:
        super().__init__(seed, schedule, callers, switches, reason)
        self.seed = seed
        self.schedule = schedule
        self.callers = callers
        self.switches = switches
        self._reason = reason

    def __str__(self) -> str:
        return "\n  ".join(
            [
                f"seed {self.seed!r} fails: {self._reason}",
                f"the smallest run found: {self.callers} callers, {self.switches} switches out of the plain order",
                *self.schedule,
                f"replay it by simulate(..., seeds=[{self.seed!r}])",
            ]
        )


class Caller(Future[T]):
    """A caller that ``Simulation.start`` started, and the future of its outcome."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}, {'over' if self.done() else 'under way'}>"

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the caller has ended; return its exception, or ``None`` where it returned."""
        error = super().exception(timeout)
        if isinstance(error, _LeftOut):
            raise error
        return error


class _LeftOut(BaseException):
    """The signal that the scenario uses a caller that was left out, and so needs it."""


class Simulation:
    """The argument of a scenario: it starts callers and states invariants."""

    def __init__(self, run: SimulatedRun, clock: SimulatedClock, expected: tuple[type[BaseException], ...]) -> None:
        self._run = run
        self._clock = clock
        self._expected = expected
        self._started = 0
        self.callers: list[Caller[Any]] = []
        """The callers that were started; where a failure is made smaller, some are left out."""

    def __repr__(self) -> str:
        return f"<Simulation of seed {self._run.plan.seed!r}, {len(self.callers)} callers>"

    @property
    def random(self) -> random.Random:
        """The random numbers of the current caller: they depend on the seed, and not on the order."""
        return self._run.random_numbers()

    @property
    def now(self) -> float:
        """The seconds since the scenario began."""
        return self._run.now - START_TIME

    def start(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Caller[Any]:
        """Start a call of *function* beside all others: on a thread of its own; a coroutine function as a task.

        A call that returns a future of ``concurrent.futures`` or a coroutine ends when its future or coroutine does.
        """
        run, number = self._run, self._started + 1
        self._started = number
        what = getattr(function, "__name__", type(function).__name__)
        caller: Caller[Any] = Caller(f"{what} #{number}")
        if number in run.plan.without:
            caller.set_exception(_LeftOut())
            return caller
        self.callers.append(caller)
        caller.add_done_callback(self._judge)
        if inspect.iscoroutinefunction(function):
            self._await(caller, function(*args, **kwargs))
        else:
            context = copy_context()
            run.start_thread(caller.name, lambda: context.run(self._call, caller, function, args, kwargs))
        if run.plan.is_serial:
            self.join()
        run.switch_point()
        return caller

    def sleep(self, seconds: float) -> None:
        """Wait for *seconds* on the calling thread; tasks await ``asyncio.sleep``."""
        sleep(seconds)

    def join(self) -> None:
        """Wait until all callers have ended, and the work that they left behind."""
        run = self._run
        run.joining_callers += 1
        run.wait_until(run.are_alone)
        run.joining_callers -= 1

    def always(self, invariant: Callable[[], object], what: str = "") -> None:
        """Call *invariant* after each step from now on; the seed fails if it returns ``False`` or raises.

        Args:
            invariant: A function that looks, and waits for nothing.
            what: A description for the message.
        """
        self._run.checks.append((invariant, what or getattr(invariant, "__name__", "") or "an invariant"))

    def _call(self, caller: Caller[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        try:
            result = function(*args, **kwargs)
            if isinstance(result, Coroutine):
                self._await(caller, result)
                return
            if isinstance(result, Future):
                result = result.result()
        except BaseException as error:  # noqa: BLE001  # it is the caller's
            caller.set_exception(error)
        else:
            caller.set_result(result)

    def _await(self, caller: Caller[Any], coroutine: Coroutine[Any, Any, Any]) -> None:
        self._clock.loop().begin_task(coroutine, caller.name, lambda task: settle(caller, task.result))

    def _judge(self, caller: Future[Any]) -> None:
        error = Future.exception(caller)  # also that of a caller that needs one that was left out
        is_answer = isinstance(error, (asyncio.CancelledError, CancelledError, *self._expected))
        if error is not None and (not is_answer or isinstance(error, FaultToleranceDefinitionException)):
            self._run.fail(error)


class _Simulator:
    def __init__(
        self,
        scenario: Callable[[Simulation], object],
        modules: Iterable[ModuleType],
        expected: tuple[type[BaseException], ...],
    ) -> None:
        self.clock = SimulatedClock()
        self._scenario = scenario
        self._expected = expected
        self._tracer = LineTracer(modules)
        self._trace = self._tracer.trace

    def run(self, plan: Plan, records_history: bool = False) -> SimulatedRun:
        run = SimulatedRun(plan, self._trace, records_history)
        self._tracer.at_line = run.at_line
        self.clock.run = run
        sim = Simulation(run, self.clock, self._expected)
        forget_state()
        random.seed(f"{plan.seed!r}")
        context = copy_context()
        run.run_scenario(lambda: context.run(self._scenario, sim))
        self.callers, self.started = len(sim.callers), sim._started
        self.clock.run = None
        return run

    # Making a failure smaller

    def shrink(self, run: SimulatedRun) -> tuple[Plan, bool]:
        """Return the smallest plan found that fails as *run* does, and whether it replays."""
        reason = _kind(run.failure)
        plan = run.plan._replace(switches=dict(run.schedule.switches))
        if self._fails(plan, reason) is None:
            return run.plan, _kind(self.run(run.plan).failure) == reason
        is_of_order = self.run(Plan(plan.seed, is_serial=True)).failure is None
        for number in range(self.started, 0, -1):
            plan = self._without(plan, number, reason, is_of_order) or plan
        return self._with_fewer_switches(plan, reason), True

    def _fails(self, plan: Plan, reason: str) -> Switches | None:
        run = self.run(plan)
        return run.schedule.switches if _kind(run.failure) == reason else None

    def _without(self, plan: Plan, number: int, reason: str, is_of_order: bool) -> Plan | None:
        fewer = plan._replace(without=plan.without | {number})
        if is_of_order and self.run(fewer._replace(switches=None, is_serial=True)).failure is not None:
            return None  # it counts on that caller
        for draw in range(_DRAWS):
            tried = fewer if not draw else fewer._replace(switches=None, draw=draw)
            switches = self._fails(tried, reason)
            if switches is not None:
                return fewer._replace(switches=dict(switches), draw=0)
        return None

    def _with_fewer_switches(self, plan: Plan, reason: str) -> Plan:
        switches = list((plan.switches or {}).items())
        size = len(switches)
        while size:
            begin = 0
            while begin < len(switches):
                tried = plan._replace(switches=dict(switches[:begin] + switches[begin + size :]))
                made = self._fails(tried, reason)
                if made is not None and len(made) < len(switches):
                    switches = list(made.items())
                else:
                    begin += size
            size //= 2
        return plan._replace(switches=dict(switches))


def _kind(failure: BaseException | None) -> str:
    """Return the kind of failure, without numbers and names that differ where fewer callers are there."""
    if failure is None:
        return ""
    trace = failure.__traceback__
    if trace is None or isinstance(failure, VirtualTimeStalled):
        return f"{type(failure).__name__} {str(failure).partition(',')[0][:18]}"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{type(failure).__name__} at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def simulate(
    scenario: Callable[[Simulation], object],
    seeds: Iterable[Hashable] = range(1000),
    *,
    switch_in: Iterable[ModuleType | str] | ModuleType | str = (),
    expected: type[BaseException] | tuple[type[BaseException], ...] = (),
) -> Explored:
    """Run *scenario* once for each seed: its callers take turns in an order that the seed chooses, in virtual time.

    Before each seed all guards drop their counts and permits; their configuration stays.

    Args:
        scenario: A function of one argument, a ``Simulation``, with which it starts callers and states invariants.
        seeds: Numbers or texts; a seed stands for one order and one row of random numbers, also in later runs.
        switch_in: Modules or packages, or their names, between whose lines callers are stopped, too. By default callers
            are stopped only where they wait, and where an attempt begins and ends.
        expected: The exceptions by which callers may end, besides those of this library; any other fails the seed.

    Returns:
        The numbers of seeds, orders and steps.

    Raises:
        SimulationFailed: For the first seed that fails, with the smallest run that was found.
        FaultToleranceDefinitionException: If an argument is none of these.
        ModuleNotFoundError: There is no module of that name.
        RuntimeError: Another clock is in use, of ``virtual_time()`` say.
    """
    expected = expected if isinstance(expected, tuple) else (expected,)
    modules = [import_module(module) if isinstance(module, str) else module for module in one_or_several(switch_in)]
    raise_faults(_faults(scenario, seeds, modules, expected))
    simulator = _Simulator(scenario, modules, (FaultToleranceException, *expected))
    seen, number, steps = set(), 0, 0
    with exclusive_clock(), in_use(simulator.clock), _undisturbed():
        for seed in seeds:
            run = simulator.run(Plan(seed))
            number += 1
            steps += run.steps
            if not number % _SEEDS_PER_COLLECTION:
                gc.collect(1)
            if run.failure is not None:
                raise _simulation_failed(simulator, run)
            seen.add(hash(tuple(run.schedule.switches.items())))
    return Explored(number, len(seen), steps)


def _faults(scenario: object, seeds: object, modules: Iterable[object], expected: Iterable[object]) -> Iterator[Fault]:
    if not callable(scenario) or inspect.iscoroutinefunction(scenario):
        allowed = "a function of one argument, and no coroutine function; sim.start starts those"
        yield Fault("simulate(scenario)", f"is {shown(scenario)}", scenario, allowed)
    if not isinstance(seeds, Iterable) or isinstance(seeds, (str, bytes)):
        yield Fault("simulate(seeds)", f"is {shown(seeds)}", seeds, "several seeds, such as range(1000) or [17]")
    for module in modules:
        if not isinstance(module, ModuleType):
            yield Fault("simulate(switch_in)", f"contains {shown(module)}", module, "modules, or names of modules")
    for kind in expected:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            yield Fault("simulate(expected)", f"contains {shown(kind)}", kind, "an exception class, or a tuple of them")


def _simulation_failed(simulator: _Simulator, run: SimulatedRun) -> SimulationFailed:
    plan, replays = simulator.shrink(run) if not run.is_stuck else (run.plan, True)  # each would take a second
    last = simulator.run(plan, records_history=True)
    cause = last.failure or run.failure
    reason = f"{type(cause).__name__}: {cause}"
    if not replays or last.failure is None:
        reason += " (it does not replay: the scenario depends on more than its seed)"
    failed = SimulationFailed(plan.seed, last.history or [], simulator.callers, len(last.schedule.switches), reason)
    failed.__cause__ = cause
    return failed


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Exclude all that would make runs differ: the process' own chance, and finalizers that come at any time."""
    chance, collects = random.getstate(), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        random.setstate(chance)
        forget_state()
