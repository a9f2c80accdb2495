"""Rule R10: no lock is held while code of the application runs, and listeners change nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    before_retry,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    custom_backoff,
    fallback,
    on_deadline,
    retry,
    retry_when,
    timeout,
)
from faulttolerance.instrumentation import set_event_sinks
from faulttolerance.policies import Bulkhead, CircuitBreaker
from kit import Clock, Invoke, Service, key
from kit.definition import refused


def test_two_slow_calls_overlap() -> None:
    """R10, B5: this holds with all policies, on threads."""
    both = threading.Barrier(2)

    class Client:
        @fallback(lambda context: "replaced")
        @retry(max_retries=1)
        @circuit_breaker()
        @timeout(20_000)
        @bulkhead(2)
        def service(self) -> str:
            both.wait(10)
            return "served"

    client = Client()
    outcomes: list[str] = []
    threads = [threading.Thread(target=lambda: outcomes.append(client.service())) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert outcomes == ["served", "served"]


PLACES = ["body", "fallback", "before_retry", "retry_when", "custom_backoff", "listener"]


@pytest.mark.parametrize("place", PLACES)
def test_code_of_the_application_may_use_the_same_guard_on_another_thread(place: str) -> None:
    """R10: every other operation on the guard goes on meanwhile; a held lock would stop it."""
    blocked: list[str] = []
    reached: list[str] = []

    def elsewhere(*_: Any) -> bool:
        if reached:
            return True
        reached.append(place)

        def others() -> None:
            other()
            circuit_breakers.state(f"{key(Client)}.service")
            circuit_breakers.reset(f"{key(Client)}.service")

        thread = threading.Thread(target=others, daemon=True)
        thread.start()
        thread.join(10)
        if thread.is_alive():
            blocked.append(place)
        return True

    def when(name: str) -> Callable[..., Any]:
        return lambda *arguments: elsewhere() if place == name else None

    class Backoff:
        def __call__(self, *_: Any) -> float:
            when("custom_backoff")()
            return 0

        def initialize(self, *_: Any) -> None: ...

        next_delay_in_millis = __call__
        next_delay = __call__

    class Client:
        @fallback(when("fallback"))
        @retry(max_retries=1, jitter=0)
        @custom_backoff(Backoff)
        @retry_when(exception=lambda error: when("retry_when")() or True)
        @before_retry(when("before_retry"))
        @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
        @bulkhead(10)
        def service(self, fails: bool = True) -> Any:
            when("body")()
            if fails:
                raise OSError
            return "served"

    client = Client()

    def other() -> None:
        client.service(False)

    circuit_breakers.on_state_change(f"{key(Client)}.service", when("listener"))
    client.service()
    client.service()

    assert reached == [place]
    assert blocked == []


def test_listener_that_raises_is_logged_and_changes_nothing(invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    """R10: the other listeners still hear the event."""
    heard = []

    class Client(Service):
        @circuit_breaker(request_volume_threshold=1)
        @invoke.body
        async def service(self) -> None:
            raise OSError

    def broken(*_: Any) -> None:
        raise KeyError("a listener")

    name = f"{key(Client)}.service"
    circuit_breakers.on_state_change(name, broken)
    circuit_breakers.on_state_change(name, lambda *change: heard.append(change))
    outcomes = [invoke.outcome(Client().service) for _ in range(2)]

    assert outcomes == [OSError, CircuitBreakerOpenException]
    assert heard == [(name, "closed", "open")]
    assert "a listener" in caplog.text


def test_predicate_that_raises_leaves_nothing_held(invoke: Invoke, held: Callable[[], list[str]]) -> None:
    """R10, B2: the failure comes out, permits and probes are free."""

    def broken(_: object) -> bool:
        raise KeyError("a predicate")

    class Client(Service):
        @retry(max_retries=1, jitter=0)
        @retry_when(exception=broken)
        @circuit_breaker(request_volume_threshold=1, delay=0)
        @bulkhead(1)
        @invoke.body
        async def service(self) -> None:
            raise OSError

    outcomes = [invoke.outcome(Client().service) for _ in range(3)]

    assert outcomes == [OSError] * 3
    assert held() == []


def test_a_bulkhead_serves_synchronous_and_asynchronous_callers_with_one_limit(clock: Clock) -> None:
    """R10, B35: they also share one circuit."""
    guard = Guard(bulkhead=Bulkhead(2, 1), circuit_breaker=CircuitBreaker(request_volume_threshold=5))

    async def body() -> str:
        await asyncio.sleep(1)
        return "served"

    async def main() -> list[Any]:
        calls = [asyncio.ensure_future(guard.call_async(body)) for _ in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(BulkheadException):
            guard.call(lambda: None)
        done = await asyncio.gather(*calls)
        return [*done, guard.call(lambda: "served")]

    assert clock.run(main()) == ["served"] * 3


def test_reentrant_call_from_a_body_is_a_call_like_any_other(invoke: Invoke) -> None:
    """R10: recursion through the guard meets the same limit, and no dead lock."""
    if invoke.convention != "blocking":
        pytest.skip("about locks of a thread")

    class Client(Service):
        @circuit_breaker()
        @timeout(60_000)
        @bulkhead(3)
        @retry(max_retries=0)
        def service(self, depth: int) -> int:
            return self.service(depth - 1) + 1 if depth else 0

    assert Client().service(2) == 2
    with pytest.raises(BulkheadException):
        Client().service(3)


async def told_later(*what: object) -> None: ...


def test_a_listener_that_is_not_awaited_cannot_be_a_coroutine_function() -> None:
    """It would never run, so the caller who sets it gets an error."""
    with refused("circuit_breakers.on_state_change(callback) is told_later, a coroutine function"):
        circuit_breakers.on_state_change("anything", told_later)
    with refused("set_event_sinks(sinks) is told_later, a coroutine function"):
        set_event_sinks([print, told_later])


@pytest.mark.parametrize("wrong", [None, 3, "print"])
def test_a_listener_that_cannot_be_called_is_refused(wrong: Any) -> None:
    """Rule O4: it is refused when it is given, and not logged at each event."""
    with refused(f"circuit_breakers.on_state_change(callback) is {wrong!r}", "allowed: a synchronous function"):
        circuit_breakers.on_state_change("anything", wrong)
    if not isinstance(wrong, str):
        with refused(f"circuit_breakers.on_state_change(name) is {wrong!r}", "the name of a circuit breaker"):
            circuit_breakers.on_state_change(wrong, print)
    with refused(f"set_event_sinks(sinks) is {wrong!r}", "allowed: a synchronous function"):
        set_event_sinks([wrong])
    if wrong is not None:
        with refused(f"set_event_sinks(sinks) is {wrong!r}", "allowed: a synchronous function"):
            set_event_sinks(wrong)


@pytest.mark.parametrize(
    "give",
    [
        lambda function: set_event_sinks([function]),
        lambda function: circuit_breakers.on_state_change("shop", function),
        lambda function: retry(retry_when(exception=function)(lambda: None))(),
        lambda function: retry(custom_backoff(function)(lambda: None))(),
        lambda function: retry(before_retry(function)(lambda: None))(),
        lambda function: fallback(function)(lambda: None)(),
        lambda function: on_deadline(function),
    ],
    ids=["sink", "listener", "predicate", "back-off", "before_retry", "fallback", "on_deadline"],
)
@pytest.mark.parametrize("kind", ["function", "object"])
def test_a_coroutine_function_that_no_code_would_await_is_refused_when_it_is_given(
    give: Callable[[Any], Any], kind: str
) -> None:
    """By rule O4: it would never run; an error before the first call says so."""

    async def never_awaited(*_: object) -> None: ...

    class NeverAwaited:
        async def __call__(self, *_: object) -> None: ...

    with pytest.raises((FaultToleranceDefinitionException, TypeError), match=r"coroutine|async def"):
        give(never_awaited if kind == "function" else NeverAwaited())
