"""Circuits and limits that are forced into a state for the length of a test, and afterwards are as before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    Guard,
    RateLimitException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    guards,
    health,
    partition_by,
    rate_limit,
    reload,
    retry,
    retry_budget,
)
from faulttolerance._guard.resolve.resolver import renew_at_next_calls
from faulttolerance.policies import Bulkhead, CircuitBreaker, FleetWide, RateLimit, Retry, RetryBudget
from faulttolerance.testing import MemoryFleet, configured, disabled, exhaust, force, inject, reset, virtual_time
from kit.definition import refused

HOUR = 3_600_000


class Outage(Exception):
    pass


class Forced:
    @circuit_breaker(request_volume_threshold=4, delay=HOUR)
    def query(self, fails: bool = False) -> int:
        if fails:
            raise Outage
        return 1

    @circuit_breaker(request_volume_threshold=4, delay=HOUR)
    async def query_async(self) -> int:
        return 1

    @asynchronous
    @circuit_breaker(request_volume_threshold=4, delay=HOUR)
    def query_offloaded(self) -> Any:
        return 1

    @partition_by("host")
    @circuit_breaker(request_volume_threshold=4, delay=HOUR)
    @bulkhead(1)
    def fetch(self, host: str) -> str:
        return host


class SpeciallyForced(Forced):
    pass


guard = Guard(circuit_breaker=CircuitBreaker(delay=HOUR), name="imposed upon")


@guard
def guarded() -> int:
    return 1


WAYS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "def": (Forced.query, Forced().query),
    "object": (Forced().query, Forced().query),
    "class": (Forced, Forced().query),
    "async def": (Forced.query_async, Forced().query_async),
    "offloaded": (Forced.query_offloaded, Forced().query_offloaded),
    "Guard": (guard, guarded),
    "Guard.call": (guard, lambda: guard.call(lambda: 1)),
    "decorated by a Guard": (guarded, guarded),
    "key": (Forced.fetch, lambda: Forced().fetch("a") and 1),
}

NAME = f"{__name__}.Forced.query"


def outcome(call: Callable[[], Any]) -> Any:
    """Return the outcome of a call in any way of calling: its result, or the class of its failure."""

    async def awaited() -> Any:
        return await result

    try:
        result = call()
        return asyncio.run(awaited()) if isinstance(result, Awaitable) else result
    except Exception as error:  # it is looked at
        return type(error)


@pytest.mark.parametrize("way", WAYS)
def test_a_circuit_has_the_forced_state_in_the_block_and_its_own_afterwards(way: str) -> None:
    """This holds in every way of guarding and calling, and before the first call."""
    target, call = WAYS[way]
    with force(target, "open"):
        assert outcome(call) is outcome(call) is CircuitBreakerOpenException
    assert outcome(call) == 1
    with force(target, "half-open"):
        assert outcome(call) == outcome(call) == 1
    with force(target, "closed"):
        assert outcome(call) == 1


@pytest.mark.parametrize("found", ["closed", "open", "half-open"])
@pytest.mark.parametrize("state", ["open", "half-open", "closed"])
def test_a_circuit_that_was_used_while_forced_is_as_it_was_found(found: str, state: Any) -> None:
    """The state and its beginning, the results, openings, last failure and time of the next probes are the same."""
    with virtual_time() as clock:
        for fails in (True, False) if found == "closed" else (True,) * 4:
            outcome(lambda fails=fails: Forced().query(fails))  # type: ignore[misc]
        clock.advance(3600 if found == "half-open" else 1)
        before = circuit_breakers.snapshot(NAME)
        assert before.state == found
        with force(Forced.query, state):
            assert circuit_breakers.state(NAME) == state
            for _ in range(9):
                outcome(lambda: Forced().query(True))
            with configured({"CircuitBreaker/successThreshold": 2}):
                clock.advance(60)
                outcome(Forced().query)
            circuit_breakers.reset(NAME)

        assert circuit_breakers.snapshot(NAME) == before


def test_a_circuit_is_as_it_was_found_where_another_policy_comes_into_force_meanwhile() -> None:
    """The strategies of the target take it in; those of the block are over with it."""
    name = "joined by a limit"
    joined = Guard(circuit_breaker=CircuitBreaker(delay=HOUR), rate_limit=RateLimit(9), name=name)
    configure(properties={"RateLimit/enabled": False})
    joined.call(int)
    before = circuit_breakers.snapshot(name)
    with force(joined, "open"):
        configure(properties={})
        assert outcome(lambda: joined.call(int)) is CircuitBreakerOpenException

    assert circuit_breakers.snapshot(name) == before
    assert before.results == 1


def test_a_half_open_circuit_goes_on_by_its_probes() -> None:
    """A test sees by it what a service does when another one comes back, or does not."""
    with force(Forced.query, "half-open"):
        Forced().query()
        assert circuit_breakers.state(NAME) == "closed"
    with force(Forced.query, "half-open"):
        outcome(lambda: Forced().query(True))
        assert circuit_breakers.state(NAME) == "open"


def test_a_closed_circuit_stays_closed() -> None:
    """No outcome of its calls opens it."""
    with force(Forced.query, "closed"):
        assert [outcome(lambda: Forced().query(True)) for _ in range(9)] == [Outage] * 9
    assert circuit_breakers.snapshot(NAME).results == 0


def test_a_call_under_way_counts_in_the_circuit_that_let_it_in() -> None:
    """Its probe closes that circuit, which nobody sees before the block ends."""
    begun, go_on = threading.Event(), threading.Event()

    @guard
    def probing() -> None:
        begun.set()
        go_on.wait(5)

    with virtual_time() as clock, force(guard, "half-open"):
        future = clock.start(probing)
        assert begun.wait(5)
        with force(guard, "open"):
            assert outcome(guarded) is CircuitBreakerOpenException
            go_on.set()
            future.result(5)
            assert circuit_breakers.state("imposed upon") == "open"
        assert circuit_breakers.state("imposed upon") == "closed"


def test_an_object_stands_for_its_class_and_a_function_for_all() -> None:
    """A circuit belongs to a method of one class."""
    with force(SpeciallyForced().query, "open"):
        assert (outcome(SpeciallyForced().query), outcome(Forced().query)) == (CircuitBreakerOpenException, 1)
    with force(Forced.query, "open"):
        assert outcome(SpeciallyForced().query) is outcome(Forced().query) is CircuitBreakerOpenException


def test_keys_come_and_go_within_a_block() -> None:
    """This holds for keys that are remembered, and for keys whose first call is in the block."""
    Forced().fetch("known")
    name = f"{__name__}.Forced.fetch"
    for state in ("open", "half-open"):
        with force(Forced.fetch, state):  # type: ignore[arg-type]
            assert circuit_breakers.state(name) == state
            for key in ("known", state):
                outcome(lambda: Forced().fetch(key))  # noqa: B023
                assert circuit_breakers.state(name, key) == ("open" if state == "open" else "closed")
            with inject(Forced.fetch, error=Outage):
                outcome(lambda: Forced().fetch("failing"))
            assert circuit_breakers.state(name, "failing") == "open"
    with exhaust(Forced.fetch), exhaust(Forced.fetch, "Bulkhead"):
        assert outcome(lambda: Forced().fetch("new")) is outcome(lambda: Forced().fetch("known")) is BulkheadException

    assert [Forced().fetch(key) for key in ("known", "open", "new")] == ["known", "open", "new"]


def test_listeners_hear_of_it_and_of_its_end() -> None:
    """Code that follows circuits sees both, and does not take a closed circuit for open."""
    Forced().query()
    heard: list[tuple[str, str]] = []
    circuit_breakers.on_state_change(NAME, lambda _, old, new: heard.append((old, new)))
    with force(Forced.query, "open"):
        pass

    assert heard == [("closed", "open"), ("open", "closed")]


class Exhausted:
    def __init__(self) -> None:
        self.attempts = 0

    @bulkhead(2)
    def run(self) -> int:
        return 1

    @asynchronous
    @bulkhead(2, waiting_task_queue=9)
    def run_offloaded(self) -> Any:
        return 1

    @bulkhead(2, waiting_task_queue=9)
    async def run_async(self) -> int:
        return 1

    @bulkhead(2, max_wait=HOUR, waiting_task_queue=9)
    def wait(self) -> int:
        return 1

    @rate_limit(2, window=50)
    def ask(self) -> int:
        return 1

    @rate_limit(2, max_wait=HOUR)
    async def ask_async(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("run", BulkheadException),
        ("run_offloaded", BulkheadException),
        ("run_async", BulkheadException),
        ("wait", BulkheadException),
        ("ask", RateLimitException),
        ("ask_async", RateLimitException),
    ],
)
def test_an_exhausted_limit_refuses_every_call_at_once(name: str, refusal: type[Exception]) -> None:
    """It also refuses calls that would wait in a queue or for a turn, for as long as the block lasts."""
    call = getattr(Exhausted(), name)
    with exhaust(getattr(Exhausted, name)):
        assert outcome(call) is refusal
        configure(properties={"Bulkhead/value": 7, "RateLimit/value": 9})
        reload()
        with disabled("Timeout"):
            assert outcome(call) is refusal
        assert health().status == "degraded"

    assert outcome(call) == 1
    assert health().status == "up"


def test_a_spent_budget_ends_the_retries() -> None:
    """Afterwards the budget is as full as before, although calls have succeeded in the block."""

    @retry(max_retries=3, delay=0, jitter=0)
    @retry_budget(ratio=1.0, burst=2)
    def charge(fails: bool) -> None:
        if fails:
            made.append(1)
            raise Outage

    made: list[int] = []
    assert outcome(lambda: charge(True)) is Outage  # it takes both
    before = [guarded.conditions for guarded in guards() if guarded.method is charge]
    with exhaust(charge):
        made.clear()
        for fails in (False, False, True):
            outcome(lambda fails=fails: charge(fails))  # type: ignore[misc]
        assert len(made) == 1

    assert [guarded.conditions for guarded in guards() if guarded.method is charge] == before
    assert before[0]["RetryBudget"] == "0 of 2 tokens"


def test_the_rate_window_is_as_it_was_found() -> None:
    """No call within the block counts in it."""
    with virtual_time() as clock:
        Exhausted().ask()
        with exhaust(Exhausted.ask):
            assert outcome(Exhausted().ask) is RateLimitException
            clock.advance(0.001)
        assert (outcome(Exhausted().ask), outcome(Exhausted().ask)) == (1, RateLimitException)


def test_calls_that_run_and_wait_go_on() -> None:
    """Calls in flight are those of the limit that let them in, or let them wait."""

    async def main() -> list[int]:
        order: list[int] = []
        ends = asyncio.Event()

        @bulkhead(1, waiting_task_queue=5)
        async def run(number: int) -> None:
            order.append(number)
            await ends.wait()

        first = asyncio.create_task(run(1))
        await asyncio.sleep(0)
        second = asyncio.create_task(run(2))
        await asyncio.sleep(0)
        with exhaust(run):
            ends.set()
            await first
            with pytest.raises(BulkheadException):
                await run(3)
            await second
        return order

    assert asyncio.run(main()) == [1, 2]


@pytest.mark.parametrize("fails", [False, True], ids=["goes well", "fails"])
def test_a_circuit_of_a_fleet_is_half_open_in_this_process_only(fails: bool) -> None:
    """Its probes need no place in the fleet, and do not open it for the others."""
    breaker = CircuitBreaker(request_volume_threshold=1, delay=HOUR)
    shared = Guard(circuit_breaker=breaker, fleet_wide=FleetWide(), name="half-open here")

    def probe() -> int:
        if fails:
            raise Outage
        return 1

    try:
        configure(fleet=MemoryFleet())
        assert shared.call(int) == 0
        with force(shared, "half-open"):
            assert circuit_breakers.state("half-open here") == "half-open"
            assert outcome(lambda: shared.call(probe)) is (Outage if fails else 1)
            assert circuit_breakers.state("half-open here") == ("open" if fails else "closed")
        assert [shared.call(int) for _ in range(3)] == [0, 0, 0]
    finally:
        configure(fleet=None)
        shared.close()


@pytest.mark.parametrize("kind", ["fixed", "rolling", "smooth"])
@pytest.mark.parametrize("fleet_wide", [None, FleetWide()], ids=["alone", "fleet"])
def test_a_rate_limit_that_is_shared_or_waited_for_is_used_up(kind: Any, fleet_wide: FleetWide | None) -> None:
    """A fleet that has turns is not asked; a call that waited before gets its turn."""
    limit = RateLimit(2, window="1s", type=kind, burst=2 if kind == "smooth" else 1, max_wait="1h")
    limited = Guard(rate_limit=limit, fleet_wide=fleet_wide, name="used up")

    with virtual_time() as clock:
        configure(fleet=MemoryFleet() if fleet_wide is not None else None)
        try:
            with exhaust(limited):
                assert [outcome(lambda: limited.call(int)) for _ in range(3)] == [RateLimitException] * 3
            assert [limited.call(int), limited.call(int)] == [0, 0]
            waiting = clock.start(limited.call, int)
            clock.advance(0)
            with exhaust(limited):
                clock.advance(60)
                assert outcome(lambda: limited.call(int)) is RateLimitException
                assert waiting.result() == 0
            assert limited.call(int) == 0
        finally:
            configure(fleet=None)
            limited.close()


def test_a_test_can_name_the_limits_that_are_used_up() -> None:
    """It names annotations or classes of policies; by default all limits of the target are used up."""
    both = Guard(bulkhead=Bulkhead(2), rate_limit=RateLimit(100))
    with exhaust(both, "RateLimit"):
        assert outcome(lambda: both.call(int)) is RateLimitException
    with exhaust(both, Bulkhead):
        assert outcome(lambda: both.call(int)) is BulkheadException
    with exhaust(both):
        assert outcome(lambda: both.call(int)) is RateLimitException
    assert both.call(int) == 0


def test_classes_that_come_into_use_within_a_block_are_forced_too() -> None:
    """A test may derive a stand-in from the client, whose state is its own."""
    with force(Forced, "open"), exhaust(Exhausted.run):

        class StandIn(Forced):
            pass

        class Smaller(Exhausted):
            pass

        assert outcome(StandIn().query) is CircuitBreakerOpenException
        assert outcome(Smaller().run) is BulkheadException
        with force(StandIn.query, "closed"):

            class Second(Forced):
                pass

            assert (outcome(StandIn().query), outcome(Second().query)) == (1, 1)
        assert outcome(Second().query) is CircuitBreakerOpenException
    assert (StandIn().query(), Second().query(), Smaller().run()) == (1, 1, 1)


def test_a_class_that_waits_for_its_next_call_has_its_own_limit_back() -> None:
    """Its call path was dropped in the block, as where metrics are connected late."""

    class Smaller(Exhausted):
        pass

    with exhaust(Exhausted.run):
        renew_at_next_calls()
        assert outcome(Exhausted().run) is BulkheadException
        assert health().status == "degraded"
    assert health().status == "up"
    assert Smaller().run() == 1


@pytest.mark.parametrize("name", ["", "spent by several"])
def test_a_budget_that_is_first_used_within_a_block_is_full_afterwards(name: str) -> None:
    """It is the one that its name shares, and no attempt within the block has spent it."""

    class Charged:
        @retry(max_retries=9, delay=0, jitter=0)
        @retry_budget(ratio=0.1, burst=2, name=name)
        def charge(self) -> None:
            made.append(type(self))
            raise Outage

    class Smaller(Charged):
        pass

    made: list[type] = []
    with exhaust(Charged):

        class Second(Charged):
            pass

        outcome(Second().charge)
    for kind in (Second, Smaller):
        outcome(kind().charge)

    assert [made.count(kind) for kind in (Second, Smaller)] == [4, 1 if name else 3]


@pytest.mark.parametrize("target", [Forced.query, Forced.fetch])
def test_a_block_that_ends_while_another_one_lasts_takes_nothing_from_it(target: Any) -> None:
    """Blocks of several threads and tasks overlap in any way."""
    calls = {Forced.query: Forced().query, Forced.fetch: lambda: Forced().fetch("a")}
    first, second = force(target, "open"), force(target, "open")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert outcome(calls[target]) is CircuitBreakerOpenException
    second.__exit__(None, None, None)

    assert outcome(calls[target]) in (1, "a")


def test_calls_decide_which_class_has_the_further_name_of_a_circuit() -> None:
    """A base class that nobody calls does not take the name away from the class that is called."""

    class Named:
        @circuit_breaker_name("bank")
        @circuit_breaker(request_volume_threshold=4, delay=HOUR)
        def pay(self) -> Any:
            return 1

    class ReallyNamed(Named):
        pass

    with force(Named.pay, "open"):
        assert outcome(ReallyNamed().pay) is CircuitBreakerOpenException
    assert ReallyNamed().pay() == 1


def test_a_block_goes_on_after_a_reset() -> None:
    """A fixture for a class of tests has such a block, where ``ft_autouse`` resets around each test."""
    with force(Forced.query, "open"), exhaust(Exhausted.run), exhaust(Forced.fetch):
        reset()
        assert (outcome(Forced().query), outcome(Exhausted().run)) == (CircuitBreakerOpenException, BulkheadException)
        assert outcome(lambda: Forced().fetch("a")) is BulkheadException
    assert (Forced().query(), Exhausted().run(), Forced().fetch("a")) == (1, 1, "a")


def test_force_and_exhaust_are_decorators_and_end_after_a_reset() -> None:
    """A block around a reset ends without an error."""

    @force(Forced.query, "open")
    @exhaust(Exhausted.run)
    def test() -> list[Any]:
        return [outcome(Forced().query), outcome(Exhausted().run)]

    assert test() == [CircuitBreakerOpenException, BulkheadException]
    with force(Forced.query, "open"), exhaust(Exhausted.run):
        reset()
    assert (Forced().query(), Exhausted().run()) == (1, 1)


@pytest.mark.parametrize(
    ("enter", "words"),
    [
        (lambda: force(Forced.query, "ajar"), ("testing.force(state)", "'ajar'", "'half-open'")),  # type: ignore[arg-type]
        (lambda: force(outcome, "open"), ("testing.force", "not guarded")),
        (lambda: force(Exhausted.run, "open"), ("testing.force", "Exhausted.run", "CircuitBreaker in force")),
        (lambda: exhaust(Forced.query), ("testing.exhaust", "Forced.query", "Bulkhead, RateLimit")),
        (lambda: exhaust(Exhausted.run, "RateLimit"), ("Exhausted.run", "RateLimit in force")),
        (lambda: exhaust(Exhausted.run, "Retry"), ("testing.exhaust", "'Retry'", "'RetryBudget'")),
        (lambda: exhaust(Exhausted.run, "Bulkead"), ("did you mean 'Bulkhead'",)),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(enter: Callable[[], Any], words: tuple[str, ...]) -> None:
    """The error names the argument, the place, the value and the allowed ones; nothing is forced."""
    with refused(*words), enter():
        pass
    for policy in (Retry, RetryBudget):
        with refused("in force"), disabled(policy, "Bulkhead"), exhaust(Exhausted.run):
            pass
