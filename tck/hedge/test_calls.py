"""Calls that are hedged, through public names: when a hedge is sent, which attempt wins, and how the others end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import IO, Any

import pytest

from faulttolerance import (
    ExecutionContext,
    FaultToleranceDefinitionException,
    Guard,
    asynchronous,
    asynchronous_non_blocking,
    before_retry,
    bulkhead,
    coalesce,
    completed_future,
    configure,
    explain,
    fallback,
    hedge,
    instrumentation,
    partition_by,
    reload,
    retry,
    retry_budget,
    sleep,
    testing,
    unguarded,
)
from faulttolerance.instrumentation import HedgeSent
from faulttolerance.policies import CircuitBreaker, Hedge, Timeout
from faulttolerance.testing import virtual_time
from kit import VirtualClock
from kit.program import python
from kit.waiting import wait_until
from kit.ways import WAYS, Run, Scene, Way

ways = pytest.mark.parametrize(
    "way", [way for way in WAYS if way.convention != "blocking" and way.guard in ("", "call")], ids=lambda way: way.name
)

SLOW = 5.0
PATIENCE = 20.0
"""Seconds after which something that must happen did not."""
AFTER_100 = {"delay": 100, "quantile": 0}


class Race:
    """A service whose attempts take the times, and end in the ways, of a script; and the record of its calls.

    Args:
        way: How it is called.
        script: Seconds and outcome of each attempt; the last one goes for those that follow.
        scene: The calls that are made; one by default.
        stubborn: The attempts, from 0, that ignore that they are to end.
        configured: A policy that is only observed.
        policies: What guards it.
    """

    def __init__(
        self,
        way: Way,
        *script: tuple[float, Any],
        scene: Scene | None = None,
        stubborn: tuple[int, ...] = (),
        configured: str = "",
        **policies: Any,
    ) -> None:
        self.began: list[float] = []
        self.ended: list[tuple[int, float, str]] = []
        self.events: list[Any] = []
        self.over: list[float] = []
        """When each call was over."""
        testing.reset()
        if configured:
            configure(properties={f"{configured}/mode": "observe"})
        with virtual_time() as virtual:
            start = virtual.monotonic()

            def now() -> float:
                return round(virtual.monotonic() - start, 3)

            async def body(run: Run) -> Any:
                number = len(self.began)
                seconds, outcome = script[min(number, len(script) - 1)]
                self.began.append(now())
                how = "lost"
                try:
                    try:
                        await run.sleep(seconds)
                    except BaseException:
                        if number not in stubborn:
                            raise
                        await run.sleep(seconds)
                    how = "ended"
                finally:
                    self.ended.append((number, now(), how))
                if isinstance(outcome, BaseException):
                    raise outcome
                return outcome

            async def once(run: Run) -> None:
                await run.call()
                self.over.append(now())

            sinks = instrumentation.get_event_sinks()
            instrumentation.set_event_sinks([self.events.append])
            try:
                self.run = Run(way, VirtualClock(virtual), lambda _: policies, body).drive(scene or once)
            finally:
                instrumentation.set_event_sinks(sinks)
                if configured:
                    configure(properties={})

    @property
    def outcomes(self) -> list[Any]:
        """Return the outcome of each call: a result, or the name of an exception."""
        outcomes = [one if isinstance(one, tuple) else (one,) for one in self.run.outcomes]
        return [one[1] if one[0] == "returned" else one[0] for one in outcomes]

    @property
    def results(self) -> dict[str, int]:
        """Return how often each result of a race was counted."""
        counts = self.run.counts.items()
        return {tags[0][1]: count for (metric, tags), count in counts if metric == "ft.hedge.calls.total"}

    def lost(self, at: float = 0.0) -> list[int]:
        """Return the attempts that were ended early, *at* a moment; a thread learns of it later than a task."""
        if at and self.run.way.is_on_loop:
            assert {when for _, when, how in self.ended if how == "lost"} == {at}
        return sorted(number for number, _, how in self.ended if how == "lost")

    @property
    def sent(self) -> list[tuple[int, float]]:
        """Return the hedges of which events were sent."""
        return [(event.hedge, round(event.delay, 3)) for event in self.events if isinstance(event, HedgeSent)]


def of(way: str) -> Way:
    """Return the way of that name."""
    return next(one for one in WAYS if one.name == way)


def calls(count: int) -> Scene:
    """Make a number of calls, one after the other."""

    async def scene(run: Run) -> None:
        for _ in range(count):
            await run.call()

    return scene


# When


@ways
def test_the_kth_hedge_is_sent_after_k_times_the_delay(way: Way) -> None:
    """By rule H1: while nothing succeeds, one after the other, up to *max_hedges*; the first success is the result."""
    race = Race(way, *[(SLOW, "slow")] * 3, (0.05, "quick"), hedge={**AFTER_100, "max_hedges": 4})

    assert race.began == [0.0, 0.1, 0.2, 0.3]
    assert race.sent == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert race.outcomes == ["quick"]
    assert race.over == [0.35]
    assert race.results == {"hedge": 1}


@ways
def test_a_quick_call_is_not_hedged(way: Way) -> None:
    """By rule H1: no hedge is sent for a call that ends before the delay, with any outcome (rule H4)."""
    race = Race(way, (0.09, "quick"), (0.09, OSError("no")), scene=calls(2), hedge=AFTER_100)

    assert race.outcomes == ["quick", "OSError"]
    assert race.began == [0.0, 0.09]
    assert race.results == {"notHedged": 2}


@ways
def test_the_delay_is_learned_and_nothing_is_sent_before(way: Way) -> None:
    """By rule H1, trap 2: without samples there is no delay of 0; after 64 of them it is their quantile."""
    script = [*[(SLOW, "slow")] * 3, *[(0.02, "quick")] * 61, (SLOW, "slow"), (0.001, "hedge")]
    race = Race(way, *script, scene=calls(65), hedge={"quantile": 0.9})

    assert race.outcomes == [*["slow"] * 3, *["quick"] * 61, "hedge"]
    assert race.sent == [(1, 0.02)]
    assert race.results == {"notHedged": 64, "hedge": 1}


def test_the_delay_is_never_shorter_than_declared() -> None:
    """By rule H1: the learned delay counts where it is longer; before there is one, the declared delay counts alone."""
    script = [(SLOW, "slow"), (0.001, "hedge"), *[(0.02, "quick")] * 64, (SLOW, "slow"), (0.001, "hedge")]
    race = Race(of("async-def"), *script, scene=calls(66), hedge={"quantile": 0.9, "delay": 50})

    assert race.sent == [(1, 0.05), (1, 0.05)]


def test_an_attempt_that_lost_or_timed_out_is_a_sample() -> None:
    """Rule X4, trap 4: learning from winners alone would shorten the delay; so losers count for as long as they ran."""
    lost = [(SLOW, "slow"), (0.3, "hedge")] * 4
    late = [(SLOW, "late")] * 2 * 4
    quick = [(0.01, "quick")] * 56
    policies = {"timeout": {"value": 1000}, "bulkhead": {"value": 100}}
    for quantile, delay in ((0.88, 0.4), (0.95, 1.0)):
        hedge = {"quantile": quantile, "delay": 100}
        race = Race(of("async-def"), *lost, *late, *quick, scene=calls(64), hedge=hedge, **policies)

        assert race.results == {"hedge": 4, "failed": 4, "notHedged": 56}
        assert race.run.counts["ft.hedge.delay", ()] == pytest.approx(delay)


# Only if


def _sent_under(way: Way, script: list[tuple[float, Any]], scene: Scene | None = None, **policies: Any) -> int:
    return len(Race(way, *script, scene=scene, hedge=AFTER_100, **policies).sent)


@ways
def test_a_spent_budget_sends_no_hedge_and_fails_no_call(way: Way) -> None:
    """By rule H2, trap 6: of calls that are all slow, the built-in budget hedges ten and one in ten; others go on."""
    race = Race(way, (1.0, "slow"), scene=calls(30), hedge=AFTER_100)

    assert set(race.outcomes) == {"slow"}
    assert len(race.sent) == 12
    assert race.results == {"primary": 12, "notHedged": 18}


@ways
def test_a_hedge_never_queues_for_a_permit(way: Way) -> None:
    """By rule H2: where no permit is free, no hedge is sent; the other attempt keeps its own permit."""
    slow = [(1.0, "slow")]
    assert _sent_under(way, slow, bulkhead={"value": 1, "waiting_task_queue": 5}) == 0
    assert _sent_under(way, slow, bulkhead={"value": 2, "waiting_task_queue": 5}) == 1


@ways
@pytest.mark.parametrize(("rest", "sent"), [(9.0, 0), (11.0, 1)])
def test_no_hedge_is_sent_for_ten_seconds_after_a_limit_fell(way: Way, rest: float, sent: int) -> None:
    """By rule H2: although permits are free, a callee that was too slow gets no attempt that it need not make."""

    async def scene(run: Run) -> None:
        await run.hold(8)  # their bodies take 80 ms and more, and end before a hedge is due
        await run.passes(rest)
        await run.call()

    bulkhead = {"value": 20, "latency": 50}
    late = [(0.08 + number / 1000, "late") for number in range(8)]
    race = Race(way, *late, (1.0, "slow"), scene=scene, hedge=AFTER_100, bulkhead=bulkhead)

    assert race.outcomes[0] == "slow"
    assert len(race.sent) == sent


@ways
def test_no_hedge_is_a_probe_of_a_half_open_circuit(way: Way) -> None:
    """By rule H2: a circuit that is not closed gets no second attempt."""

    async def scene(run: Run) -> None:
        await run.call()
        await run.passes(2)
        await run.call()

    breaker = {"request_volume_threshold": 1, "failure_ratio": 1.0, "delay": 1000, "success_threshold": 5}
    race = Race(way, (0.01, OSError("down")), (1.0, "probe"), scene=scene, hedge=AFTER_100, circuit_breaker=breaker)

    assert race.outcomes == ["OSError", "probe"]
    assert race.sent == []


@ways
def test_no_hedge_is_sent_while_the_throttle_sheds(way: Way) -> None:
    """By rule H2: no hedge is sent while the probability is above 0; once it is 0 again, one is."""

    async def scene(run: Run) -> None:
        for _ in range(5):
            await run.call()
        await run.passes(1.5)  # the next one is let through for certain
        await run.call()
        await run.passes(60)
        await run.call()

    script = [*[(0.01, OSError("busy"))] * 5, (1.0, "slow")]
    race = Race(way, *script, hedge=AFTER_100, adaptive_throttle={"min_requests": 5}, scene=scene)

    assert race.outcomes == [*["OSError"] * 5, "slow", "slow"]
    assert len(race.sent) == 1


@ways
def test_no_hedge_is_due_when_the_deadline_passes(way: Way) -> None:
    """By rule H2: no hedge is sent where an enclosing deadline passes no later than the timer."""

    async def within(run: Run) -> None:
        await run.call_within(0.15)

    race = Race(way, (1.0, "slow"), scene=within, hedge={"delay": 70, "quantile": 0, "max_hedges": 5})

    assert race.outcomes == ["TimeoutException"]
    assert race.sent == [(1, 0.07), (2, 0.14)]


# Each is an attempt


@ways
def test_each_attempt_has_its_own_verdict_time_out_and_permit(way: Way) -> None:
    """By rule H3: policies inside count two attempts, and the call once; the loser is neutral to the breaker (H5)."""

    async def scene(run: Run) -> None:
        await run.call()
        await run.passes(1)

    policies = {
        "timeout": {"value": 2000},
        "bulkhead": {"value": 2},
        "circuit_breaker": {"request_volume_threshold": 9},
    }
    race = Race(way, (1.0, "slow"), (0.1, "quick"), scene=scene, hedge=AFTER_100, **policies)
    counts = {metric: count for (metric, tags), count in race.run.counts.items() if "total" in metric}

    assert race.outcomes == ["quick"]
    assert counts["ft.invocations.total"] == 1
    assert counts["ft.circuitbreaker.calls.total"] == 1
    assert counts["ft.bulkhead.calls.total"] == 2
    assert race.lost() == [0]


@ways
def test_a_hedge_that_a_policy_refuses_was_never_there(way: Way) -> None:
    """By rule H3: it is neither a failure nor a note, sends no event, and costs the budget nothing."""

    async def scene(run: Run) -> None:
        for _ in range(15):
            await run.call()
            await run.call()  # two are let in within ten seconds, and this is the second
            await run.passes(10)
        await run.call()

    refused = [(0.01, OSError("quick")), (1.0, OSError("slow"))] * 15
    script = [*refused, (1.0, "slow"), (0.1, "hedge")]
    race = Race(way, *script, scene=scene, hedge=AFTER_100, rate_limit={"value": 2, "window": "10s"})

    assert race.outcomes == [*["OSError"] * 30, "hedge"]
    assert all(not outcome[2] for outcome in race.run.outcomes[:30])
    assert race.results == {"notHedged": 30, "hedge": 1}
    assert race.sent == [(1, 0.1)]


@ways
def test_the_price_of_a_hedge_that_a_policy_refuses_pays_for_the_next(way: Way) -> None:
    """By rule H3: it is returned at once, while the call goes on."""
    policies = {"retry_budget": {"ratio": 0, "burst": 1}, "rate_limit": {"value": 1, "window": "150ms"}}
    race = Race(way, (1.0, "slow"), (0.1, "hedge"), hedge={**AFTER_100, "max_hedges": 2}, **policies)

    assert race.outcomes == ["hedge"]
    assert race.sent == [(2, 0.2)]


def test_a_hedge_that_waits_for_a_thread_until_its_call_ends_costs_the_budget_nothing() -> None:
    """By rule H3: it was never sent."""
    configure(max_threads=1)
    begun, end, release = threading.Event(), threading.Event(), threading.Event()

    @hedge(delay=10, quantile=0)
    @retry_budget(ratio=0, burst=1)
    @asynchronous
    def load() -> Future[bool]:
        begun.set()
        return completed_future(end.wait(PATIENCE))

    try:
        call = load()
        assert begun.wait(PATIENCE)
        other = asynchronous(lambda: release.wait(PATIENCE))()
        wait_until(lambda: "now 0 of 1 tokens" in str(explain(load)))
        end.set()

        assert call.result(PATIENCE)
        assert "now 1 of 1 tokens" in str(explain(load))
        release.set()
        assert other.result(PATIENCE)
    finally:
        testing.reset()


@ways
def test_attempts_have_a_copy_of_the_context_each(way: Way) -> None:
    """By rule H3, trap 5: each sees the values that the caller has set, and none that another attempt sets."""
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []

    async def body(run: Run) -> str:
        seen.append(tenant.get())
        number = run.attempts
        tenant.set(f"attempt {number}")
        await run.sleep(1.0 if number == 1 else 0.1)
        seen.append(tenant.get())
        return tenant.get()

    async def scene(run: Run) -> None:
        tenant.set("caller")
        await run.call()
        seen.append(tenant.get())

    with virtual_time() as virtual:
        run = Run(way, VirtualClock(virtual), lambda _: {"hedge": AFTER_100}, body).drive(scene)

    assert seen == ["caller", "caller", "attempt 2", "caller"]
    assert run.outcomes == [("returned", "attempt 2")]


# The winner


@ways
def test_a_hedge_that_fails_does_not_beat_a_primary_that_succeeds(way: Way) -> None:
    """By rule H4, trap 1: the first success wins, not the first completion; the failure sends no further hedge."""
    race = Race(way, (1.0, "primary"), (0.01, OSError("no")), hedge={**AFTER_100, "max_hedges": 1})

    assert race.outcomes == ["primary"]
    assert race.results == {"primary": 1}


@ways
def test_a_primary_that_fails_waits_for_its_hedge(way: Way) -> None:
    """By rule H4: as long as an attempt is left running, it may succeed."""
    race = Race(way, (0.2, OSError("no")), (1.0, "hedge"), hedge=AFTER_100)

    assert race.outcomes == ["hedge"]
    assert race.over == [1.1]


@ways
def test_the_failure_of_the_primary_comes_out_with_the_others_as_notes(way: Way) -> None:
    """By rule H4: also where another attempt ended last; each note says which hedge it was."""
    race = Race(
        way, (1.0, OSError("first")), (0.1, KeyError("second")), (0.1, ValueError("third")),
        hedge={**AFTER_100, "max_hedges": 2},
    )  # fmt: skip
    ((kind, text, notes, cause),) = race.run.outcomes

    assert (kind, text, cause) == ("OSError", "first", None)
    assert notes == (
        "faulttolerance: hedge 1 failed, too: KeyError: 'second'",
        "faulttolerance: hedge 2 failed, too: ValueError: third",
    )
    assert race.results == {"failed": 1}


def test_a_failure_that_is_raised_again_has_the_notes_of_its_last_race() -> None:
    """By rule H4: one object for all failures does not gather notes for ever."""
    same = OSError("always this one")
    race = Race(of("async-def"), *[(1.0, same), (0.1, KeyError("x"))] * 3, scene=calls(3), hedge=AFTER_100)

    assert [len(notes) for _, _, notes, _ in race.run.outcomes] == [1, 1, 1]


@ways
@pytest.mark.parametrize("number", [0, 1])
def test_control_flow_out_of_an_attempt_ends_the_call(way: Way, number: int) -> None:
    """Rule X6: it is no failure, and no other attempt goes on in its place."""
    script: list[tuple[float, Any]] = [(1.0, "slow"), (1.0, "slow")]
    script[number] = (0.3 - number * 0.1, asyncio.CancelledError())
    race = Race(way, *script, hedge=AFTER_100, retry={"max_retries": 2, "jitter": 0})

    assert race.outcomes == ["interruption"]
    assert race.over == [0.3]
    assert race.lost(0.3) == [1 - number]


# The others


@ways
def test_the_winner_does_not_wait_for_a_loser_that_ignores_its_end(way: Way) -> None:
    """By rule H5, trap 3: it is left behind, keeps its permit until it really ends, and is neutral to the breaker."""

    async def scene(run: Run) -> None:
        await run.call()
        await run.call()
        await run.passes(20)
        await run.call()

    script = [(SLOW, OSError("late, and ignored")), (0.1, "quick"), (0.01, "quick")]
    policies = {
        "bulkhead": {"value": 2, "waiting_task_queue": 1},
        "circuit_breaker": {"request_volume_threshold": 3, "failure_ratio": 0.3},
    }
    race = Race(way, *script, scene=scene, stubborn=(0,), hedge=AFTER_100, **policies)

    assert race.outcomes == ["quick"] * 3
    assert race.began[:3] == [0.0, 0.1, 0.2]
    assert [when >= 5.2 for number, when, how in race.ended if number == 0 and how == "ended"] == [True]
    assert race.run.state == "closed"


@ways
def test_the_permit_of_a_loser_is_held_until_it_ends(way: Way) -> None:
    """By rule H5: where it is the last one, the next call waits for it."""

    async def scene(run: Run) -> None:
        await run.call()
        await run.hold(1)  # has the other permit
        await run.call()

    script = [(SLOW, "slow"), (0.1, "quick"), (60.0, "holds"), (0.01, "waited")]
    limit = {"value": 2, "waiting_task_queue": 3}
    race = Race(way, *script, scene=scene, stubborn=(0,), hedge={**AFTER_100, "max_hedges": 1}, bulkhead=limit)

    assert race.outcomes == ["quick", "waited"]
    assert race.began[3] >= 5.2


@ways
def test_cancelling_the_call_cancels_all_its_attempts(way: Way) -> None:
    """By rule H5: nothing goes on, and nothing is counted as sent afterwards."""

    async def scene(run: Run) -> None:
        await run.call_cancelled(0.25)

    race = Race(way, (SLOW, "slow"), scene=scene, hedge={**AFTER_100, "max_hedges": 3})

    assert race.outcomes == ["cancelled"]
    assert race.lost(0.25) == [0, 1, 2]


def test_attempts_clean_up_although_the_call_is_cancelled_again_and_again() -> None:
    """By rule H5: a scope of anyio cancels in each turn of the loop until the task that it waits for has ended."""
    ended: list[str] = []

    @hedge(delay=100, quantile=0)
    async def load() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0.1)
            ended.append("cleaned up")

    async def main() -> tuple[int, float]:
        call, now = asyncio.create_task(load()), asyncio.get_running_loop().time
        await asyncio.sleep(0.2)
        before = now()
        while not call.done():
            call.cancel()
            await asyncio.sleep(0.03)
        assert call.cancelled()
        return len(asyncio.all_tasks()), now() - before

    with virtual_time() as clock:
        assert clock.run(main()) == (1, pytest.approx(0.12, abs=0.02))
    assert ended == ["cleaned up"] * 2


@ways
def test_an_enclosing_deadline_ends_all_attempts(way: Way) -> None:
    """By rule H5: the call and its hedges share the deadline."""

    async def scene(run: Run) -> None:
        await run.call_within(0.25)

    race = Race(way, (SLOW, "slow"), scene=scene, hedge=AFTER_100)

    assert race.outcomes == ["TimeoutException"]
    assert race.lost(0.25) == [0, 1]


# Targets that cannot be hedged


async def fetch(order: str) -> str:
    return order


class Rows:
    async def over(self, rows: Iterator[str]) -> None: ...
    async def made(self, rows: Generator[int, None, None] | None = None) -> None: ...
    async def streamed(self, *chunks: AsyncIterator[bytes]) -> None: ...
    async def read(self, file: IO[bytes], name: str = "") -> None: ...
    def listed(self, rows: list[str], text: str = "") -> Any: ...


@pytest.mark.parametrize("name", ["over", "made", "streamed", "read"])
def test_an_argument_that_only_one_attempt_could_read_is_refused(name: str) -> None:
    """By rule H6: an iterator, a stream or a file, where the annotation says so; refused when it is decorated."""
    with pytest.raises(FaultToleranceDefinitionException, match=f"Rows.{name} @Hedge shares .* among its attempts"):
        hedge(getattr(Rows, name))
    hedge(Rows.listed)


def test_a_synchronous_function_cannot_be_hedged() -> None:
    """By rule H6, X9: a thread cannot race itself; further decorators could help until it is called."""

    def load(order: str) -> Any:
        return order

    hedged = hedge(load)
    for call in (lambda: hedged("a"), lambda: Guard(hedge=Hedge()).call(load, "a"), lambda: Guard(hedge=Hedge())(load)):
        with pytest.raises(FaultToleranceDefinitionException, match="add @asynchronous: a thread cannot race itself"):
            call()
    assert asynchronous(hedge(lambda: "a"))().result(5) == "a"


def test_a_synchronous_function_with_a_return_annotation_is_refused_at_once() -> None:
    """By rule H6: no decorator could make it asynchronous in a class."""
    with pytest.raises(FaultToleranceDefinitionException, match="add @asynchronous"):

        class Shop:
            @hedge
            def load(self, order: str) -> int:
                return len(order)


def test_blocks_cannot_be_hedged() -> None:
    """Rule X9: a block cannot be run twice at once."""
    guard = Guard(hedge=Hedge())
    for ask in (guard.attempt, guard.attempts):
        with pytest.raises(FaultToleranceDefinitionException, match="Hedge"):
            ask()


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"max_hedges": 0}, "max_hedges"),
        ({"max_hedges": 6}, "an integer from 1 to 5"),
        ({"quantile": 0.4}, "a number from 0.5 to 0.999, or 0"),
        ({"quantile": 1}, "quantile"),
        ({"delay": -1}, "delay"),
        ({"quantile": 0}, "no moment for a hedge is set"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any], wrong: str) -> None:
    """Rule X9: declared and configured alike."""
    with pytest.raises(FaultToleranceDefinitionException, match=wrong):
        Hedge(**values)
    testing.reset()
    guard = Guard(hedge=Hedge(quantile=0.9))
    asyncio.run(guard.call_async(fetch, "a"))
    keys = {"max_hedges": "maxHedges"}
    with pytest.raises(FaultToleranceDefinitionException, match=wrong.replace("max_h", "maxH")):
        configure(properties={f"Hedge/{keys.get(name, name)}": str(value) for name, value in values.items()})


# Beside other policies


@ways
def test_each_retry_is_a_race_of_its_own(way: Way) -> None:
    """By rule H4: a failure sends no hedge, but a retry, which is hedged again; one budget pays for both."""
    script = [(0.3, OSError("no")), (0.1, OSError("no")), (1.0, "slow"), (0.1, "quick")]
    race = Race(way, *script, retry={"max_retries": 1, "jitter": 0}, hedge=AFTER_100, retry_budget={"burst": 3})
    budget = {tags: count for (metric, tags), count in race.run.counts.items() if metric == "ft.retry.budget.total"}

    assert race.outcomes == ["quick"]
    assert race.began == [0.0, 0.1, 0.3, 0.4]
    assert race.results == {"failed": 1, "hedge": 1}
    assert budget == {
        (("kind", "hedge"), ("result", "granted")): 2,
        (("kind", "retry"), ("result", "granted")): 1,
    }


@ways
def test_the_budget_of_the_method_grants_hedges(way: Way) -> None:
    """By rule H2: also without a retry; each call that succeeds adds its ratio."""
    budget = {"ratio": 0.5, "burst": 2}
    race = Race(way, (0.3, "slow"), scene=calls(8), hedge=AFTER_100, retry_budget=budget)

    assert set(race.outcomes) == {"slow"}
    # 2 tokens at first; each call gives a half.
    assert race.results == {"primary": 5, "notHedged": 3}


@ways
def test_a_hedge_that_is_only_observed_is_not_sent(way: Way) -> None:
    """Rule X7: hedges that would be sent are counted, and the call goes on as without them."""
    hedges = {**AFTER_100, "max_hedges": 3}
    race = Race(way, (0.25, "slow"), (0.05, "quick"), scene=calls(2), configured="Hedge", hedge=hedges)
    observed = [count for (metric, _), count in race.run.counts.items() if metric == "ft.observed.total"]

    assert race.outcomes == ["slow", "quick"]
    assert race.began == [0.0, 0.25]
    assert race.results == {"notHedged": 2}
    assert observed == [2]


@ways
@pytest.mark.parametrize("permits", [1, 2])
def test_a_hedge_that_is_only_observed_needs_a_permit_beside_that_of_its_call(way: Way, permits: int) -> None:
    """Rule X7: its decision is that of an enforced hedge, which is checked while its call runs."""
    race = Race(way, (0.25, "slow"), configured="Hedge", hedge=AFTER_100, bulkhead={"value": permits})
    observed = [count for (metric, _), count in race.run.counts.items() if metric == "ft.observed.total"]

    assert race.outcomes == ["slow"]
    assert sum(observed) == permits - 1


@ways
def test_a_hedge_that_is_only_observed_takes_no_token_from_retries(way: Way) -> None:
    """Rule X7: its decision has no effect, and is that of an enforced hedge with a budget of these values."""
    script = [(0.3, "slow")] * 4 + [(0.0, OSError()), (0.0, "retried")]
    budget = {"ratio": 0, "burst": 2}
    race = Race(
        way, *script, scene=calls(5), configured="Hedge", hedge=AFTER_100, retry={"jitter": 0}, retry_budget=budget
    )
    observed = [count for (metric, _), count in race.run.counts.items() if metric == "ft.observed.total"]

    assert race.outcomes == ["slow"] * 4 + ["retried"]
    assert observed == [2]


def test_a_hedge_that_is_only_observed_is_logged_by_its_call(caplog: pytest.LogCaptureFixture) -> None:
    """A slow handler of the log never delays the timers of the process."""
    end, threads = threading.Event(), []

    @hedge(delay=10, quantile=0)
    @asynchronous
    def load() -> Future[bool]:
        threads.append(threading.get_ident())
        return completed_future(end.wait(PATIENCE))

    with testing.configured({"Hedge/mode": "observe"}), caplog.at_level(logging.DEBUG, "faulttolerance"):
        call = load()
        sleep(0.1)
        assert "only observed" not in caplog.text
        end.set()
        assert call.result(PATIENCE)

    assert [record.thread for record in caplog.records if "only observed" in record.getMessage()] == threads


def test_a_circuit_hears_of_calls_in_a_task_that_outlives_its_race() -> None:
    """By rules H5 and X7: without hedges no attempt of a call can lose; a race in which its task began is another's."""
    caller = Guard(name="acme.caller", hedge=Hedge(**AFTER_100))
    breaker = CircuitBreaker(request_volume_threshold=2, failure_ratio=1.0)
    callee = Guard(name="acme.callee", hedge=Hedge(**AFTER_100), circuit_breaker=breaker)
    begun: list[asyncio.Task[list[str]]] = []

    async def fails() -> None:
        raise OSError

    async def later() -> list[str]:
        await asyncio.sleep(1)
        return [type(await outcome(callee.call_async(fails))).__name__ for _ in range(4)]

    async def outcome(call: Awaitable[None]) -> BaseException | None:
        try:
            return await call
        except Exception as failure:
            return failure

    async def begins() -> None:
        begun.append(asyncio.ensure_future(later()))

    async def main() -> list[str]:
        await caller.call_async(begins)
        return await begun[0]

    with virtual_time() as virtual, testing.configured({"acme.callee/Hedge/mode": "observe"}):
        assert virtual.run(main()) == [*["OSError"] * 2, *["CircuitBreakerOpenException"] * 2]


def test_a_bulkhead_that_is_observed_keeps_no_hedge_back() -> None:
    """Rule X7: hedges pass it beyond its limit."""
    script, policies = [(1.0, "slow"), (0.1, "quick")], {"hedge": AFTER_100, "bulkhead": {"value": 1}}
    race = Race(of("async-def"), *script, configured="Bulkhead", **policies)

    assert race.outcomes == ["quick"]


def test_calls_that_share_a_result_and_calls_with_a_key_are_hedged() -> None:
    """By rule H1: the leader of a flight is hedged for all; each key has a delay of its own."""
    began: list[str] = []

    class Shop:
        @coalesce
        @partition_by("order")
        @hedge(quantile=0.5)
        async def load(self, order: str) -> str:
            began.append(order)
            await asyncio.sleep(0.1 if order == "slow" else 0.01 if len(began) != 129 else 3.0)
            return order

    async def main() -> float:
        shop, now = Shop(), asyncio.get_running_loop().time
        for order in ("slow", "quick"):
            for _ in range(64):
                await shop.load(order)
        before = now()
        assert await asyncio.gather(*(shop.load("quick") for _ in range(5))) == ["quick"] * 5
        return now() - before

    with virtual_time() as clock:
        assert clock.run(main()) == pytest.approx(0.02, abs=0.001)
    assert began[128:] == ["quick"] * 2


def test_a_key_whose_hedges_a_declared_budget_pays_is_idle_between_calls() -> None:
    """By rule N3: it leaves before a key that has spent tokens, which would get them back."""
    attempts: list[str] = []

    @partition_by("key", max_partitions=2)
    @retry_budget(ratio=0.01, burst=11)
    @retry(max_retries=1, jitter=0)
    @hedge
    async def load(key: str) -> None:
        attempts.append(key)
        if key == "fails":
            raise OSError

    async def main() -> None:
        for key in [*["fails"] * 11, "idle", "new", "fails"]:
            await asyncio.gather(load(key), return_exceptions=True)

    with virtual_time() as clock:
        clock.run(main())
    assert attempts.count("fails") == 2 * 11 + 1


def test_the_fallback_answers_for_a_race_that_nobody_wins() -> None:
    """By rule H4: it is asked once, for the failure of the first attempt."""
    asked: list[BaseException] = []

    @fallback(lambda context: asked.append(context.failure) or "instead")
    @hedge(delay=100)
    async def load() -> str:
        await asyncio.sleep(1)
        raise OSError("down")

    with virtual_time() as clock:
        assert clock.run(load()) == "instead"
    assert [type(one) for one in asked] == [OSError]


def test_hooks_and_fallbacks_of_retried_races_get_the_arguments_of_the_call() -> None:
    """The number of the attempt, which a race hands to its attempts, stays inside."""
    seen: list[tuple[object, ...]] = []

    def look(context: ExecutionContext) -> str:
        seen.append((context.args, context.kwargs, context.parameters))
        return "instead"

    @retry(max_retries=2, delay=0, jitter=0)
    @hedge(delay=100)
    @before_retry(look)
    @fallback(look)
    async def load(number: int, *, size: int = 1) -> str:
        raise OSError("down")

    with virtual_time() as clock:
        assert clock.run(load(1, size=2)) == "instead"
    assert seen == [((1,), {"size": 2}, (1, 2))] * 3


def test_a_plain_function_is_raced_on_threads_by_a_guard() -> None:
    """By rule H5: ``call_async`` runs each attempt on a thread; the loser is interrupted."""
    guard, lost = Guard(hedge=Hedge(delay=100, quantile=0), timeout=Timeout(9000)), []
    began: list[int] = []

    def load() -> str:
        number = len(began)
        began.append(number)
        try:
            sleep(0.1 if number else 5.0)
        except BaseException as error:
            lost.append(type(error).__name__)
            raise
        return f"attempt {number}"

    async def main() -> str:
        result = await guard.call_async(load)
        await asyncio.sleep(4)
        return result

    with virtual_time() as clock:
        assert clock.run(main()) == "attempt 1"
    assert lost == ["Interrupted"]


def test_a_function_that_returns_an_awaitable_is_raced() -> None:
    """By rule H3: also an ``@asynchronous_non_blocking def``, whose attempts end when its awaitable has."""
    began: list[int] = []

    @asynchronous_non_blocking
    @hedge(delay=100)
    @bulkhead(2)
    def load() -> Any:
        began.append(len(began))
        return asyncio.sleep(5.0 if len(began) == 1 else 0.1, f"attempt {len(began)}")

    async def main() -> Any:
        return await load()

    with virtual_time() as clock:
        assert clock.run(main()) == "attempt 2"


def test_the_learned_delay_outlives_a_reload() -> None:
    """By rule H1: a new quantile is taken of the samples that there are; the page of live values shows the delay."""

    class Shop:
        @hedge
        async def load(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    async def main() -> None:
        for number in range(64):
            await Shop().load(number / 1000)

    with virtual_time() as clock:
        clock.run(main())
        assert "now hedging after 60 ms" in explain(Shop, "load")
        configure(properties={"Hedge/quantile": "0.5"})
        reload()
        assert "now hedging after 32 ms" in explain(Shop, "load")
    configure(properties={})


def test_nothing_is_left_of_a_race() -> None:
    """By rule H5: no task, no complaint of the loop about an unseen failure, and no result that is kept."""
    complaints: list[Any] = []

    class Answer:
        pass

    @hedge(delay=100)
    @retry(max_retries=0)
    async def load(number: int) -> Answer:
        await asyncio.sleep(0.3 if len(seen) % 2 else 1.0)
        seen.append(number)
        if number % 3:
            raise OSError(number)
        return Answer()

    seen: list[int] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await asyncio.gather(*(load(number) for number in range(30)), return_exceptions=True)
        await asyncio.sleep(3)
        gc.collect()
        assert len(asyncio.all_tasks()) == 1

    with virtual_time() as clock:
        clock.run(main())
    gc.collect()
    assert complaints == []
    assert not [one for one in gc.get_objects() if type(one) is Answer]


def test_a_race_inside_a_race_is_a_race_of_its_own() -> None:
    """By rule H3: the attempts of an inner guard belong to its race; the outer race ends them all when it is lost."""
    began: list[str] = []

    @hedge(delay=100)
    async def inner() -> str:
        began.append("inner")
        await asyncio.sleep(5)
        return "inner"

    @hedge(delay=250)
    async def outer() -> str:
        began.append("outer")
        if began.count("outer") == 1:
            return await inner()
        await asyncio.sleep(0.05)
        return "outer"

    async def main() -> str:
        result = await outer()
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 1
        return result

    with virtual_time() as clock:
        assert clock.run(main()) == "outer"
    assert began == ["outer", "inner", "inner", "outer"]


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_in_the_child_of_a_fork_the_first_attempt_goes_on_alone() -> None:
    """By rule H5: its call ends there, too, and no hedge is sent."""
    done = python(
        """
        import os, select
        from faulttolerance import asynchronous, hedge, sleep

        read, write = os.pipe()
        parent, began = os.getpid(), []

        @asynchronous
        @hedge(delay=300, quantile=0)
        def load():
            began.append(None)
            sleep(0.1)
            if os.fork() == 0:
                sleep(0.5)
                return f"{len(began)} attempt"
            return "parent"

        def tell(future):
            if os.getpid() != parent:
                os.write(write, future.result().encode())
                os._exit(0)

        future = load()
        future.add_done_callback(tell)
        assert future.result(5) == "parent"
        assert select.select([read], [], [], 20)[0]
        print(os.read(read, 100).decode())
    """,
        "-W",
        "ignore::DeprecationWarning",
    )  # from 3.12 on, of the fork

    assert (done.stdout.strip(), done.stderr) == ("1 attempt", "")


@pytest.mark.outside
def test_hedges_are_sent_while_a_shutdown_waits() -> None:
    """By rule H1: they belong to a call that is under way."""
    done = python("""
        import threading
        from faulttolerance import asynchronous, hedge, shutdown, sleep

        began = []

        @asynchronous
        @hedge(delay=200, quantile=0)
        def load():
            began.append(None)
            sleep(5 if len(began) == 1 else 0)
            return len(began)

        future = load()
        threading.Timer(0.05, shutdown, [10]).start()
        print(future.result(5))
    """)

    assert (done.stdout.strip(), done.stderr) == ("2", "")


def test_a_class_hedges_its_asynchronous_methods() -> None:
    """By rule H6: another one is refused when it is called, or exempted; a decorator above may make it so."""
    began: list[None] = []

    @hedge(delay=100)
    class Client:
        async def load(self) -> str:
            began.append(None)
            await asyncio.sleep(3 if len(began) == 1 else 0)
            return "loaded"

        def count(self):  # type: ignore[no-untyped-def]
            return 1

        @unguarded
        def close(self) -> None: ...

    @asynchronous
    @hedge(delay=100)
    class Apart:
        def load(self):  # type: ignore[no-untyped-def]
            return "loaded"

    with virtual_time() as clock:
        assert clock.run(Client().load()) == "loaded"
        assert len(began) == 2
        assert Apart().load().result(5) == "loaded"
    Client().close()
    with pytest.raises(FaultToleranceDefinitionException, match="@unguarded exempts"):
        Client().count()


@ways
def test_all_attempts_of_a_call_share_the_deadline(way: Way) -> None:
    """By rule H2, rule D2: no hedge is due at it; when it passes, every attempt is ended, and none has failed."""

    async def scene(run: Run) -> None:
        await run.call()
        await run.passes(1)

    policies = {
        "deadline": 250,
        "retry": {"max_retries": 3, "jitter": 0},
        "circuit_breaker": {"request_volume_threshold": 1},
        "bulkhead": {"value": 9},
    }
    race = Race(way, (SLOW, "slow"), scene=scene, hedge={**AFTER_100, "max_hedges": 5}, **policies)

    assert race.outcomes == ["TimeoutException"]
    assert race.sent == [(1, 0.1), (2, 0.2)]
    assert race.lost(0.25) == [0, 1, 2]
    assert race.run.state == "closed"
