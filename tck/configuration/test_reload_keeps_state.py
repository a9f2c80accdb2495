"""C3: circuits, permits and rate windows keep their state, and take new values at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pydantic_settings")

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    RateLimitException,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    explain,
    rate_limit,
    reload,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, RateLimit, Retry
from faulttolerance.testing import configured, virtual_time


def fail() -> None:
    raise OSError


def guarded_by(
    way: str, function: Callable[..., Any], decorator: Any, **policies: Any
) -> tuple[Callable[..., Any], str]:
    """Return *function* under one policy, and the name of its circuit."""
    if way == "decorator":
        found = decorator(function)
        return found, f"{__name__}.{function.__qualname__}"
    guard = Guard(**policies, name=f"{way} {function.__name__}")
    if way == "Guard as a decorator":
        return guard(function), guard.name
    return (lambda *args: guard.call(function, *args)), guard.name


@pytest.fixture(params=["decorator", "Guard.call", "Guard as a decorator"])
def way(request: pytest.FixtureRequest) -> Any:
    """Yield a way to guard a function synchronously."""
    yield request.param
    from faulttolerance._guard_value import guard

    for one in list(guard._named.values()):
        one.close()


def test_an_open_circuit_counts_a_new_delay_at_once(way: str) -> None:
    """Also without a call: the shown state is the one in force."""
    with virtual_time() as clock:
        values: dict[str, Any] = {"request_volume_threshold": 1, "delay": 60_000}
        call, name = guarded_by(way, fail, circuit_breaker(**values), circuit_breaker=CircuitBreaker(**values))
        with pytest.raises(OSError):
            call()
        assert circuit_breakers.state(name) == "open"

        configure(properties={"CircuitBreaker/delay": 10_000})
        between = circuit_breakers.state(name)
        clock.advance(10.0)

        assert (between, circuit_breakers.state(name)) == ("open", "half-open")


def test_listeners_hear_at_once_of_a_transition_by_new_values(way: str) -> None:
    """Two of two probes have succeeded where three were asked for."""
    heard = []
    with virtual_time() as clock:
        values: dict[str, Any] = {"request_volume_threshold": 1, "delay": 1000, "success_threshold": 3}
        failing = True

        def perhaps() -> None:
            if failing:
                raise OSError

        call, name = guarded_by(way, perhaps, circuit_breaker(**values), circuit_breaker=CircuitBreaker(**values))
        if way == "decorator":
            name = f"{__name__}.{perhaps.__qualname__}"
        circuit_breakers.on_state_change(name, lambda name, old, new: heard.append((old, new)))
        with pytest.raises(OSError):
            call()
        failing = False
        clock.advance(1.5)
        call()
        call()
        assert circuit_breakers.state(name) == "half-open"

        configure(properties={"CircuitBreaker/successThreshold": 2})

        assert circuit_breakers.state(name) == "closed"
        assert heard[-1] == ("half-open", "closed")


@pytest.mark.parametrize("convention", ["async def", "Guard.call_async", "Guard as a decorator"])
def test_a_call_that_waits_gets_a_permit_when_the_limit_is_raised(convention: str) -> None:
    """It does not wait until the next call leaves."""
    entered = []

    async def body(number: int) -> None:
        entered.append(number)
        await leave.wait()

    guard = Guard(bulkhead=Bulkhead(1, 5))
    call: Any = {
        "async def": bulkhead(1, waiting_task_queue=5)(body),
        "Guard.call_async": lambda number: guard.call_async(body, number),
        "Guard as a decorator": guard(body),
    }[convention]

    async def main() -> None:
        global leave
        leave = asyncio.Event()
        calls = [asyncio.ensure_future(call(number)) for number in range(4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert entered == [0]

        configure(properties={"Bulkhead/value": 3})
        for _ in range(10):
            await asyncio.sleep(0)

        assert entered == [0, 1, 2]
        leave.set()
        await asyncio.gather(*calls)

    asyncio.run(main())


leave: asyncio.Event


def test_a_rate_window_has_its_new_limit_at_once(way: str) -> None:
    """Calls that were let through still count."""
    with virtual_time():

        def served() -> str:
            return "served"

        call, _ = guarded_by(way, served, rate_limit(2, window=60_000), rate_limit=RateLimit(2, window=60_000))
        call()
        call()

        configure(properties={"RateLimit/value": 3})
        call()

        with pytest.raises(RateLimitException):
            call()


def test_the_shown_state_follows_a_block_of_configuration_and_its_end() -> None:
    """In tests, `configured` has the effect of `configure`, and ends it with the block."""
    with virtual_time() as clock:
        guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1, delay=60_000))
        with pytest.raises(OSError):
            guard.call(fail)

        with configured({"CircuitBreaker/delay": 120_000}):
            clock.advance(61.0)
            inside = circuit_breakers.state(guard.name)
        outside = circuit_breakers.state(guard.name)

        assert (inside, outside) == ("open", "half-open")


def test_a_guard_that_is_wrong_outside_a_block_says_so_when_it_is_called_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The block ends as it should; nothing of it stays in force."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_DELAY", "wrong")
    guard = Guard(retry=Retry(max_retries=1, jitter=0))
    calls = []

    def count() -> None:
        calls.append(None)
        raise OSError

    with configured({"Retry/delay": 0, "Retry/maxRetries": 4}), pytest.raises(OSError):
        guard.call(count)

    assert len(calls) == 5
    with pytest.raises(FaultToleranceDefinitionException, match="Retry/delay is 'wrong'"):
        guard.call(count)
    monkeypatch.delenv("FAULTTOLERANCE_RETRY_DELAY")
    reload()
    with pytest.raises(OSError):
        guard.call(count)
    assert len(calls) == 7
    assert "maxRetries = 1 " in explain(guard)


def test_a_name_that_two_circuits_would_share_is_refused_by_the_reload_that_makes_them() -> None:
    """A first call does not find it: the circuits were switched off then."""
    configure(properties={"CircuitBreaker/enabled": False})

    @circuit_breaker_name("charging")
    @circuit_breaker
    def one() -> str:
        return "one"

    @circuit_breaker(name="charging")
    def other() -> str:
        return "other"

    assert (one(), other()) == ("one", "other")

    with pytest.raises(FaultToleranceDefinitionException, match="is 'charging', the name of the breaker of"):
        configure(properties={"CircuitBreaker/enabled": True})

    assert "switched off" in explain(one)
    assert "charging" not in circuit_breakers.names()


def test_a_name_comes_with_the_circuit_that_a_reload_switches_on() -> None:
    """This holds where no other circuit has the name."""
    configure(properties={"CircuitBreaker/enabled": False})

    @circuit_breaker_name("charging")
    @circuit_breaker
    def one() -> str:
        return "one"

    one()
    assert "charging" not in circuit_breakers.names()

    configure(properties={"CircuitBreaker/enabled": True})

    assert circuit_breakers.state("charging") == "closed"
