"""C3: one configuration holds for every guard, through any interruption of `configure`, `reload` and first calls.

A model keeps the number that was configured last. The behaviour of every guard shows the number that it follows;
`explain` and `guards()` report it, too; all have to agree.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pydantic_settings")

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    TimeoutException,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    configure,
    explain,
    guards,
    reload,
    retry,
    testing,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, Retry, RetryBudget, Timeout
from kit.program import ALONE, python
from kit.struck import Strike, Struck, sampled
from kit.tiers import few_and_many

# A reload is struck at each of many places in turn; that takes a while where the machine does other things too.
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("alone")]

HERE = __name__


class World:
    """Guards of all kinds, and the number that is configured: attempts, permits and failures that open a circuit."""

    def __init__(self) -> None:
        gc.collect()  # guards of former worlds stand in cycles, and each look at all guards would look at them, too
        self.number = 1
        self.calls = 0
        world = self

        @retry(delay=0, jitter=0)
        class Covered:
            def call(self) -> None:
                world.fail()

        class Derived(Covered):
            pass

        class Stateful:
            @bulkhead
            def limited(self, body: Callable[[], object]) -> None:
                body()

            @circuit_breaker(failure_ratio=1.0)
            def broken(self) -> None:
                world.fail()

        @retry(delay=0, jitter=0)
        def function() -> None:
            world.fail()

        self.covered, self.derived, self.function, self.stateful = Covered(), Derived(), function, Stateful()
        self.retrying = Guard(retry=Retry(delay=0, jitter=0))
        self.limiting = Guard(bulkhead=Bulkhead())
        self.breaking = Guard(circuit_breaker=CircuitBreaker(failure_ratio=1.0))
        self.decorated = self.retrying(lambda: world.fail())
        self.shown = [Covered.call, function, Stateful.limited, Stateful.broken]
        self.shown += [self.retrying, self.limiting, self.breaking]

    def fail(self) -> None:
        self.calls += 1
        raise OSError

    def source(self) -> dict[str, Any]:
        """Return the configuration of the number."""
        return values_of(self.number)

    def begin(self) -> None:
        """Configure all guards, and use each of them."""
        configure(sources=[self.source])
        assert self.followed() == {self.number}

    # The number that is followed

    def followed(self) -> set[object]:
        """Return every number that any guard follows or is said to follow."""
        return {*self.done(), *self.said()}

    def done(self) -> Iterator[int]:
        """Yield the number that each guard follows, by its behaviour."""
        yield self.attempts(self.covered.call)
        yield self.attempts(self.derived.call)
        yield self.attempts(self.function)
        yield self.attempts(self.decorated)
        yield self.attempts(lambda: self.retrying.call(self.fail))
        yield self.attempts(lambda: asyncio.run(self.retrying.call_async(self.fail_async)))
        yield permits(self.stateful.limited)
        yield permits(self.limiting.call)
        yield self.failures(self.stateful.broken)
        yield self.failures(lambda: self.breaking.call(self.fail))

    def said(self) -> Iterator[object]:
        """Yield the number that each guard is said to follow."""
        for one in guards():
            if one.method in self.shown:
                yield from (value for name, (value, _) in one.values.items() if name in KEYS)
        for guarded in self.shown:
            for line in explain(guarded).splitlines():
                name, _, rest = line.strip().partition(" = ")
                if name in [key.partition("/")[2] for key in KEYS]:
                    yield int(rest.split()[0])

    def attempts(self, call: Callable[[], object]) -> int:
        self.calls = 0
        with pytest.raises(OSError):
            call()
        return self.calls - 1

    async def fail_async(self) -> None:
        self.fail()

    def failures(self, call: Callable[[], object]) -> int:
        circuit_breakers.reset_all()
        self.calls = 0
        while True:
            try:
                call()
            except CircuitBreakerOpenException:
                break
            except OSError:
                pass
        circuit_breakers.reset_all()
        return self.calls


def permits(call: Callable[[Callable[[], object]], object]) -> int:
    """Return how many calls may be inside one another."""
    count = 0

    def body() -> None:
        nonlocal count
        count += 1
        try:
            call(body)
        except BulkheadException:
            pass

    body()
    return count - 1


KEYS = ("Retry/maxRetries", "Bulkhead/value", "CircuitBreaker/requestVolumeThreshold")


def values_of(number: int) -> dict[str, Any]:
    return dict.fromkeys(KEYS, number)


@pytest.fixture
def world() -> World:
    found = World()
    found.begin()
    return found


def places(*found: tuple[tuple[str, ...], int, int]) -> pytest.MarkDecorator:
    """Return parameters: files of the library, and the step between the places in them at which a handler runs.

    Args:
        found: Files, and two numbers: of the tier default, and of the tier *stress*.
    """
    some = [pytest.param(files, step) for files, step, _ in found]
    many = [pytest.param(files, step, marks=pytest.mark.stress) for files, _, step in found]
    return pytest.mark.parametrize(("files", "step"), some + many)


in_a_reload = places(
    (("transaction.py",), 101, 11),
    (("_platform/swap.py", "registry.py"), 211, 17),
    (("_call/state.py", "circuit_breaker.py", "bulkhead.py"), 211, 17),
    (("settings.py", "resolver.py"), 997, 97),
    ((), 7993, 1499),
)
in_a_first_call = places((("_platform/swap.py", "resolver.py"), 499, 59), ((), 9973, 1999))


# An exception, wherever it lands


@in_a_reload
def test_an_exception_in_the_middle_leaves_all_old_or_all_new(files: tuple[str, ...], step: int) -> None:
    """A deadline or a handler may raise it; the next reload makes all new."""
    world = World()
    world.begin()
    before = world.number
    outcomes = set()
    number = 1
    while True:
        world.number = before + 1
        strike = Strike(number, *files)
        try:
            with strike:
                reload()
        except Struck:
            pass
        (found,) = world.followed()
        assert found in (before, world.number), strike.where
        outcomes.add(found == world.number)
        reload()
        assert world.followed() == {world.number}, strike.where
        if not strike.where:
            break
        before, number = 1 + world.number % 3, number + step
        world.number = before
        reload()

    assert outcomes == {True, False}


@in_a_first_call
def test_an_exception_in_a_first_call_leaves_a_guard_that_follows(files: tuple[str, ...], step: int) -> None:
    """A half-made guard is not seen; a reload reaches a complete one."""
    number = 1
    while True:
        testing.reset()
        world = World()
        configure(sources=[world.source])
        strike = Strike(number, *files)
        try:
            with strike:
                set(world.done())
        except Struck:
            pass
        assert world.followed() == {world.number}, strike.where
        world.number = 2
        reload()
        assert world.followed() == {2}, strike.where
        if not strike.where:
            break
        number += step


@sampled(4)
def test_a_deadline_around_a_reload_leaves_all_old_or_all_new(step: int) -> None:
    """An administrator's request has a time-out."""
    world = World()
    world.begin()
    others = [World() for _ in range(10)]
    for other in others:
        other.number = 1
        assert set(other.done()) == {1}

    for number in range(2, 12, step):
        world.number = number % 5 + 1
        try:
            Guard(timeout=Timeout(number)).call(reload)
        except TimeoutException:
            pass
        found = {*world.followed()}.union(*(other.done() for other in others))
        assert len(found) == 1


# A signal's handler, wherever it is run


@in_a_reload
def test_a_reload_in_the_middle_of_another_is_not_undone(files: tuple[str, ...], step: int, world: World) -> None:
    """A second signal comes while the first is served: the values that the second has read hold."""

    def handle() -> None:
        world.number = later
        reload()

    number = 1
    while True:
        world.number = number % 3 + 1
        later = (number + 1) % 3 + 1
        strike = Strike(number, *files, handle=handle)
        with strike:
            reload()
        assert world.followed() == {world.number}, strike.where
        if not strike.where:
            break
        assert world.number == later
        number += step


@in_a_first_call
def test_a_first_call_does_not_bring_back_values_that_a_reload_in_its_middle_replaced(
    files: tuple[str, ...], step: int
) -> None:
    """Its draft was made before the handler ran, and is made again."""
    number = 1
    while True:
        testing.reset()
        world = World()
        configure(sources=[world.source])

        def handle(world: World = world) -> None:
            world.number = 2
            reload()

        strike = Strike(number, *files, handle=handle)
        with strike:
            set(world.done())
        assert world.followed() == {world.number}, strike.where
        if not strike.where:
            break
        number += step


@sampled(53, 7)
def test_a_reload_in_the_middle_of_a_first_call_is_no_clash_of_names(step: int) -> None:
    """Rule B1: guards that share a budget follow a reload together, also one that was on its way into force."""
    number = 1
    while True:
        configure(properties={})
        budget = RetryBudget(0.2, 20, f"shared {number}")
        one, other = (Guard(Retry(), budget) for _ in range(2))
        one.call(lambda: None)
        strike = Strike(
            number, "resolver.py", "registry.py", handle=lambda: configure(properties={"RetryBudget/burst": 1})
        )
        with strike:
            other.call(lambda: None)
        if not strike.where:
            break
        number += step


@sampled(97, 5)
def test_a_handler_in_the_middle_sees_all_old_or_all_new(world: World, step: int) -> None:
    """Also a handler that only calls guards: a reload takes effect in one step."""
    before = world.number

    def handle() -> None:
        # Circuits, permits and windows take their values once the step is done, before `reload` returns.
        (found,) = {*world.said(), world.attempts(world.covered.call), world.attempts(world.function)}
        assert found in (before, world.number)

    number = 1
    while True:
        world.number = before % 3 + 1
        strike = Strike(number, "transaction.py", "_platform/swap.py", "_call/state.py", handle=handle)
        with strike:
            reload()
        if not strike.where:
            break
        before, number = world.number, number + step


@pytest.mark.parametrize(
    "number", [pytest.param(one, marks=[pytest.mark.stress] * (one % 5 > 0)) for one in range(1, 260, 13)]
)
def test_a_guard_that_a_handler_calls_for_the_first_time_follows_as_well(number: int, world: World) -> None:
    """It was not in use when the reload looked."""
    other = World()
    world.number = 2
    strike = Strike(number, "transaction.py", handle=lambda: set(other.done()))

    with strike:
        reload()

    assert world.followed() | set(other.done()) == {2}, strike.where


# Code of the application that comes back


def test_a_source_may_call_guards_for_the_first_time_and_configure(world: World) -> None:
    """It is code of the application like any other; the values that it configures hold as well."""
    other = World()
    seen = []

    def source() -> dict[str, Any]:
        if not seen:
            seen.append(set(other.done()))
            configure(properties={"Timeout/value": 7})
        return values_of(2)

    configure(sources=[source])

    assert seen == [{1}]
    assert world.followed() == other.followed() == {2}
    guarded = Guard(timeout=Timeout(5000))
    assert "value = 7ms " in explain(guarded)


def test_a_module_that_a_value_names_may_call_guards_and_configure(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is imported while the configuration is prepared."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "c3_named.py").write_text(
        textwrap.dedent("""
            import faulttolerance as ft

            class Busy(OSError):
                pass

            @ft.retry(max_retries=0)
            def first():
                return "served"

            assert first() == "served"
            ft.configure(properties={"Timeout/value": 7})
        """)
    )
    world.number = 2

    configure(sources=[world.source, lambda: {"Retry/retryOn": "c3_named.Busy, OSError"}])

    assert world.followed() == {2}
    assert "value = 7ms " in explain(Guard(timeout=Timeout(5000)))
    assert "c3_named.Busy" in explain(world.function)


def test_a_guard_that_is_first_called_while_others_are_planned_follows_as_well(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not in use when the planning began, and the values that it found are old when the planning ends."""
    other, seen = World(), []
    monkeypatch.setitem(sys.modules, "c3_call", SimpleNamespace(call=lambda: seen.append(set(other.done()))))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "c3_calling.py").write_text("import c3_call\nc3_call.call()\nBusy = OSError")
    world.number = 2

    configure(sources=[world.source, lambda: {"Retry/retryOn": "c3_calling.Busy"}])

    assert seen == [{1}]
    assert world.followed() == other.followed() == {2}


@pytest.mark.parametrize("elsewhere", [False, True], ids=["on its own thread", "on another thread"])
def test_a_reload_ends_however_many_guards_are_called_for_the_first_time(world: World, elsewhere: bool) -> None:
    """Each of its steps is followed by a first call; all guards follow it, the old ones and the new ones."""
    made: list[Callable[[], object]] = []

    def first_call() -> None:
        if len(made) == 1_000:
            pytest.fail("the reload does not end")
        made.append(retry(delay=0, jitter=0)(lambda: world.fail()))
        for call in (made[-1], world.retrying(lambda: world.fail())):
            with pytest.raises(OSError):
                call()

    def begin(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename.endswith("transaction.py"):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(first_call).result() if elsewhere else first_call()

    world.number = 2
    before = sys.gettrace()
    sys.settrace(begin)
    try:
        reload()
    finally:
        sys.settrace(before)

    assert world.followed() | {world.attempts(call) for call in made} == {2}


@pytest.mark.parametrize("stopped", [OSError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_in_a_source_leaves_all_as_it_was(stopped: type[BaseException], world: World) -> None:
    """Also control flow."""

    def stop() -> dict[str, Any]:
        raise stopped

    with pytest.raises((FaultToleranceDefinitionException, KeyboardInterrupt, GeneratorExit)):
        configure(properties={"Retry/maxRetries": 3}, sources=[stop])

    assert world.followed() == {1}
    world.number = 2
    reload()
    assert world.followed() == {2}


# Threads


@few_and_many("rounds", 1, 4)
def test_first_calls_in_other_threads_follow_the_values_that_hold_in_the_end(rounds: int) -> None:
    """Some are drafted under the old values while the new ones are put in force."""
    for _ in range(rounds):
        testing.reset()
        worlds = [World() for _ in range(8)]
        configure(properties=values_of(1))
        begun = threading.Barrier(len(worlds) + 1)

        def work(world: World, begun: threading.Barrier = begun) -> None:
            begun.wait(20)
            {world.attempts(call) for call in (world.covered.call, world.derived.call, world.function)}

        with ThreadPoolExecutor(len(worlds)) as pool:
            calls = [pool.submit(work, world) for world in worlds]
            begun.wait(20)
            configure(properties=values_of(2))
            for call in calls:
                call.result(20)

        assert set().union(*(world.followed() for world in worlds)) == {2}


@few_and_many("rounds", 2, 10)
def test_all_guards_follow_one_of_many_threads_that_configure_at_once(world: World, rounds: int) -> None:
    """Values that another thread configures beside them are not lost."""
    begun = threading.Barrier(4)

    def work(number: int) -> None:
        begun.wait(20)
        for _ in range(rounds):
            configure(properties=values_of(number))

    def give() -> None:
        begun.wait(20)
        for number in range(rounds):
            configure(sources=[lambda number=number: {"Timeout/value": 110 - rounds + number}])

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(work, number) for number in (2, 3, 4)]
        calls.append(pool.submit(give))
        for call in calls:
            call.result(60)

    (found,) = world.followed()
    assert found in (2, 3, 4)
    assert "value = 109ms " in explain(Guard(timeout=Timeout(5000)))


# No two threads wait for each other

DEADLOCKS = {
    "a module that a value names calls, while another thread's first call needs the module": """
        import os, threading, time
        os.environ["FAULTTOLERANCE_RETRY_RETRYON"] = "acme_errors.Busy"
        import faulttolerance as ft

        @ft.retry
        def served():
            return "served"

        importing = threading.Thread(target=__import__, args=("acme_errors",))
        importing.start()
        while not os.path.exists("begun"):
            time.sleep(0.005)
        print(served())
        importing.join()
    """,
    "a source waits for a thread that makes a first call": """
        import threading
        import faulttolerance as ft

        @ft.retry
        def served():
            return "served"

        def source():
            told = []
            one = threading.Thread(target=lambda: told.append(served()))
            one.start()
            one.join()
            print(*told)
            return {"Retry/delay": 0}

        ft.configure(sources=[source])
    """,
    "a source waits for a thread that configures": """
        import threading
        import faulttolerance as ft

        asked = []

        def source():
            if not asked:
                asked.append(True)
                one = threading.Thread(target=ft.reload)
                one.start()
                one.join()
                print("served")
            return {"Retry/delay": 0}

        ft.configure(sources=[source])
    """,
}
MODULE = """
import time
import faulttolerance as ft

class Busy(Exception):
    pass

@ft.retry
def first():
    pass

open("begun", "w").close()
time.sleep(0.2)
first()
"""


@pytest.mark.outside
@pytest.mark.parametrize("program", DEADLOCKS.values(), ids=DEADLOCKS)
def test_code_of_the_application_is_waited_for_with_no_lock_held(program: str, tmp_path: Path) -> None:
    """R10: also to import the modules that values name, and to read sources."""
    (tmp_path / "acme_errors.py").write_text(MODULE)

    program = "import sys; sys.path.insert(0, '.')\n" + textwrap.dedent(program)
    done = python(program, folder=tmp_path, environment=ALONE, seconds=30)

    assert (done.stdout, done.stderr, done.returncode) == ("served\n", "", 0)
