"""Rules C5 and C7 through the public decorators: slow calls, windows of time, delays that grow, and steering."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    circuit_breaker,
    circuit_breakers,
    fallback,
    guards,
    rate_limit,
    reload,
    retry,
    timeout,
)
from faulttolerance.policies import CircuitBreaker
from faulttolerance.testing import configured
from kit import Clock, Invoke, Service, key

_numbers = count()
BREAKER = {"request_volume_threshold": 2, "failure_ratio": 1.0, "delay": 5000}


class Takes(Service):
    """A service with the instructions for its body."""

    seconds = 0.0
    failure: BaseException | None = None


def client_of(invoke: Invoke, *decorators: Callable[[Any], Any]) -> tuple[Takes, str]:
    """Return an object with a guarded service, and the name of its circuit."""

    async def service(self: Takes) -> str:
        self.executions += 1
        if self.seconds:
            await invoke.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return "served"

    name = f"Client{next(_numbers)}"
    service.__qualname__ = f"{name}.service"
    guarded = invoke.body(service)
    for decorate in decorators[::-1]:
        guarded = decorate(guarded)
    client: Any = type(name, (Takes,), {"service": guarded, "__module__": __name__})()
    return client, f"{key(type(client))}.service"


def counted(name: str) -> dict[str, float]:
    """Return the counted results of the circuit."""
    (guard,) = [one for one in guards() if one.name == name]
    return {
        dict(tags)["circuitBreakerResult"]: count
        for (metric, tags), count in guard.counts.items()
        if metric == "ft.circuitbreaker.calls.total" and count
    }


def refused(invoke: Invoke, client: Any) -> float | None:
    """Return the time after which a refused caller may come back."""
    with pytest.raises(CircuitBreakerOpenException) as refusal:
        invoke(client.service)
    return refusal.value.retry_after


# slow


@pytest.mark.parametrize(("seconds", "state"), [(0.199, "closed"), (0.2, "open")])
def test_a_slow_success_is_a_failure_of_the_circuit(invoke: Invoke, seconds: float, state: str) -> None:
    """Rule C5: it is slow from that duration on; the caller gets the result all the same."""
    client, name = client_of(invoke, circuit_breaker(slow=200, **BREAKER))
    client.seconds = seconds

    results = [invoke(client.service) for _ in range(2)]

    assert results == ["served"] * 2
    assert circuit_breakers.state(name) == state
    assert counted(name) == {"failure" if state == "open" else "success": 2}


def test_a_slow_success_is_a_failure_of_nothing_else(invoke: Invoke) -> None:
    """Rule C5: it is neither retried nor replaced."""
    client, name = client_of(
        invoke,
        fallback(lambda _: "replaced"),
        retry(jitter=0),
        circuit_breaker(slow=timedelta(seconds=1), **BREAKER),
        timeout(5000),
    )
    client.seconds = 2

    assert [invoke(client.service) for _ in range(2)] == ["served", "served"]
    assert client.executions == 2
    assert circuit_breakers.snapshot(name).last_failure == "slow call"
    assert invoke(client.service) == "replaced"


def test_a_slow_probe_opens_the_circuit_again(invoke: Invoke, clock: Clock) -> None:
    """Rule C5: a callee that answers late has not recovered."""
    client, _ = client_of(invoke, circuit_breaker(slow=1000, **BREAKER))
    client.failure = OSError()
    assert [invoke.outcome(client.service) for _ in range(2)] == [OSError, OSError]
    client.seconds, client.failure = 1, None
    clock.sleep(5)

    assert invoke(client.service) == "served"
    assert invoke.outcome(client.service) is CircuitBreakerOpenException


def test_an_exception_that_is_a_success_may_be_slow_too(invoke: Invoke) -> None:
    """Rule C5: the callee has answered, and took too long."""
    client, name = client_of(invoke, circuit_breaker(slow=1000, skip_on=KeyError, **BREAKER))
    client.failure = KeyError()
    client.seconds = 1

    assert [invoke.outcome(client.service) for _ in range(2)] == [KeyError, KeyError]
    assert circuit_breakers.state(name) == "open"


@pytest.mark.parametrize(("wait", "state"), [(999, "closed"), (1000, "open")])
def test_a_wait_inside_the_circuit_is_part_of_a_slow_call(invoke: Invoke, clock: Clock, wait: int, state: str) -> None:
    """Rule C5: the duration begins with the admission, and includes the wait for a rate limit."""
    turns = rate_limit(1, window=timedelta(milliseconds=wait), max_wait=5000)
    client, name = client_of(invoke, circuit_breaker(slow=1000, **BREAKER), turns)

    assert [invoke(client.service) for _ in range(3)] == ["served"] * 3
    assert circuit_breakers.state(name) == state


def test_a_quick_success_is_a_success(invoke: Invoke) -> None:
    """Rule C5: it is one also in a window full of successes."""
    client, name = client_of(invoke, circuit_breaker(slow=1000, **BREAKER))

    assert [invoke(client.service) for _ in range(5)] == ["served"] * 5
    assert circuit_breakers.snapshot(name)[4:6] == (2, 0)
    assert counted(name) == {"success": 5}


def test_slow_can_be_switched_on_while_the_service_runs(invoke: Invoke) -> None:
    """Rule C3: the circuit keeps its state."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    client.seconds = 1
    assert invoke(client.service) == "served"

    with configured({"CircuitBreaker/slow": "500ms"}):
        reload()
        assert [invoke(client.service) for _ in range(2)] == ["served", "served"]

        assert circuit_breakers.state(name) == "open"


# window


def test_old_failures_leave_a_window_of_time(invoke: Invoke, clock: Clock) -> None:
    """Rule C5: it is assessed whenever it holds at least the threshold."""
    client, name = client_of(invoke, circuit_breaker(window=10_000, **BREAKER))
    client.failure = OSError()
    invoke.outcome(client.service)
    clock.sleep(10.001)
    invoke.outcome(client.service)
    before = circuit_breakers.snapshot(name)
    clock.sleep(10)
    invoke.outcome(client.service)

    assert (before.state, before.results, before.failures) == ("closed", 1, 1)
    assert circuit_breakers.state(name) == "open"


def test_a_snapshot_forgets_old_results_also_without_calls(invoke: Invoke, clock: Clock) -> None:
    """Rule C7: its figures are those of the moment."""
    client, name = client_of(invoke, circuit_breaker(window=10_000, **BREAKER))
    invoke(client.service)
    clock.sleep(11)

    assert circuit_breakers.snapshot(name)[4:6] == (0, 0)


# max_delay


def test_each_probe_that_fails_doubles_the_delay(invoke: Invoke, clock: Clock) -> None:
    """Rule C5: the delay has its maximum, and varies by a tenth; closing restores it."""
    client, name = client_of(invoke, circuit_breaker(max_delay=15_000, **BREAKER))
    client.failure = OSError()
    waits: list[Any] = []
    invoke.outcome(client.service)
    for _ in range(4):
        invoke.outcome(client.service)
        waits.append(refused(invoke, client))
        clock.sleep(waits[-1])
    client.failure = None
    invoke(client.service)
    client.failure = OSError()
    for _ in range(2):
        invoke.outcome(client.service)

    assert waits[0] == 5.0
    assert 9.0 <= waits[1] <= 11.0
    assert all(13.5 <= wait <= 15.0 for wait in waits[2:])
    assert circuit_breakers.snapshot(name).half_open_at == circuit_breakers.snapshot(name).since + 5.0


# values


@pytest.mark.parametrize("parameter", ["slow", "window", "max_delay"])
@pytest.mark.parametrize("value", [-1, "soon", None, True, float("nan"), timedelta(-1)])
def test_a_value_that_is_no_duration_is_refused_by_a_circuit(parameter: str, value: Any) -> None:
    """Rule R9: the error has the policy, the parameter, the value got and the allowed values."""
    with pytest.raises(FaultToleranceDefinitionException, match=rf"@CircuitBreaker\({parameter}\) is .*allowed: a "):
        circuit_breaker(**{parameter: value})(lambda: None)


# steering


def test_a_guard_is_steered_by_its_name(invoke: Invoke) -> None:
    """Rule C7: forced open it admits no call, and tells no time to come back; forced closed it admits all."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    invoke(client.service)
    client.failure = OSError()

    circuit_breakers.force_open(name)
    wait = refused(invoke, client)
    opened = circuit_breakers.snapshot(name)
    circuit_breakers.force_closed(name)
    passed = [invoke.outcome(client.service) for _ in range(4)]
    closed = circuit_breakers.snapshot(name)
    circuit_breakers.reset(name)
    after = [invoke.outcome(client.service) for _ in range(3)]

    assert wait is None
    assert (opened.state, opened.forced, opened.half_open_at) == ("open", True, None)
    assert passed == [OSError] * 4
    assert (closed.state, closed.forced, closed.results, closed.failures) == ("closed", True, 2, 2)
    assert after == [OSError, OSError, CircuitBreakerOpenException]


def test_a_forced_state_survives_a_reload(invoke: Invoke) -> None:
    """Rule C7: only a reset ends it."""
    client, name = client_of(invoke, circuit_breaker(**BREAKER))
    invoke(client.service)
    circuit_breakers.force_closed(name)
    client.failure = OSError()

    with configured({"CircuitBreaker/requestVolumeThreshold": 1, "CircuitBreaker/window": "1m"}):
        reload()

        assert [invoke.outcome(client.service) for _ in range(3)] == [OSError] * 3
        assert circuit_breakers.snapshot(name).forced


def test_a_listener_can_be_removed() -> None:
    """Rule C7: its registration returned the function for that; the others stay, and a second call does nothing."""
    heard: list[str] = []
    guard = Guard(circuit_breaker=CircuitBreaker(), name="heard")
    undo = circuit_breakers.on_state_change("heard", lambda name, old, new: heard.append(f"first {new}"))
    circuit_breakers.on_state_change("heard", lambda name, old, new: heard.append(f"second {new}"))

    circuit_breakers.force_open("heard")
    undo()
    undo()
    circuit_breakers.reset("heard")
    guard.close()

    assert heard == ["first open", "second open", "second closed"]


def test_a_listener_that_is_registered_twice_is_undone_once() -> None:
    """Rule C7: each registration is a separate one."""
    heard: list[str] = []

    def listener(name: str, old: str, new: str) -> None:
        heard.append(new)

    guard = Guard(circuit_breaker=CircuitBreaker(), name="twice")
    undo = circuit_breakers.on_state_change("twice", listener)
    circuit_breakers.on_state_change("twice", listener)
    circuit_breakers.force_open("twice")
    undo()
    circuit_breakers.reset("twice")
    guard.close()

    assert heard == ["open", "open", "closed"]


@pytest.mark.parametrize("operation", ["state", "snapshot", "reset", "force_open", "force_closed"])
def test_a_name_that_nothing_has_is_an_error_with_the_nearest_one(operation: str) -> None:
    """Rule C7: it is a KeyError, as of every look-up."""
    guard = Guard(circuit_breaker=CircuitBreaker(), name="payments-api")

    with pytest.raises(KeyError, match="no circuit breaker is named 'payment-api'; did you mean 'payments-api'"):
        getattr(circuit_breakers, operation)("payment-api")
    guard.close()


@pytest.mark.parametrize("operation", ["state", "snapshot", "reset", "force_open", "force_closed"])
def test_a_value_that_is_no_text_is_no_name(operation: str) -> None:
    """Rule C7: it is a KeyError, too."""
    with pytest.raises(KeyError, match="no circuit breaker is named 5"):
        getattr(circuit_breakers, operation)(5)


def test_a_snapshot_is_a_dictionary_for_an_administrative_page() -> None:
    """Rule C7: the keys are stable."""
    guard = Guard(circuit_breaker=CircuitBreaker(), name="shown")

    shown = circuit_breakers.snapshot("shown").as_dict()
    guard.close()

    assert list(shown) == [
        "name", "state", "forced", "since", "results", "failures", "opened", "half_open_at", "last_failure",
    ]  # fmt: skip
    assert shown["name"] == "shown"
