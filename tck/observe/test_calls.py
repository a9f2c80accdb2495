"""The modes of rule X7, and rule X8: policies that are only observed, in every way of calling."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from faulttolerance import (
    ChronoUnit,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    Interrupted,
    TimeoutException,
    adaptive_throttle,
    asynchronous,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    configure,
    deadline,
    explain,
    fallback,
    guards,
    health,
    rate_limit,
    reload,
    remaining,
    retry,
    sleep,
    timeout,
    validate,
)
from faulttolerance.policies import Bulkhead, RateLimit, Retry, Timeout
from faulttolerance.testing import configured
from kit import Clock, Invoke, Service, key

_numbers = count()
BREAKER = {"request_volume_threshold": 2, "failure_ratio": 1.0, "delay": 5000}


class Takes(Service):
    """A client whose body takes some time, and may fail."""

    seconds = 0.0
    failure: BaseException | None = None
    left: float | None = None


def client_of(invoke: Invoke, *decorators: Callable[[Any], Any]) -> tuple[Takes, str]:
    """Return an object whose service is guarded, and the name of its guard."""

    async def service(self: Takes) -> str:
        self.executions += 1
        self.left = remaining()
        if self.seconds:
            await invoke.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return "served"

    name = f"Observed{next(_numbers)}"
    service.__qualname__ = f"{name}.service"
    guarded = invoke.body(service)
    for decorate in decorators[::-1]:
        guarded = decorate(guarded)
    client: Any = type(name, (Takes,), {"service": guarded, "__module__": __name__})()
    return client, f"{key(type(client))}.service"


def observing(client: Any, annotation: str) -> Any:
    """Observe a policy of the client's service in a block."""
    return configured({key(type(client), "service", annotation, "mode"): "observe"})


def counted(name: str) -> dict[str, float]:
    """Return the counts that are not 0, by the metric and the values of its tags."""
    (guard,) = [one for one in guards() if one.name == name]
    return {
        " ".join([metric, *(value for _, value in tags)]): value
        for (metric, tags), value in guard.counts.items()
        if value and "state.total" not in metric
    }


def seen(name: str, annotation: str) -> float:
    """Return the number of attempts that the policy would have refused."""
    return counted(name).get(f"ft.observed.total {annotation}", 0)


# Circuit breaker


def test_an_observed_circuit_opens_and_lets_calls_by(invoke: Invoke) -> None:
    """By rule X7: it decides as if it were obeyed, and the counts show the calls that happened."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    with observing(client, "CircuitBreaker"):
        client.failure = OSError()
        assert [invoke.outcome(client.service) for _ in range(2)] == [OSError, OSError]
        assert circuit_breakers.state(name) == "open"
        client.failure = None

        assert [invoke(client.service) for _ in range(3)] == ["served"] * 3

        assert client.executions == 5
        assert circuit_breakers.state(name) == "open"
        assert counted(name) == {
            "ft.invocations.total exceptionThrown notDefined": 2,
            "ft.invocations.total valueReturned notDefined": 3,
            "ft.circuitbreaker.calls.total failure": 2,
            "ft.circuitbreaker.calls.total success": 3,
            "ft.circuitbreaker.opened.total": 1,
            "ft.observed.total CircuitBreaker": 3,
        }


def test_an_observed_circuit_impairs_nothing(invoke: Invoke) -> None:
    """By rule X7: its state has no effect, so it neither degrades a service nor takes it out of rotation."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    client.failure = OSError()
    with observing(client, "CircuitBreaker"):
        for _ in range(2):
            invoke.outcome(client.service)
        (guard,) = guards(name)
        observed = guard.conditions, guard.impaired, [name in reason for reason in health(name).reasons]

    assert observed[0]["CircuitBreaker"].startswith("open for ")
    assert observed[1:] == ((), [])
    assert invoke.outcome(client.service) is CircuitBreakerOpenException, "it is enforced again"
    assert guard.impaired == ("CircuitBreaker",)
    assert any(name in reason for reason in health(name).reasons)


def test_the_log_says_that_an_open_circuit_is_only_observed(invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    client, _ = client_of(invoke, circuit_breaker(**BREAKER))
    client.failure = OSError()
    with observing(client, "CircuitBreaker"), caplog.at_level(logging.WARNING, logger="faulttolerance"):
        for _ in range(2):
            invoke.outcome(client.service)

    (opened,) = [record.getMessage() for record in caplog.records if "circuit breaker opened" in record.getMessage()]
    assert opened.endswith("next probe in 5 s; it is only observed")


@pytest.mark.parametrize(
    ("switch", "value", "mode"), [("mode", "observe", "only observed"), ("enabled", "false", "switched off")]
)
def test_a_circuit_that_refuses_nothing_says_so_when_it_is_forced_open(
    invoke: Invoke, caplog: pytest.LogCaptureFixture, switch: str, value: str, mode: str
) -> None:
    """By rules C7 and X7: the mode of a policy is not changed by a command, which must not seem to work."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    invoke(client.service)
    with configured({key(type(client), "service", "CircuitBreaker", switch): value}):
        circuit_breakers.force_open(name)
        assert invoke(client.service) == "served"

    told = [record.getMessage() for record in caplog.records if "refuses no call" in record.getMessage()]
    assert told == [f"force_open({name!r}) refuses no call of {name}: its circuit breaker is {mode}"]
    assert invoke.outcome(client.service) is CircuitBreakerOpenException, "it takes effect once it is enforced"


def test_an_observed_circuit_closes_by_its_probe(invoke: Invoke, clock: Clock) -> None:
    """By rule X7: half-open, it counts the results of as many calls as it would admit."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    with observing(client, "CircuitBreaker"):
        client.failure = OSError()
        for _ in range(3):
            invoke.outcome(client.service)
        client.failure = None
        clock.sleep(5)

        assert invoke(client.service) == "served"

        assert circuit_breakers.state(name) == "closed"
        assert seen(name, "CircuitBreaker") == 1


def test_an_observed_circuit_counts_no_call_that_it_would_refuse(invoke: Invoke, clock: Clock) -> None:
    """By rule X7: failures while it is open do not open it a second time."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    with observing(client, "CircuitBreaker"):
        client.failure = OSError()
        for _ in range(6):
            invoke.outcome(client.service)

        assert circuit_breakers.snapshot(name).opened == 1
        assert seen(name, "CircuitBreaker") == 4


def test_each_attempt_is_counted(invoke: Invoke) -> None:
    """By rule X7: each attempt that would be refused counts once; retry and fallback work as before."""
    client, name = client_of(
        invoke, fallback(lambda _: "replaced"), retry(max_retries=3, jitter=0), circuit_breaker(**BREAKER)
    )
    client.failure = OSError()
    with observing(client, "CircuitBreaker"):
        assert invoke(client.service) == "replaced"

        assert client.executions == 4
        assert seen(name, "CircuitBreaker") == 2


# Adaptive throttle, rate limit


def test_an_observed_throttle_lets_all_by(invoke: Invoke) -> None:
    """By rule X7: its probability is that of an enforced throttle: it learns only of attempts that it would admit."""
    client, name = client_of(invoke, adaptive_throttle(min_requests=1))
    client.failure = OSError()
    with observing(client, "AdaptiveThrottle"):
        assert [invoke.outcome(client.service) for _ in range(60)] == [OSError] * 60

        assert seen(name, "AdaptiveThrottle") > 10
        assert "ft.throttle.calls.total refused" not in counted(name)


def test_an_observed_rate_limit_lets_all_by(invoke: Invoke, clock: Clock) -> None:
    """By rule X7: its window holds the attempts that it would admit."""
    client, name = client_of(invoke, rate_limit(2, window=1, window_unit=ChronoUnit.SECONDS))
    with observing(client, "RateLimit"):
        assert [invoke(client.service) for _ in range(5)] == ["served"] * 5
        assert seen(name, "RateLimit") == 3
        clock.sleep(1)

        assert invoke(client.service) == "served"

        assert seen(name, "RateLimit") == 3
        assert counted(name)["ft.ratelimit.calls.total permitted"] == 6


def test_a_rate_limit_that_is_enforced_again_admits_a_call_at_once_if_there_is_room(clock: Clock) -> None:
    """By rule X7: attempts that passed while it was observed keep no place in its queue."""
    guard = Guard(name=f"Observed{next(_numbers)}", rate_limit=RateLimit(1, window="1s", max_wait="9s"))
    with configured({f"{guard.name}/RateLimit/mode": "observe"}):
        for number in range(20):
            guard.call(str, number)
    clock.sleep(1.5)
    now = clock.monotonic()

    assert guard.call(str, 20) == "20"
    assert clock.monotonic() == now


def test_a_turn_beyond_the_deadline_is_seen_as_refused(invoke: Invoke) -> None:
    """By rules X7, D2: an enforced rate limit refuses at once a call that would wait longer than it has time left."""
    client, name = client_of(invoke, rate_limit(1, window="1s", max_wait="5s"), deadline(500))
    with observing(client, "RateLimit"):
        assert [invoke(client.service) for _ in range(4)] == ["served"] * 4

        assert seen(name, "RateLimit") == 3


# Time-out


@pytest.mark.parametrize(("seconds", "late"), [(0.999, 0), (1.0, 1), (3.0, 1)])
def test_an_observed_time_out_interrupts_nothing(invoke: Invoke, seconds: float, late: int) -> None:
    """By rule X7: the caller gets the result, whenever it comes, and nothing inside sees a deadline."""
    client, name = client_of(invoke, timeout(1000))
    client.seconds = seconds
    with observing(client, "Timeout"):
        assert invoke(client.service) == "served"

        assert client.left is None
        found = counted(name)
        assert found.pop("ft.observed.total Timeout", 0) == late
        assert found == {
            "ft.invocations.total valueReturned notDefined": 1,
            "ft.timeout.calls.total false": 1,
        }


def test_an_observed_time_out_counts_late_failures_too(invoke: Invoke) -> None:
    """By rule X7: each attempt that it would end counts; the failure is that of the method, and is retried."""
    client, name = client_of(
        invoke, retry(max_retries=1, jitter=0), circuit_breaker(**BREAKER), timeout(1000), bulkhead(4)
    )
    client.seconds, client.failure = 2, OSError()
    with observing(client, "Timeout"):
        assert invoke.outcome(client.service) is OSError

        assert (client.executions, seen(name, "Timeout")) == (2, 2)
        assert "ft.timeout.calls.total true" not in counted(name)


def test_the_durations_of_an_observed_time_out_are_those_of_the_calls(clock: Clock) -> None:
    """By rule X7: every other series counts what really happened."""
    guard = Guard(name=f"acme.observed{next(_numbers)}", timeout=Timeout(1000))
    with configured({f"{guard.name}/Timeout/mode": "observe"}):
        for seconds in (0.02, 7):
            guard.call(lambda: clock.sleep(seconds))  # noqa: B023

        from faulttolerance._metrics.counters import ledger

        durations = ledger.read().durations[guard.name]["ft.timeout.executionDuration"]
        assert sum(durations.counts) == 2
        assert sum(durations.sums) == pytest.approx(7.02, abs=0.01)


def test_a_failing_attempt_under_an_observed_time_out_is_counted(clock: Clock) -> None:
    """By rule X7: its policy counts what really happened, however the attempt ended."""
    guard = Guard(name=f"acme.observed{next(_numbers)}", timeout=Timeout(1000))

    def fail() -> None:
        raise OSError

    with configured({f"{guard.name}/Timeout/mode": "observe"}):
        with pytest.raises(OSError):
            guard.call(fail)

        assert counted(guard.name)["ft.timeout.calls.total false"] == 1


def test_blocks_are_observed_too(clock: Clock) -> None:
    """By rule X7: in threads and in coroutines each attempt that would be ended counts once."""
    import asyncio

    name = f"acme.observed{next(_numbers)}"
    guard = Guard(name=name, retry=Retry(max_retries=1, jitter=0), timeout=Timeout(1000), bulkhead=Bulkhead(2))

    async def main() -> None:
        async with guard.attempt():
            await asyncio.sleep(3)

    with configured({f"{name}/Timeout/mode": "observe"}):
        with guard.attempt():
            assert remaining() is None
            sleep(2)
        for attempt in guard.attempts():
            with attempt:
                sleep(1)
                if attempt.number == 1:
                    raise OSError
        clock.run(main())

        assert seen(name, "Timeout") == 4


def test_an_enclosing_deadline_interrupts_what_an_observed_time_out_does_not(clock: Clock) -> None:
    """By rule X7: observing a policy leaves all others enforced."""
    name = f"acme.observed{next(_numbers)}"
    inner, outer = Guard(name=name, timeout=Timeout(1000)), Guard(timeout=Timeout(5000))

    with configured({f"{name}/Timeout/mode": "observe"}):
        with pytest.raises(TimeoutException):
            outer.call(inner.call, sleep, 20)

        assert seen(name, "Timeout") == 1


# Bulkhead


def test_an_observed_bulkhead_runs_beyond_its_limit() -> None:
    """By rule X7: ``executionsRunning`` counts all that run; a call that would be refused takes no permit of others."""
    name = f"acme.observed{next(_numbers)}"
    guard = Guard(name=name, bulkhead=Bulkhead(2))

    def running() -> float:
        return counted(name).get("ft.bulkhead.executionsRunning", 0)

    with configured({f"{name}/Bulkhead/mode": "observe"}):
        ends = [threading.Event() for _ in range(4)]
        inside = threading.Barrier(2)

        def stay(end: threading.Event) -> None:
            inside.wait(20)
            end.wait(20)

        threads = [threading.Thread(target=guard.call, args=(stay, end)) for end in ends]
        for thread in threads:
            thread.start()
            inside.wait(20)
        assert (running(), seen(name, "Bulkhead")) == (4, 2)
        for end, thread in list(zip(ends, threads, strict=True))[:2]:
            end.set()
            thread.join(20)

        guard.call(int)  # the two that run would not be there

        assert (running(), seen(name, "Bulkhead")) == (2, 2)
        for end, thread in list(zip(ends, threads, strict=True))[2:]:
            end.set()
            thread.join(20)
        assert running() == 0
        assert "ft.bulkhead.calls.total rejected" not in counted(name)


def test_nobody_waits_at_an_observed_bulkhead(clock: Clock) -> None:
    """By rule X7: tasks run at once; a task with a place in the queue would not be refused."""
    import asyncio

    most = now = 0

    class Client:
        @bulkhead(2, waiting_task_queue=3)
        async def service(self) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await asyncio.sleep(1)
            now -= 1

    async def main() -> None:
        await asyncio.gather(*(Client().service() for _ in range(8)))

    with observing(Client(), "Bulkhead"):
        clock.run(main())

        name = f"{key(Client)}.service"
        assert most == 8
        assert seen(name, "Bulkhead") == 3
        assert counted(name)["ft.bulkhead.calls.total accepted"] == 8
        assert "ft.bulkhead.executionsRunning" not in counted(name)


def test_permits_come_back_however_an_observed_call_ends(invoke: Invoke, held: Callable[[], list[str]]) -> None:
    """By rule X7, and R0: failures and control flow leave nothing behind."""

    class Halt(BaseException):
        pass

    client, _ = client_of(invoke, circuit_breaker(**BREAKER), timeout(1000), bulkhead(1))
    keys = {key(type(client), "service", each, "mode"): "observe" for each in ("CircuitBreaker", "Timeout", "Bulkhead")}
    with configured(keys):
        for failure in (OSError(), Halt(), Interrupted(), OSError(), Halt()):
            client.failure = failure
            with pytest.raises(BaseException):  # noqa: B017
                invoke(client.service)

        assert held() == []


# Configuration


def test_mode_is_enforce_unless_it_says_observe(invoke: Invoke) -> None:
    """By rule X7: the word may be written in any case of letters."""
    client, _ = client_of(invoke, rate_limit(1, window=60_000))
    for word, outcomes in (("Enforce", 1), ("OBSERVE", 3)):
        with configured({"RateLimit/mode": word}):
            found = [invoke.outcome(client.service) for _ in range(3)]
        assert found.count("served") == outcomes


@pytest.mark.parametrize("word", ["", "watch", "true", 1, None])
def test_another_word_is_a_definition_error(word: object) -> None:
    """By rule X7: the error gives the key, the value and the allowed words; nothing is put in force."""
    guard = Guard(name=f"acme.observed{next(_numbers)}", timeout=Timeout(1000))
    guard.call(int)

    with pytest.raises(FaultToleranceDefinitionException) as error:
        configure(properties={f"{guard.name}/Timeout/mode": word})

    (fault,) = error.value.faults
    assert (fault.where, fault.got, fault.allowed) == (f"{guard.name}/Timeout/mode", word, "observe or enforce")


def test_mode_is_a_key_of_policies_that_can_be_observed_only() -> None:
    """By rule X7: any other mode is reported as a key that nothing uses."""

    class Client:
        @retry(jitter=0)
        @timeout(1000)
        def service(self) -> None:
            pass

    with configured({key(Client, "service", "Retry", "mode"): "observe", key(Client, "Timeout", "mode"): "observe"}):
        found = [one.key for one in validate() if key(Client) in one.key]

    assert found == [key(Client, "service", "Retry", "mode")]


def test_observed_policies_are_shown() -> None:
    """By rule X7: ``explain`` shows them as a text and for programs, and ``guards`` lists them."""

    class Client:
        @timeout(1000)
        @bulkhead(3)
        def service(self) -> None:
            pass

    place = key(Client, "service", "Timeout", "mode")
    with configured({place: "observe"}):
        found = explain(Client, "service")
        (guard,) = [one for one in guards() if one.name == f"{key(Client)}.service"]

        assert f"  Timeout (declared on the method, observed by {place} in configure(properties=...))" in found
        modes = {policy["annotation"]: policy["mode"] for policy in found.as_dict()["policies"]}
        assert modes == {"Timeout": "observe", "Bulkhead": "enforce"}
        assert guard.observed == ("Timeout",)
        mark = guard.fingerprint
    (guard,) = [one for one in guards() if one.name == f"{key(Client)}.service"]
    assert guard.fingerprint != mark


def test_a_reload_enforces_an_observed_policy(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rule X7: a circuit that opened meanwhile is open; the change is reported."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    client.failure = OSError()
    variable = "FAULTTOLERANCE_CIRCUITBREAKER_MODE"
    monkeypatch.setenv(variable, "observe")
    reload()
    try:
        for _ in range(3):
            assert invoke.outcome(client.service) is OSError
        monkeypatch.setenv(variable, "enforce")

        changes = [str(change) for change in reload() if name in str(change)]

        place = f"CircuitBreaker/mode in environment variable {variable}"
        assert changes == [f"{name} @CircuitBreaker(mode): observe -> enforce ({place})"]
        assert invoke.outcome(client.service).__name__ == "CircuitBreakerOpenException"
        assert seen(name, "CircuitBreaker") == 1
    finally:
        monkeypatch.delenv(variable)
        reload()


def test_attempts_that_would_be_refused_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """By rule X7: the record has the level DEBUG, and the guard and the policy as fields."""
    guard = Guard(name=f"acme.observed{next(_numbers)}", rate_limit=RateLimit(1, window=60_000))
    with configured({f"{guard.name}/RateLimit/mode": "observe"}), caplog.at_level(logging.DEBUG, "faulttolerance"):
        guard.call(int)
        guard.call(int)

    (record,) = [one for one in caplog.records if "only observed" in one.getMessage()]
    assert record.levelno == logging.DEBUG
    assert (record.ft_method, record.ft_policy) == (guard.name, "RateLimit")  # type: ignore[attr-defined]


def test_nothing_shows_where_nothing_is_observed() -> None:
    """By rule X8: neither a series nor a line of the code that runs speaks of it."""

    class Client:
        @circuit_breaker(**BREAKER)
        @timeout(1000)
        @bulkhead(3)
        def service(self) -> None:
            pass

        @asynchronous
        @timeout(1000)
        async def later(self) -> None:
            pass

    Client().service()
    (guard,) = [one for one in guards() if one.name == f"{key(Client)}.service"]

    assert not [metric for metric, _ in guard.counts if metric == "ft.observed.total"]
    source = explain(Client, "service", source=True).partition("def attempt")[2]
    assert source
    assert "bserve" not in source
