"""A limit that adapts, through public names: rules A1 to A4, in every way of calling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

pytest.importorskip("pydantic_settings")

from faulttolerance import (
    BulkheadException,
    Guard,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    configure,
    explain,
    fail_when,
    guards,
    health,
    partition_by,
    reload,
    retry,
    timeout,
    validate,
)
from faulttolerance.instrumentation import LimitChanged, get_event_sinks, set_event_sinks
from faulttolerance.policies import Bulkhead, Timeout
from faulttolerance.testing import configured, virtual_time
from kit import Clock, Invoke, Service, key
from kit.definition import refused

_numbers = count()
LATE, IN_TIME = 0.5, 0.1
ADAPTIVE = bulkhead(10, latency=250)


class Takes(Service):
    """A service with the instructions for its body."""

    seconds = 0.0
    failure: BaseException | None = None


class Client:
    """An object with a guarded service, and a view of its limit."""

    def __init__(self, invoke: Invoke, *decorators: Callable[[Any], Any]) -> None:
        async def service(self: Takes) -> str:
            self.executions += 1
            if self.seconds:
                await invoke.sleep(self.seconds)
            if self.failure is not None:
                raise self.failure
            return "served"

        name = f"Limited{next(_numbers)}"
        service.__qualname__ = f"{name}.service"
        guarded = invoke.body(service)
        for decorate in decorators[::-1]:
            guarded = decorate(guarded)
        self.served: Any = type(name, (Takes,), {"service": guarded, "__module__": __name__})()
        self.name = f"{key(type(self.served))}.service"
        self._invoke = invoke

    def call(self, *seconds: float, failure: BaseException | None = None) -> list[Any]:
        """Call once for each duration, one after the other, and return the outcomes."""
        self.served.failure = failure
        ends = []
        for self.served.seconds in seconds:
            ends.append(self._invoke.outcome(self.served.service))
        return ends

    def key(self, *parts: str) -> str:
        """Return a configuration key."""
        return key(type(self.served), "service", *parts)

    @property
    def limit(self) -> int:
        """Return the limit, of the gauge and of the text."""
        return limit_of(self.name)


def limit_of(name: str) -> int:
    (guard,) = [one for one in guards() if one.name == name]
    limit = guard.counts["ft.bulkhead.limit", ()]
    assert f"limit now {limit} of" in guard.conditions["Bulkhead"]
    return limit


@contextmanager
def told() -> Iterator[list[LimitChanged]]:
    """Yield the events of limits within the block."""
    events: list[LimitChanged] = []
    before = get_event_sinks()
    set_event_sinks([lambda event: events.append(event) if isinstance(event, LimitChanged) else None])
    try:
        yield events
    finally:
        set_event_sinks(before)


def test_it_falls_when_calls_are_late_and_rises_when_they_are_in_time(invoke: Invoke) -> None:
    """By rule A1: to a part of the permits in use, and one by one up to its ceiling; each fall is an event."""
    client = Client(invoke, bulkhead(4, latency=250))
    with told() as events:
        assert client.call(LATE, LATE) == ["served"] * 2
        assert client.limit == 4
        client.call(LATE)
        assert client.limit == 1

        limits = []
        for _ in range(10):
            client.call(IN_TIME)
            limits.append(client.limit)

        # Alone a call uses half of a limit of 2 and no more; at its end it is one of those that run.
        assert limits == [2] * 10
        assert events == [LimitChanged(client.name, 4, 1)]


def test_it_rises_to_its_ceiling_while_it_is_in_use(invoke: Invoke) -> None:
    """By rule A1: not beyond the ceiling, however many calls succeed."""
    client = Client(invoke, bulkhead(2, latency=250))
    client.call(LATE, LATE, LATE)
    assert client.limit == 1

    client.call(*[IN_TIME] * 300)

    assert client.limit == 2


def test_time_outs_count_with_the_time_that_they_took(invoke: Invoke) -> None:
    """By rule A1, and rule X4: where the callee answers no call any more the limit falls too (traps 15 and 24)."""
    client = Client(invoke, timeout(1000), ADAPTIVE)

    assert client.call(2.0, 2.0, 2.0) == [TimeoutException] * 3

    assert client.limit == 1


def test_a_time_out_may_adapt_beside_it(invoke: Invoke) -> None:
    """By rule A1: where it ends calls before they are late it grows, until they are, and the limit falls."""
    client = Client(invoke, timeout(1000, adaptive=True), ADAPTIVE)
    client.call(*[0.03] * 64)
    client.call(*[5.0] * 4)
    assert client.limit == 10

    client.call(*[5.0] * 150)

    assert client.limit == 1


def test_a_body_that_goes_on_after_its_time_out_counts_once() -> None:
    """By rule A1: four calls that time out while their bodies go on count as four; the limit falls from there."""
    with virtual_time() as clock:

        @asynchronous
        @timeout(1000)
        @bulkhead(10, latency=990)
        async def stubborn() -> None:
            for _ in range(2):
                try:
                    await asyncio.sleep(1.5)
                except asyncio.CancelledError:
                    pass

        async def main() -> list[Any]:
            return await asyncio.gather(*(stubborn() for _ in range(4)), return_exceptions=True)

        assert [type(end) for end in clock.run(main())] == [TimeoutException] * 4

        assert limit_of(f"{stubborn.__module__}.{stubborn.__qualname__}") == 3


def test_failures_in_time_leave_it_as_it_is(invoke: Invoke) -> None:
    """By rule A3: they neither raise nor lower it; a late failure counts as late."""
    client = Client(invoke, bulkhead(2, latency=250))
    client.call(LATE, LATE, LATE)
    assert client.call(*[IN_TIME] * 30, failure=OSError()) == [OSError] * 30
    assert client.limit == 1
    client.call(IN_TIME)
    assert client.limit == 2

    client.call(*[LATE] * 3, failure=OSError())
    assert client.limit == 1

    client.call(*[IN_TIME] * 40)
    client.call(LATE, LATE)
    client.call(*[IN_TIME] * 60, failure=OSError())
    client.call(LATE, LATE)
    assert client.limit == 2
    client.call(LATE)
    assert client.limit == 1, "five of forty-five, and not of a hundred and five"


def test_control_flow_counts_only_where_it_was_late(invoke: Invoke, give_up: Any) -> None:
    """By rule A1: a caller that gives up before the target tells nothing; after it, it has waited too long."""
    client = Client(invoke, ADAPTIVE)
    client.served.seconds = 5.0
    for _ in range(5):
        give_up(client.served.service, 0.2)
    assert client.limit == 10

    for _ in range(3):
        give_up(client.served.service, 0.4)

    assert client.limit < 10


def test_each_attempt_of_a_call_counts_for_itself(invoke: Invoke) -> None:
    """By rule A1: three attempts in time make no late call, and the delay between two counts for none."""
    client = Client(invoke, retry(max_retries=2, delay=300, jitter=0), ADAPTIVE)
    client.call(*[0.2] * 3, failure=OSError())
    assert client.served.executions == 9
    assert client.limit == 10

    client.call(LATE, failure=OSError())

    assert client.limit == 1


def test_a_call_that_is_judged_is_measured_as_any(invoke: Invoke) -> None:
    """By rule A1: a judgement of the application does not change the measured time."""
    judged = fail_when(result=lambda result: True)
    client = Client(invoke, circuit_breaker(request_volume_threshold=99), judged, ADAPTIVE)

    client.call(LATE, LATE, LATE)

    assert client.limit == 1


@pytest.mark.parametrize("way", ["asyncio", "blocking"])
def test_waiting_for_a_permit_is_no_latency(way: str) -> None:
    """By rule A1: the time counts from the permit on, and a refusal of ours does not count."""
    guard = Guard(bulkhead=Bulkhead(2, 2, max_wait=900, latency=250), name="waits")
    with virtual_time() as clock:

        async def main() -> list[Any]:
            calls = [guard.call_async(asyncio.sleep, 0.2) for _ in range(5)]
            return await asyncio.gather(*calls, return_exceptions=True)

        def blocking() -> list[Any]:
            futures = []
            for _ in range(5):
                futures.append(clock.start(guard.call, clock.sleep, 0.2))
                clock.advance(0)
            clock.sleep(1)
            return [future.exception(1) for future in futures]

        for _ in range(3):
            ends = clock.run(main()) if way == "asyncio" else blocking()
            assert [type(end) for end in ends if end is not None] == [BulkheadException]

        assert limit_of("waits") == 2
    guard.close()


def test_an_observed_limit_moves_and_lets_all_run(invoke: Invoke) -> None:
    """By rule A1, and rule X7: it falls and rises as if it were obeyed (trap 17)."""
    client = Client(invoke, bulkhead(2, latency=250))
    with configured({client.key("Bulkhead", "mode"): "observe"}):
        client.call(LATE, LATE, LATE)
        assert client.limit == 1

        assert client.call(IN_TIME, IN_TIME) == ["served"] * 2

        assert client.limit == 2


def test_many_run_beyond_an_observed_limit() -> None:
    """By rule X7: a call beyond the limit of the moment counts as a refusal that would have been made."""
    guard = Guard(bulkhead=Bulkhead(10, 1, latency=250), name="seen")
    with configured({"seen/Bulkhead/mode": "observe"}), virtual_time() as clock:

        async def rush(seconds: float, times: int) -> None:
            await asyncio.gather(*(guard.call_async(asyncio.sleep, seconds) for _ in range(times)))

        clock.run(rush(0.5, 8))
        assert limit_of("seen") == 4
        clock.run(rush(0.1, 8))
        (seen,) = [one for one in guards() if one.name == "seen"]

        assert seen.counts["ft.observed.total", (("policy", "Bulkhead"),)] == 3
        assert seen.counts["ft.bulkhead.calls.total", (("bulkheadResult", "accepted"),)] == 16
        assert limit_of("seen") > 4
    guard.close()


def test_a_limit_that_falls_ends_nothing() -> None:
    """By rule A1: running calls go on, and further calls are refused until enough of them have left."""
    guard = Guard(bulkhead=Bulkhead(8, 1, latency=250, max_wait="10m"), name="falls")
    with virtual_time() as clock:

        async def main() -> list[str]:
            late = [asyncio.ensure_future(guard.call_async(asyncio.sleep, 0.5)) for _ in range(4)]
            long = [asyncio.ensure_future(guard.call_async(asyncio.sleep, 2.0, "over")) for _ in range(4)]
            await asyncio.gather(*late)
            assert limit_of("falls") == 4
            (seen,) = [one for one in guards() if one.name == "falls"]
            assert seen.conditions["Bulkhead"] == "4 of 4 running, limit now 4 of 8"
            waits = asyncio.ensure_future(guard.call_async(asyncio.sleep, 0.0))
            await asyncio.sleep(0)
            with pytest.raises(BulkheadException):
                await guard.call_async(asyncio.sleep, 0.0)
            ends = await asyncio.gather(*long)
            await waits
            return ends

        assert clock.run(main()) == ["over"] * 4
    guard.close()


def test_a_limit_that_fell_in_virtual_time_rises_again_afterwards() -> None:
    """By rule A1: an epoch ends with the virtual time in which it began."""
    guard = Guard(bulkhead=Bulkhead(4, latency="10s"), name="clocks")
    with virtual_time() as clock:
        for _ in range(3):
            guard.call(clock.sleep, 1000)
        assert limit_of("clocks") == 1

    guard.call(lambda: None)

    assert limit_of("clocks") == 2
    guard.close()


# Definition errors


def test_a_target_that_no_attempt_can_miss_is_a_definition_error() -> None:
    """By rule A3: in either order of the decorators, of a class, of a guard, for a time-out in any unit."""
    for decorators in ([timeout("0.5s"), bulkhead(latency=500)], [bulkhead(latency=500), timeout(500)]):
        with refused("@Bulkhead(latency) is 0.5 s, and attempts end after 0.5 s", "less than the time-out"):
            decorators[0](decorators[1](lambda: None))
    with refused("@Bulkhead(latency)"):
        Guard(timeout=Timeout(500), bulkhead=Bulkhead(latency=500))
    with refused("@Bulkhead(latency)"):

        @timeout(500)
        class Shop:
            @bulkhead(latency=600)
            def pay(self) -> None: ...

    timeout(0)(bulkhead(latency=500)(lambda: None))
    timeout(501)(bulkhead(latency=500)(lambda: None))
    timeout(1)(bulkhead(latency=0)(lambda: None))


@pytest.mark.parametrize(
    ("what", "value"), [("Bulkhead/latency", "1s"), ("Timeout/value", "250"), ("Bulkhead/latency", "1000")]
)
def test_a_configured_target_that_no_attempt_can_miss_is_an_error_too(what: str, value: str) -> None:
    """By rule A3: the error of effective values names their key; a reload leaves all values as they were."""

    @timeout(1000)
    @bulkhead(latency=250)
    def work() -> str:
        return "done"

    guard = Guard(timeout=Timeout(1000), bulkhead=Bulkhead(latency=250), name="configured")
    assert (work(), guard.call(work)) == ("done", "done")
    with refused("@Bulkhead(latency)", f"{what} in "):
        configure(properties={what: value})
    with configured({"Timeout/enabled": "false", "Bulkhead/latency": "1s"}):
        validate()
    assert work() == "done"
    guard.close()


@pytest.mark.parametrize("wrong", [-1, "soon", True, None, float("nan"), float("inf")])
def test_a_target_that_is_no_duration_is_refused(wrong: Any) -> None:
    """By rule A1: the decorator and the value refuse it."""
    with refused("@Bulkhead(latency)"):
        bulkhead(latency=wrong)(lambda: None)
    with refused("@Bulkhead(latency)"):
        Bulkhead(latency=wrong)


# The limit in `explain()` and in metrics


def test_the_current_limit_is_shown_beside_the_target(invoke: Invoke) -> None:
    """By rule X10: in ``explain()``, as text and for programs, and in ``guards()``."""
    client = Client(invoke, bulkhead(50, latency=250))
    client.call(LATE, LATE, LATE)

    told = explain(client.served.service)

    assert "latency = 250ms  [decorator]; limit now 1 of 50" in told
    (policy,) = [one for one in told.as_dict()["policies"] if one["annotation"] == "Bulkhead"]
    assert policy["now"] == "0 of 1 running, limit now 1 of 50"
    assert not any(client.name in reason for reason in health().reasons)


def test_the_gauge_is_there_where_a_limit_adapts_and_from_its_first_call_on(invoke: Invoke) -> None:
    """By rule A1: it starts at its ceiling; a limit that does not adapt has none (trap 34)."""
    client, other = Client(invoke, ADAPTIVE), Client(invoke, bulkhead(10))
    before = [dict(one.counts) for one in guards() if one.name in (client.name, other.name)]
    assert not any(("ft.bulkhead.limit", ()) in counts for counts in before)

    client.call(IN_TIME)
    other.call(IN_TIME)

    counts = {one.name: one.counts for one in guards()}
    assert counts[client.name]["ft.bulkhead.limit", ()] == 10
    assert ("ft.bulkhead.limit", ()) not in counts[other.name]


def test_a_wrong_target_is_reported_once(invoke: Invoke, caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    """By rule A4: after a minute at 1 in which calls that ran alone were late, and never again for this guard."""
    client = Client(invoke, ADAPTIVE)
    with caplog.at_level(logging.WARNING, "faulttolerance"):
        client.call(LATE, LATE, LATE)
        clock.sleep(58)
        client.call(LATE)
        assert caplog.messages == []
        clock.sleep(2)
        client.call(LATE, LATE)
        clock.sleep(100)
        client.call(LATE)

    (words,) = caplog.messages
    assert words.startswith(f"{client.name} ran one call at a time for a minute")
    assert "0.25 s" in words


def test_a_queue_hides_no_wrong_target(caplog: pytest.LogCaptureFixture) -> None:
    """By rule A4: a call ran alone, even where its permit goes to a waiter when it ends."""
    guard = Guard(bulkhead=Bulkhead(4, latency=250, max_wait="10m"), name=f"acme.limited{next(_numbers)}")

    async def client(clock: Any) -> None:
        while clock.monotonic() < until:
            await guard.call_async(asyncio.sleep, LATE)

    async def main(clock: Any) -> None:
        clients = [asyncio.create_task(client(clock)) for _ in range(8)]
        await asyncio.sleep(80)
        assert (limit_of(guard.name), len(caplog.messages)) == (1, 1)  # while seven wait
        await asyncio.gather(*clients)

    with caplog.at_level(logging.WARNING, "faulttolerance"), virtual_time() as clock:
        until = clock.monotonic() + 81
        clock.run(main(clock))


# Reload, keys, forks


def test_new_values_keep_the_lowered_limit(invoke: Invoke) -> None:
    """A lower ceiling clamps the limit, a higher one leaves it, and a target can come and go (trap 33)."""
    client = Client(invoke, bulkhead(8, latency=250))
    client.call(LATE, LATE, LATE)
    client.call(IN_TIME)
    assert client.limit == 2
    try:
        configure(properties={client.key("Bulkhead", "value"): 20})
        reload()
        assert client.limit == 2
        configure(properties={client.key("Bulkhead", "value"): 1})
        assert client.limit == 1
        configure(properties={client.key("Bulkhead", "latency"): 0})
        client.call(LATE, LATE, LATE)
        (guard,) = [one for one in guards() if one.name == client.name]
        assert guard.conditions["Bulkhead"] == "0 of 8 running"
        configure(properties={})
        client.call(LATE, LATE, LATE)
        assert client.limit == 1
    finally:
        configure(properties={})


def test_a_key_has_a_limit_of_its_own_and_is_kept_while_that_is_low() -> None:
    """By rule A1, and rule N2: a guard with a lowered limit is not idle, and the gauge is the sum of all."""
    with virtual_time() as clock:

        @partition_by("host", max_partitions=2)
        @bulkhead(5, latency=250)
        def fetch(host: str, seconds: float) -> None:
            clock.sleep(seconds)

        name = f"{fetch.__module__}.{fetch.__qualname__}"
        for _ in range(3):
            fetch("slow", LATE)
        (guard,) = [one for one in guards() if one.name == name]
        assert guard.counts["ft.bulkhead.limit", ()] == 1  # no call has needed what keys share that find no place
        assert guard.conditions["Bulkhead"] == "0 of 1 running, limit now 1 of 5"
        fetch("fine", IN_TIME)
        assert guard.counts["ft.bulkhead.limit", ()] == 5 + 1 + 5
        for host in "abcdef":
            fetch(host, IN_TIME)

        assert guard.counts["ft.bulkhead.limit", ()] == 5 + 1 + 5
