"""``simulate``: the choices of a seed, the defects that it finds, and how a failure is shown and made smaller."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import faulttolerance
from faulttolerance import (
    BulkheadException,
    Future,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    retry,
    timeout,
)
from faulttolerance.testing import Simulation, SimulationFailed, VirtualTimeStalled, configured, simulate, virtual_time
from kit.tiers import few_and_many

Scenario = Callable[[Simulation], object]


class Account:
    """An account that loses an update where two callers come between reading and writing."""

    def __init__(self) -> None:
        self.balance = 0
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return "account"

    def add_slowly(self) -> None:
        before = self.balance
        faulttolerance.sleep(0.1)
        self.balance = before + 1

    def add(self) -> None:
        before = self.balance
        self.balance = before + 1

    def add_locked(self) -> None:
        with self.lock:
            before = self.balance
            self.balance = before + 1

    async def add_in_task(self) -> None:
        before = self.balance
        await asyncio.sleep(0)
        self.balance = before + 1


def adding(add: Callable[[Account], Any], callers: int = 4) -> Scenario:
    """Return a scenario in which each of *callers* callers adds one."""

    def scenario(sim: Simulation) -> None:
        account = Account()
        for _ in range(callers):
            sim.start(add.__get__(account))
        sim.join()
        assert account.balance == len(sim.callers)

    return scenario


def failure_of(scenario: Scenario, **options: Any) -> SimulationFailed:
    """Return the failure of *scenario*."""
    with pytest.raises(SimulationFailed) as caught:
        simulate(scenario, **options)
    return caught.value


def test_scenario_without_a_defect_passes_and_says_what_was_explored() -> None:
    """If nothing fails, the result says how many orders there were."""
    explored = simulate(adding(Account.add_locked), seeds=range(200), switch_in=[__name__])

    assert explored.seeds == 200
    assert explored.schedules > 10


def test_modules_that_callers_import_are_imported_without_switches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import holds a lock that the simulation does not know, also after another import or eval() in it.

    Later the functions of the module are switched as all are.
    """
    (tmp_path / "imported_late.py").write_text(
        "class Unit:\n    one = 1\n    two = 2\n"
        "def one():\n    unit = eval('Unit')\n    return unit.one\n"
        "first = one()\nsecond = one()\nthird = one()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def scenario(sim: Simulation) -> None:
        monkeypatch.delitem(sys.modules, "imported_late", raising=False)

        def call() -> int:
            return import_module("imported_late").one()  # type: ignore[no-any-return]

        for _ in range(4):
            sim.start(call)
        sim.join()

    assert simulate(scenario, seeds=range(50), switch_in=["imported_late"]).seeds == 50


@pytest.mark.parametrize("add", [Account.add_slowly, Account.add_in_task])
def test_lost_update_is_found_where_callers_wait(add: Callable[[Account], Any]) -> None:
    """Callers on threads and in tasks are switched where they wait."""
    failed = failure_of(adding(add))

    assert isinstance(failed.__cause__, AssertionError)
    assert failed.callers == 2


def test_lost_update_between_lines_is_found_in_chosen_modules() -> None:
    """Callers are switched between the lines of the modules that are named, and nowhere else."""
    simulate(adding(Account.add), seeds=range(50))
    failed = failure_of(adding(Account.add), switch_in=[__name__])

    assert failed.switches <= 2
    assert f"{__name__.rpartition('.')[2]}.py" in str(failed)


def test_variables_that_callers_share_keep_what_the_others_have_set() -> None:
    """A caller that is stopped between lines writes nothing back when it goes on."""

    def scenario(sim: Simulation) -> None:
        lock, total = threading.Lock(), 0

        def add() -> None:
            nonlocal total
            with lock:
                before = total
                total = before + 1

        for _ in range(3):
            sim.start(add)
        sim.join()
        assert total == len(sim.callers)

    simulate(scenario, seeds=range(100), switch_in=__name__)


def test_locks_that_one_statement_takes_block_nobody_for_ever() -> None:
    """In chosen modules a caller waits for all locks of a ``with``, on one line or on several."""

    def scenario(sim: Simulation) -> None:
        first, second = threading.Lock(), threading.Lock()
        by_name = {"second": second}

        def take_both() -> None:
            with first, second:
                faulttolerance.sleep(0.1)

        def take_both_on_lines() -> None:
            with (
                first,
                second as _,
            ):
                faulttolerance.sleep(0.1)

        def take_second() -> None:
            with second:
                faulttolerance.sleep(0.1)

        def take_by_name(name: str = "second") -> None:
            with by_name[name]:
                faulttolerance.sleep(0.1)

        class _Private:
            __lock = second

            def take(self) -> None:
                with self.__lock:
                    faulttolerance.sleep(0.1)

        for take in (take_both, take_both_on_lines, take_second, take_by_name, _Private().take):
            sim.start(take)

    explored = simulate(scenario, seeds=range(30), switch_in=__name__)

    assert explored.schedules > 1


def test_a_lock_that_is_taken_after_an_error_blocks_nobody_for_ever() -> None:
    """The interpreter has two copies of a ``finally``: one for the way with an error, one for that without."""

    def scenario(sim: Simulation) -> None:
        account = Account()

        def count(text: str) -> None:
            try:
                int(text)
            except ValueError:
                raise TypeError from None
            finally:
                with account.lock:
                    before = account.balance
                    account.balance = before + 1

        for text in ("x", "1", "x"):
            sim.start(count, text)
        sim.join()
        assert account.balance == len(sim.callers)

    simulate(scenario, seeds=range(100), switch_in=__name__, expected=TypeError)


def test_a_loop_without_end_is_given_up_and_leaves_its_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller of a chosen module may wait for another one in a loop, and is stopped anywhere in its ``with`` block."""
    lock, account = threading.Lock(), Account()

    def work() -> None:
        while not account.balance:
            with lock:
                repr(account)

    for points in range(20, 40):
        monkeypatch.setattr("faulttolerance.testing.schedule.MAX_POINTS", points)
        monkeypatch.setattr("faulttolerance.testing.simulated_run.MAX_POINTS", points)
        with pytest.raises(SimulationFailed, match=r"work #1 goes on and on at test_simulation\.py"):
            simulate(lambda sim: sim.start(work), seeds=range(20), switch_in=__name__)

        assert not lock.locked()


def test_failure_replays_and_is_the_same_each_time() -> None:
    """The seed alone gives the same small run again."""
    scenario = adding(Account.add)
    failed = failure_of(scenario, switch_in=[__name__])
    again = failure_of(scenario, switch_in=[__name__], seeds=[failed.seed])

    assert str(again) == str(failed)
    assert f"seeds=[{failed.seed!r}]" in str(failed)


def test_failure_in_the_plain_order_is_made_smaller() -> None:
    """A run without any switch is a run like any other: callers are left out of it."""

    def scenario(sim: Simulation) -> None:
        for _ in range(4):
            sim.start(int, "x")

    assert [failure_of(scenario, seeds=[seed]).callers for seed in range(20)] == [1] * 20


def test_caller_on_which_the_scenario_counts_is_not_left_out() -> None:
    """A failure is made smaller only if fewer callers would succeed one after the other."""

    def scenario(sim: Simulation) -> None:
        account = Account()
        for _ in range(3):
            sim.start(account.add_slowly)
        sim.join()
        assert account.balance == 3

    assert failure_of(scenario).callers == 3


def test_caller_on_which_a_task_counts_is_not_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The attempt without it is no failure of the scenario, and nothing is logged about it."""

    def scenario(sim: Simulation) -> None:
        first = sim.start(int)

        async def use() -> None:
            int(f"x{first.result()}")

        sim.start(use)

    assert failure_of(scenario).callers == 2
    assert not caplog.records


def test_invariant_is_checked_after_each_step() -> None:
    """A violation that lasts for a moment only is noticed."""

    def scenario(sim: Simulation) -> None:
        inside = 0

        def work() -> None:
            nonlocal inside
            inside += 1
            sim.sleep(1)
            inside -= 1

        sim.always(lambda: inside < 3, "never three at once")
        for _ in range(5):
            sim.start(work)

    failed = failure_of(scenario)

    assert "never three at once" in str(failed)
    assert failed.callers == 3


def test_invariant_that_raises_fails_the_seed() -> None:
    """An assertion in an invariant is as good as ``False``."""

    def scenario(sim: Simulation) -> None:
        def check() -> None:
            assert sim.now < 5, "too late"

        sim.always(check)
        sim.sleep(6)

    assert "too late" in str(failure_of(scenario))


def test_invariant_that_fails_as_pytest_fails_is_the_failure() -> None:
    """``pytest.fail`` raises no ``Exception``."""

    def scenario(sim: Simulation) -> None:
        sim.always(lambda: pytest.fail("too late") if sim.now >= 5 else None)
        sim.sleep(6)

    assert str(failure_of(scenario).__cause__) == "too late"


def test_an_exception_of_a_caller_fails_the_seed_unless_it_is_expected() -> None:
    """Refusals of the library are answers; other failures have to be named."""

    def scenario(sim: Simulation) -> None:
        sim.start(Full().ask, sim)
        sim.start(Full().ask, sim)

    class Full:
        @bulkhead(1)
        def ask(self, sim: Simulation) -> None:
            sim.sleep(1)
            raise KeyError("k")

    simulate(scenario, seeds=range(20), expected=KeyError)
    assert isinstance(failure_of(scenario).__cause__, KeyError)


def test_callers_give_results_and_failures() -> None:
    """A caller waits for another one by asking for its result."""

    class Shop:
        @bulkhead(1)
        def ask(self, sim: Simulation) -> int:
            sim.sleep(1)
            return 1

    def scenario(sim: Simulation) -> None:
        shop = Shop()
        first, second = sim.start(shop.ask, sim), sim.start(shop.ask, sim)
        outcomes = [first.exception() or first.result(), second.exception() or second.result()]
        assert 1 in outcomes
        assert any(isinstance(outcome, BulkheadException) for outcome in outcomes)
        assert sim.now == 1
        assert repr(first) == "<ask #1, over>"

    simulate(scenario, seeds=range(50))


@pytest.mark.parametrize("lines", [(), (__name__, "faulttolerance._strategy", "faulttolerance._call.attempt")])
@few_and_many("seeds", 6, 60)
def test_every_way_of_calling_shares_time_and_permits(lines: tuple[str, ...], seeds: int) -> None:
    """Threads, tasks and asynchronous calls go through guards at once, at most two bodies of each run, and all end."""

    class Shop:
        running: dict[str, int]

        def __init__(self) -> None:
            self.running = {"blocking": 0, "task": 0, "offloaded": 0}

        @retry(max_retries=3, delay=100, retry_on=BulkheadException)
        @bulkhead(2)
        def blocking(self, sim: Simulation) -> None:
            self.running["blocking"] += 1
            sim.sleep(sim.random.choice((0.1, 0.2)))
            self.running["blocking"] -= 1

        @timeout(250)
        @bulkhead(2, max_wait=100)
        async def task(self, sim: Simulation) -> None:
            self.running["task"] += 1
            try:
                await asyncio.sleep(sim.random.choice((0.1, 0.3)))
            finally:
                self.running["task"] -= 1

        @circuit_breaker(delay=100)
        @bulkhead(2, waiting_task_queue=2)
        @asynchronous
        def offloaded(self, sim: Simulation) -> Future[int]:
            self.running["offloaded"] += 1
            sim.sleep(sim.random.choice((0.1, 0.2)))
            self.running["offloaded"] -= 1
            return completed_future(1)

    def scenario(sim: Simulation) -> None:
        shop = Shop()
        sim.always(lambda: max(shop.running.values()) <= 2)
        for call in (shop.blocking, shop.task, shop.offloaded) * 3:
            sim.start(call, sim)
        sim.join()
        assert all(caller.done() for caller in sim.callers)
        assert not any(shop.running.values())

    explored = simulate(scenario, seeds=range(seeds), switch_in=lines)
    assert explored == simulate(scenario, seeds=range(seeds), switch_in=lines)
    assert explored.schedules > seeds - 10 if seeds > 20 else explored.schedules == seeds


def test_primitives_of_the_standard_library_wait_in_virtual_time() -> None:
    """Events, conditions, queues and futures are waited for as long as it takes, and time-outs pass at once."""

    def scenario(sim: Simulation) -> None:
        told, jobs, outcome = threading.Event(), queue.Queue[int](), concurrent.futures.Future[int]()

        def serve() -> None:
            assert not told.wait(timeout=3600)
            jobs.put(7)
            told.set()
            outcome.set_result(jobs.qsize())

        sim.start(serve)
        assert jobs.get() == 7
        told.wait()
        assert outcome.result() in (0, 1)
        assert sim.now == 3600

    simulate(scenario, seeds=range(30))


def test_executor_of_a_loop_is_simulated() -> None:
    """``asyncio.to_thread`` and ``asyncio.timeout`` are in virtual time."""

    def scenario(sim: Simulation) -> None:
        async def main() -> float:
            async with asyncio.timeout(3):
                await asyncio.to_thread(sim.sleep, 2)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await asyncio.to_thread(sim.sleep, 4)
            return sim.now

        assert sim.start(main).result() == 5

    simulate(scenario, seeds=range(20))


def test_deadlock_names_the_callers_that_wait_and_their_lines() -> None:
    """Two locks that are taken in different orders are found, and the place of each caller is told."""

    def scenario(sim: Simulation) -> None:
        one, two = threading.Lock(), threading.RLock()

        def take(first: Any, second: Any) -> None:
            with first:  # noqa: SIM117  # callers are stopped between the two
                with second:
                    pass

        sim.start(take, one, two)
        sim.start(take, two, one)

    failed = failure_of(scenario, switch_in=[__name__])

    assert "no caller can continue: take #1 waits at test_simulation.py" in str(failed)
    assert failed.switches == 1


@pytest.mark.parametrize("is_task", [False, True])
def test_caller_that_nobody_wakes_fails_the_seed(is_task: bool) -> None:
    """A lost wake-up is a failure by itself, on threads and in tasks."""

    def scenario(sim: Simulation) -> None:
        async def task() -> None:
            await asyncio.Event().wait()

        sim.start(task if is_task else threading.Event().wait)

    assert "no caller can continue" in str(failure_of(scenario))


def test_run_that_does_not_end_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on for ever is given up after many steps."""

    def scenario(sim: Simulation) -> None:
        def tick() -> None:
            while True:
                sim.sleep(1)

        sim.start(tick)

    monkeypatch.setattr("faulttolerance.testing.simulated_run._MAX_STEPS", 100)
    assert "does not end" in str(failure_of(scenario))


def test_caller_that_blocks_outside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of the application that is not simulated is no reason to hang."""
    monkeypatch.setattr("faulttolerance.testing.stall_detector._LONG_SECONDS", 0.1)
    monkeypatch.setattr("faulttolerance.testing.simulated_run._LAST_SECONDS", 0.1)

    def scenario(sim: Simulation) -> None:
        lock = threading.Lock()

        def work() -> None:
            with lock:
                sim.sleep(1)

        sim.start(work)
        sim.start(work)

    with pytest.raises(SimulationFailed, match="is not simulated") as caught:
        simulate(scenario, seeds=[0])
    assert isinstance(caught.value.__cause__, VirtualTimeStalled)


def test_seed_decides_random_numbers_whatever_the_order() -> None:
    """The numbers of a caller depend on the seed and the caller alone; jitter does too."""
    drawn: set[tuple[float, ...]] = set()

    def scenario(sim: Simulation) -> None:
        numbers: dict[int, float] = {}

        def draw(number: int) -> None:
            sim.sleep(1)
            numbers[number] = sim.random.random()

        for number in range(3):
            sim.start(draw, number)
        sim.join()
        drawn.add(tuple(numbers[number] for number in sorted(numbers)))

    for _ in range(2):
        simulate(scenario, seeds=[1, "two"])
    assert len(drawn) == 2


def test_callers_have_thread_local_values_of_their_own() -> None:
    """No caller sees what another caller, or one of an earlier seed, left on its thread."""
    local, seen = threading.local(), list[object]()

    def scenario(sim: Simulation) -> None:
        def leave_a_value() -> None:
            seen.append(getattr(local, "value", None))
            local.value = sim.now

        for _ in range(2):
            sim.start(leave_a_value)
            sim.join()

    simulate(scenario, seeds=range(3))
    assert seen == [None] * 6


def test_guards_begin_each_seed_afresh_and_keep_their_configuration() -> None:
    """Circuits and counts of the seed before are forgotten, and those of the simulation afterwards; keys stay."""

    class Shop:
        @bulkhead(5)
        @circuit_breaker(request_volume_threshold=2, delay="1h")
        def fail(self) -> None:
            raise OSError

    name = f"{Shop.__module__}.{Shop.__qualname__}/fail/Bulkhead/value"

    def scenario(sim: Simulation) -> None:
        for _ in range(2):
            with pytest.raises(OSError):
                Shop().fail()
        with pytest.raises(faulttolerance.CircuitBreakerOpenException):
            Shop().fail()
        (guard,) = (guard for guard in faulttolerance.guards() if guard.name.endswith("Shop.fail"))
        assert 3 in [getattr(policy, "value", None) for policy in guard.policies]

    with configured({name: 3}):
        simulate(scenario, seeds=range(3))
    with pytest.raises(OSError):
        Shop().fail()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scenario": 3}, r"simulate\(scenario\) is 3"),
        ({"scenario": Account.add_in_task}, "no coroutine function"),
        ({"seeds": 1000}, r"simulate\(seeds\) is 1000; allowed: several seeds"),
        ({"switch_in": 3}, r"simulate\(switch_in\) contains 3"),
        ({"switch_in": None}, r"simulate\(switch_in\) contains None"),
        ({"expected": "OSError"}, "an exception class"),
    ],
)
def test_bad_arguments_are_definition_errors(arguments: dict[str, Any], words: str) -> None:
    """Each error says what is allowed."""
    with pytest.raises(faulttolerance.FaultToleranceDefinitionException, match=words):
        simulate(**{"scenario": adding(Account.add_locked), **arguments})


def test_a_name_of_no_module_is_an_error_of_its_import() -> None:
    """It would silently switch nowhere."""
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        simulate(adding(Account.add_locked), switch_in="no_such_module")


def test_a_single_module_may_stand_for_itself() -> None:
    """A name is not taken for a sequence of letters."""
    assert failure_of(adding(Account.add), switch_in=__name__).callers == 2


def test_invariant_that_waits_is_refused() -> None:
    """An invariant is checked in the middle of the run, and may only read."""

    def scenario(sim: Simulation) -> None:
        sim.always(lambda: sim.sleep(1))
        sim.sleep(1)

    assert "it may only read" in str(failure_of(scenario))


def test_loop_that_is_not_simulated_is_refused() -> None:
    """A guarded coroutine under ``asyncio.run`` says so, instead of taking real time."""

    @retry(max_retries=1, delay="1m", retry_on=OSError)
    async def fetch() -> None:
        pytest.fail("it ran")

    assert "start the coroutine by sim.start(...)" in str(failure_of(lambda sim: asyncio.run(fetch())))


def test_the_process_has_a_single_clock() -> None:
    """There is no second simulation within ``virtual_time()``, and none within a simulation."""
    with virtual_time(), pytest.raises(RuntimeError, match="one clock"):
        simulate(lambda sim: None, seeds=[1])
    assert isinstance(failure_of(lambda sim: simulate(lambda sim: None)).__cause__, RuntimeError)


def test_nothing_is_left_behind_by_failures() -> None:
    """After a failure the time of the system is in use, threads are gone, and the next simulation succeeds."""
    before = threading.active_count()
    failure_of(adding(Account.add_slowly))
    failure_of(lambda sim: sim.start(threading.Event().wait))

    simulate(adding(Account.add_locked), seeds=range(20))
    faulttolerance.sleep(0)
    assert threading.active_count() <= before
    assert threading.Condition.wait.__module__ == "threading"
