"""A time-out that adapts, through public names: rules E1 and E2."""

from __future__ import annotations

import asyncio
import os
from itertools import count, pairwise
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    TimeoutException,
    explain,
    guards,
    partition_by,
    remaining,
    sleep,
    timeout,
)
from faulttolerance.instrumentation import set_event_sinks
from faulttolerance.policies import Bulkhead, Hedge, RetryBudget, Timeout
from faulttolerance.testing import configured, virtual_time
from kit import Clock, Invoke
from kit.tiers import few_and_many

_numbers = count()


def guard_of(value: int = 1000, *, adaptive: bool = True, interrupt: bool = True, **policies: Any) -> Guard:
    """Return a guard with a time-out that adapts."""
    limit = Timeout(value, adaptive=adaptive, interrupt=interrupt)
    return Guard(timeout=limit, name=f"acme.adaptive.number{next(_numbers)}", **policies)


def limit_of(guard: Guard) -> float:
    """Return the limit for a call that begins now."""
    found = guard.call(remaining)
    assert found is not None
    return round(found, 9)


def outcomes(guard: Guard, seconds: float, times: int, failure: BaseException | None = None) -> set[str]:
    """Return the outcomes of *times* calls whose bodies take *seconds* each."""

    def body() -> None:
        sleep(seconds)
        if failure is not None:
            raise failure

    found = set()
    for _ in range(times):
        try:
            guard.call(body)
            found.add("served")
        except BaseException as error:  # control flow of an application among them
            found.add(type(error).__name__)
    return found


def shown(name: str) -> dict[str, float]:
    """Return the counts of a method, by the name of the metric."""
    guard = [guard for guard in guards() if guard.name == name][-1]  # the others were those of other ways
    return {metric: value for (metric, _), value in guard.counts.items()}


@pytest.mark.parametrize(
    ("value", "took", "calls", "least", "most"),
    [
        (1000, 0.02, 63, 1.0, 1.0),
        (1000, 0.02, 64, 0.06, 0.066),
        (1000, 0.1, 64, 0.3, 0.33),
        (1000, 0.0, 64, 0.01, 0.01),
        (1000, 0.4, 64, 1.0, 1.0),
        (50, 0.02, 64, 0.05, 0.05),
        (5, 0.0, 64, 0.005, 0.005),
        (0, 0.02, 64, None, None),
    ],
    ids=["no 64 samples yet", "three times", "and again", "10 ms", "the value", "a lower value", "below 10 ms", "none"],
)
def test_the_limit_is_three_times_the_99th_percentile(
    clock: Clock, value: int, took: float, calls: int, least: float | None, most: float | None
) -> None:
    """By rule E1: at most the value, at least 10 ms, and the value alone before 64 samples."""
    guard = guard_of(value)

    outcomes(guard, took, calls)

    found = guard.call(remaining)
    assert found is None if least is None or most is None else least <= round(found or 0.0, 9) <= most


def test_a_rare_slow_attempt_leaves_the_limit_where_it_is(clock: Clock) -> None:
    """By rule E1: the 99th percentile is neither the slowest one nor the average."""
    guard = guard_of()
    for number in range(512):
        outcomes(guard, 0.2 if number in (100, 300) else 0.02, 1)

    assert 0.06 <= limit_of(guard) <= 0.066


def test_a_method_that_has_become_slower_gets_more_time(clock: Clock) -> None:
    """By rule E1 and trap 24: attempts that the limit has ended are samples, so it holds after a while.

    Nothing ends in time at first; from successes alone it would never be known how long it takes now.
    """
    guard = guard_of(10_000)
    outcomes(guard, 0.02, 64)
    assert outcomes(guard, 0.4, 64) == {"TimeoutException"}

    outcomes(guard, 0.4, 128)

    assert outcomes(guard, 0.4, 100) == {"served"}
    assert 1.2 <= limit_of(guard) <= 1.4


def test_in_a_hang_the_limit_ends_at_the_value(clock: Clock) -> None:
    """By rule E1: it grows while all attempts time out; the circuit breaker has to end that."""
    guard = guard_of()
    outcomes(guard, 0.01, 64)

    assert outcomes(guard, 60.0, 256) == {"TimeoutException"}

    assert limit_of(guard) == 1.0


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt, asyncio.CancelledError])
def test_a_failure_is_no_sample(clock: Clock, failure: type[BaseException]) -> None:
    """By rule X4: neither a failure nor control flow, of any duration."""
    guard = guard_of()
    outcomes(guard, 0.001, 64)

    outcomes(guard, 0.0099, 256, failure())

    assert limit_of(guard) == 0.01


def test_a_wait_for_a_permit_is_no_part_of_the_latency(clock: Clock) -> None:
    """By rule X4: a latency begins with the permit, although the deadline counts the wait."""
    guard = guard_of(bulkhead=Bulkhead(1, waiting_task_queue=100))

    async def crowd() -> None:
        async def body() -> None:
            await asyncio.sleep(0.01)

        await asyncio.gather(*[guard.call_async(body) for _ in range(80)])

    clock.run(crowd())

    assert 0.03 <= limit_of(guard) <= 0.033


@pytest.mark.parametrize("offloaded", [False, True])
def test_a_first_attempt_that_lost_to_its_hedge_is_a_sample(clock: Clock, offloaded: bool) -> None:
    """By rule X4 and trap 4: with the time until its end; from winners alone the limit would be too low."""
    policies: dict[str, Any] = {"hedge": Hedge(quantile=0, delay=100), "retry_budget": RetryBudget(1.0, 100)}
    guard, begun = guard_of(**policies), []

    async def body() -> None:
        begun.append(len(begun))
        await asyncio.sleep(0.02 if begun[-1] % 2 else 5.0)

    def blocking() -> None:
        begun.append(len(begun))
        sleep(0.02 if begun[-1] % 2 else 5.0)

    async def calls() -> None:
        for _ in range(32):
            await guard.call_async(blocking if offloaded else body)

    clock.run(calls())

    assert len(begun) == 64
    assert 0.36 <= shown(guard.name)["ft.timeout.limit"] <= 0.4


def test_a_call_keeps_the_limit_that_it_began_with(clock: Clock) -> None:
    """By rule E2: other calls neither shorten nor lengthen it."""
    guard = guard_of()
    left = []

    def body() -> None:
        outcomes(guard, 0.0, 64)
        sleep(0.5)
        left.append(remaining())

    guard.call(body)

    assert left == [pytest.approx(0.5)]
    with pytest.raises(TimeoutException, match=r"timed out after 0\.01 s"):
        guard.call(sleep, 60)
    slow, began = guard_of(), clock.monotonic()
    with pytest.raises(TimeoutException):
        slow.call(lambda: (outcomes(slow, 0.0, 64), sleep(60)))
    assert clock.monotonic() - began == pytest.approx(1.0)
    assert limit_of(guard) == 0.01


@few_and_many("step", 7, 1, "lengths")
def test_there_are_few_lengths(clock: Clock, step: int) -> None:
    """By rule E2: the lengths are those of a series that grows by a tenth."""
    guard = guard_of(100_000)
    limits = set()

    for took in range(100, 300, step):
        outcomes(guard, took / 1000, 64)
        limits.add(limit_of(guard))

    assert len(limits) <= 13
    ordered = sorted(limits)
    assert [after / before for before, after in pairwise(ordered)] == pytest.approx([1.1] * (len(ordered) - 1))


def test_a_time_out_names_the_limit_that_passed(invoke: Invoke) -> None:
    """By rule E2: in its message and event, although other calls have moved the limit since, in every environment."""

    class Client:
        @timeout(1000, adaptive=True)
        @invoke.body
        async def fetch(self, seconds: float) -> None:
            await invoke.sleep(seconds)

    client = Client()
    for _ in range(64):
        invoke(client.fetch, 0.02)

    events: list[Any] = []
    set_event_sinks([events.append])
    try:
        with pytest.raises(TimeoutException, match=r"fetch: timed out after 0\.0611591 s(\n|$)"):
            invoke(client.fetch, 5.0)
    finally:
        set_event_sinks(None)

    assert [event.limit for event in events if hasattr(event, "limit")] == [pytest.approx(0.0611591)]


def test_a_result_that_is_late_without_an_interruption_is_a_sample(clock: Clock) -> None:
    """By rule E1: with ``interrupt=False`` as well, with all the time that it took."""
    guard = guard_of(interrupt=False)
    outcomes(guard, 0.02, 64)

    assert outcomes(guard, 0.1, 64) == {"TimeoutException"}

    assert 0.3 <= limit_of(guard) <= 0.33


def test_the_limit_in_force_is_shown(clock: Clock) -> None:
    """By rule X10: beside the value, in ``explain``, ``guards`` and a gauge."""
    guard = guard_of()
    outcomes(guard, 0.001, 1)
    assert "limit now 1 s of 1 s" in explain(guard)

    outcomes(guard, 0.07, 63)

    assert "adaptive = true  [decorator]; limit now 0.211 s of 1 s" in explain(guard)
    (control,) = [one for one in guards() if one.name == guard.name]
    assert "limit now 0.211 s of 1 s" in control.conditions["Timeout"]
    assert shown(guard.name)["ft.timeout.limit"] == pytest.approx(0.2115, abs=0.001)


def test_a_time_out_that_does_not_adapt_shows_no_limit(clock: Clock) -> None:
    """By rule X8: no gauge, no condition, and the usual code of the call."""
    plain, adaptive = guard_of(adaptive=False), guard_of()
    outcomes(plain, 0.0, 1)
    outcomes(adaptive, 0.0, 1)

    assert "ft.timeout.limit" not in shown(plain.name)
    assert "limit now" not in explain(plain)
    assert (
        explain(plain, source=True).partition("def attempt")[2]
        == explain(adaptive, source=True).partition("def attempt")[2]
    )


def test_configuration_switches_it_on_and_off(clock: Clock) -> None:
    """By the key ``Timeout/adaptive``: it overrides the declaration in both directions."""
    guard = guard_of(adaptive=False)
    with configured({f"{guard.name}/Timeout/adaptive": "true"}):
        outcomes(guard, 0.02, 64)
        assert 0.06 <= limit_of(guard) <= 0.066

    assert limit_of(guard) == 1.0


def test_a_reload_keeps_the_samples_and_clamps(clock: Clock) -> None:
    """By rule X5: a new value is a new ceiling, and no sample is lost."""
    guard = guard_of()
    outcomes(guard, 0.1, 64)

    with configured({f"{guard.name}/Timeout/value": "200"}):
        assert limit_of(guard) == 0.2
    assert 0.3 <= limit_of(guard) <= 0.33
    with configured({f"{guard.name}/Timeout/enabled": "false"}):
        assert guard.call(remaining) is None
    assert 0.3 <= limit_of(guard) <= 0.33


def test_observed_it_learns_as_if_it_ended_attempts(invoke: Invoke) -> None:
    """By rule X7: it ends no attempt, and the limit grows as if it did."""

    class Client:
        @timeout(1000, adaptive=True)
        @invoke.body
        async def fetch(self, seconds: float) -> str:
            await invoke.sleep(seconds)
            return "served"

    client, name = Client(), f"{Client.__module__}.{Client.__qualname__}.fetch"
    with configured({f"{Client.__module__}.{Client.__qualname__}/fetch/Timeout/mode": "observe"}):
        for _ in range(64):
            invoke(client.fetch, 0.02)
        assert 0.06 <= shown(name)["ft.timeout.limit"] <= 0.066

        assert {invoke(client.fetch, 5.0) for _ in range(64)} == {"served"}

        assert shown(name)["ft.observed.total"] == 64
        assert 0.18 <= shown(name)["ft.timeout.limit"] <= 0.22


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_first_attempt_that_lost_is_a_sample_in_each_mode(mode: str) -> None:
    """By rules X4 and X7: of the time until then, also if the time-out is only observed."""
    name = f"acme.adaptive.number{next(_numbers)}"
    policies: Any = {"hedge": Hedge(delay=50, quantile=0), "retry_budget": RetryBudget(burst=100)}
    guard = Guard(timeout=Timeout(1000, adaptive=True), name=name, **policies)
    bodies = count()

    async def main() -> None:
        for _ in range(64):
            await guard.call_async(lambda: asyncio.sleep(0.01 if next(bodies) % 2 else 0.9))

    with virtual_time() as virtual, configured({f"{name}/Timeout/mode": mode}):
        virtual.run(main())
        assert 0.18 <= shown(name)["ft.timeout.limit"] <= 0.2


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_an_attempt_that_ends_because_an_attempt_around_it_lost_is_no_sample(mode: str) -> None:
    """By rule X4: a cancellation from outside says nothing about the callee."""
    name = f"acme.adaptive.number{next(_numbers)}"
    outer = Guard(name=f"{name}.outer", hedge=Hedge(delay=50, quantile=0), retry_budget=RetryBudget(burst=100))
    inner = Guard(name=name, timeout=Timeout(1000, adaptive=True))
    bodies = count()

    async def body() -> None:
        await inner.call_async(asyncio.sleep, 0.01 if next(bodies) % 2 else 0.9)

    async def main() -> None:
        for _ in range(64):
            await outer.call_async(body)

    with virtual_time() as virtual, configured({f"{name}/Timeout/mode": mode}):
        virtual.run(main())
        assert 0.03 <= shown(name)["ft.timeout.limit"] <= 0.033


def test_each_key_has_a_limit_of_its_own(clock: Clock) -> None:
    """By rule N1: one ring for each partition."""

    class Hosts:
        @partition_by("host")
        @timeout(1000, adaptive=True)
        def fetch(self, host: str, seconds: float) -> float | None:
            sleep(seconds)
            return remaining()

    hosts = Hosts()
    for _ in range(64):
        hosts.fetch("near", 0.001)
        hosts.fetch("far", 0.1)

    assert [round(hosts.fetch(host, 0.0) or 0.0, 2) for host in ("near", "far")] == [0.01, 0.31]
    (guard,) = [one for one in guards() if one.name.endswith("Hosts.fetch")]
    assert round(guard.counts["ft.timeout.limit", ()], 2) == 0.31  # the longest of those that calls have
    assert "limit now" in guard.conditions["Timeout"]
    assert "no p99 yet" not in guard.conditions["Timeout"]


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_goes_on_with_the_samples() -> None:
    """By rule X5: the samples stay in the child of a fork."""
    with virtual_time():
        guard = guard_of()
        outcomes(guard, 0.02, 64)

        child = os.fork()
        if not child:
            os._exit(0 if limit_of(guard) < 0.1 else 1)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_a_value_that_is_no_flag_is_refused(value: Any) -> None:
    """The error names the parameter, and what is allowed."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"Timeout.*adaptive.*True or False"):
        timeout(1000, adaptive=value)(lambda: None)
