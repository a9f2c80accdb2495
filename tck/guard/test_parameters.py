"""Guards take the parameters of methods (rule G1), and refuse those without effect (rule G4)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from faulttolerance import (
    ExecutionContext,
    FaultToleranceDefinitionException,
    FaultToleranceException,
    Guard,
    apply_guard,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    explain,
    exponential_backoff,
    fallback,
    guards,
    partition_by,
    retry,
    timeout,
    validate,
)
from faulttolerance.policies import (
    BeforeRetry,
    CircuitBreaker,
    CircuitBreakerName,
    CustomBackoff,
    ExponentialBackoff,
    FibonacciBackoff,
    Retry,
    RetryWhen,
)
from faulttolerance.testing import virtual_time

ALONE: list[dict[str, Any]] = [
    {"exponential_backoff": ExponentialBackoff()},
    {"fibonacci_backoff": FibonacciBackoff()},
    {"custom_backoff": CustomBackoff(lambda: lambda failure: 0)},
    {"retry_when": RetryWhen(result=bool)},
    {"before_retry": BeforeRetry(lambda context: None)},
    {"circuit_breaker_name": CircuitBreakerName("payments")},
]
"""Policies that do nothing by themselves."""


def failing() -> None:
    raise ConnectionError("it failed")


@pytest.mark.parametrize(
    ("growth", "delays"),
    [
        ({"exponential_backoff": ExponentialBackoff(factor=3)}, [0.1, 0.3, 0.9]),
        ({"fibonacci_backoff": FibonacciBackoff()}, [0.1, 0.2, 0.3]),
        ({"custom_backoff": CustomBackoff(lambda: lambda failure: timedelta(seconds=2))}, [2, 2, 2]),
    ],
)
def test_a_guard_grows_its_delays_as_a_method_does(growth: dict[str, Any], delays: list[float]) -> None:
    """The back-off of the guard decides (rule G1)."""
    guard = Guard(retry=Retry(max_retries=3, delay=100, jitter=0), **growth)

    with virtual_time() as clock:
        before = clock.monotonic()
        with pytest.raises(ConnectionError):
            guard.call(failing)
        assert clock.monotonic() - before == pytest.approx(sum(delays))


def test_a_guard_asks_its_predicates_and_says_which_result_was_refused() -> None:
    """The guard uses them as `@retry_when` does (rule G1)."""
    guard = Guard(retry=Retry(max_retries=2, delay=0, jitter=0), retry_when=RetryWhen(result=lambda answer: answer < 3))
    answers = iter([1, 2, 3])

    assert guard.call(lambda: next(answers)) == 3
    with pytest.raises(FaultToleranceException) as refused:
        guard.call(lambda: 2)
    assert refused.value.result == 2


def test_a_predicate_of_a_guard_that_is_awaited_serves_asynchronous_calls_only() -> None:
    """`call` refuses it before the function runs, as a plain function does (rule G1)."""

    async def is_poor(answer: int) -> bool:
        await asyncio.sleep(0)
        return answer < 3

    guard = Guard(retry=Retry(max_retries=2, delay=0, jitter=0), retry_when=RetryWhen(result=is_poor))
    answers = iter([1, 2, 3])

    async def answer() -> int:
        return next(answers)

    assert asyncio.run(guard.call_async(answer)) == 3
    with pytest.raises(FaultToleranceDefinitionException, match=r"Guard .*\.call @RetryWhen\(result\) is .*is_poor"):
        guard.call(lambda: pytest.fail("it ran"))


def test_a_guard_runs_its_hook_before_each_retry_of_any_function() -> None:
    """The context of the hook has the function, and its arguments (rule G1)."""
    seen: list[tuple[str, tuple[Any, ...], int]] = []

    def note(context: ExecutionContext) -> None:
        seen.append((context.method.__name__, context.args, context.attempt))

    guard = Guard(retry=Retry(max_retries=2, delay=0, jitter=0), before_retry=BeforeRetry(note))

    def charge(amount: int) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        guard.call(charge, 7)
    with pytest.raises(ConnectionError):
        guard(charge)(8)

    assert seen == [("charge", (7,), 2), ("charge", (7,), 3), ("charge", (8,), 2), ("charge", (8,), 3)]


def test_a_guard_belongs_to_no_class_in_which_a_method_could_be_found() -> None:
    """The method cannot be found, so the guard refuses its name when it is made (rule G1)."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"@BeforeRetry\(method_name\) is 'reconnect'"):
        Guard(retry=Retry(), before_retry=BeforeRetry(method_name="reconnect"))


def test_the_circuit_of_a_guard_may_have_a_further_name() -> None:
    """Both names lead to one circuit, before and after the first call (rule G1)."""
    guard = Guard(
        circuit_breaker=CircuitBreaker(request_volume_threshold=1, failure_ratio=1.0),
        circuit_breaker_name=CircuitBreakerName("the gateway's"),
        name="gateway",
    )
    assert circuit_breakers.state("the gateway's") == "closed"

    with pytest.raises(ConnectionError):
        guard.call(failing)

    assert circuit_breakers.state("the gateway's") == circuit_breakers.state("gateway") == "open"
    guard.close()


@pytest.mark.parametrize("policies", ALONE, ids=lambda policies: next(iter(policies)))
def test_a_guard_refuses_a_modifier_of_a_policy_that_it_does_not_have(policies: dict[str, Any]) -> None:
    """The modifier would have no effect, silently (rule G4)."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"Guard .* is used without @(Retry|CircuitBreaker);"):
        Guard(**policies)


@pytest.mark.parametrize("decorate", [exponential_backoff, circuit_breaker_name("payments")])
def test_a_function_refuses_a_modifier_of_a_policy_that_it_does_not_have(decorate: Callable[..., Any]) -> None:
    """It does so at its first use, for decorators come in any order; `validate` reports it before (rule G4)."""
    function = decorate(failing)

    with pytest.raises(FaultToleranceDefinitionException, match="is used without @"):
        validate()
    with pytest.raises(FaultToleranceDefinitionException, match="is used without @"):
        function()


def test_decorators_come_in_any_order() -> None:
    """The complete set of them counts (rule G4)."""
    calls: list[int] = []

    @exponential_backoff
    @retry(max_retries=1, delay=0, jitter=0)
    def lower() -> None:
        calls.append(1)
        failing()

    @retry(max_retries=1, delay=0, jitter=0)
    @exponential_backoff
    def upper() -> None:
        calls.append(2)
        failing()

    for function in (lower, upper):
        with pytest.raises(ConnectionError):
            function()
    assert calls == [1, 1, 2, 2]


@pytest.mark.parametrize("by", ["guard", "name"])
def test_nothing_reaches_into_a_guard_from_above(by: str) -> None:
    """The retry of a guard takes no back-off from a decorator above it (rule G4)."""
    guard = Guard(retry=Retry(), name="payments")
    decorate = guard if by == "guard" else apply_guard("payments")

    with pytest.raises(FaultToleranceDefinitionException, match="is used without @Retry"):
        exponential_backoff(decorate(failing))()
    guard.close()


def test_a_policy_above_a_guard_has_modifiers_of_its_own() -> None:
    """A retry around the guard, with its back-off (rule G4)."""
    guard = Guard(circuit_breaker=CircuitBreaker())
    calls: list[int] = []

    @exponential_backoff
    @retry(max_retries=1, delay=0, jitter=0)
    @guard
    def charge() -> None:
        calls.append(1)
        failing()

    with pytest.raises(ConnectionError):
        charge()
    assert calls == [1, 1]


def test_a_modifier_of_a_policy_that_is_switched_off_is_switched_off_too() -> None:
    """An operator who switches retries off breaks no declaration (rule G4)."""
    guard = Guard(retry=Retry(max_retries=5), exponential_backoff=ExponentialBackoff(), name="payments")
    calls: list[int] = []

    @exponential_backoff
    @retry(max_retries=5)
    def charge() -> None:
        calls.append(1)
        failing()

    configure(properties={"Retry/enabled": "false"})
    for call in (charge, lambda: guard.call(charge)):
        with pytest.raises(ConnectionError):
            call()

    assert calls == [1, 1]
    assert validate() == []
    guard.close()


def test_the_fallback_of_a_guard_and_its_hook_are_called_alike() -> None:
    """The two get the same context, named by a decorator or by a value (rule G1)."""
    contexts: list[tuple[str, tuple[Any, ...]]] = []

    def handler(context: ExecutionContext) -> str:
        contexts.append((context.method.__name__, context.args))
        return "instead"

    @fallback(handler)
    def decorated(amount: int) -> str:
        raise ConnectionError

    assert decorated(7) == "instead"
    assert contexts == [("decorated", (7,))]


def test_a_coroutine_function_is_refused_by_call_before_it_runs() -> None:
    """A visible one is a definition error, which advises the right call (rule G3)."""
    guard = Guard(retry=Retry(), circuit_breaker=CircuitBreaker(request_volume_threshold=1), name="payments")

    async def charge() -> None:
        pytest.fail("it ran")

    with pytest.raises(FaultToleranceDefinitionException, match=r"Guard payments\.call got .*charge.*call_async"):
        guard.call(charge)
    with pytest.raises(TypeError, match="use call_async"):
        guard.call(lambda: charge())
    assert circuit_breakers.state("payments") == "closed"
    guard.close()


def test_every_keyword_reaches_the_called_function() -> None:
    """Also `function` and `self`: the called function is a positional-only argument (rule G3)."""
    guard = Guard(retry=Retry())

    def called(**keywords: int) -> dict[str, int]:
        return keywords

    async def awaited(**keywords: int) -> dict[str, int]:
        return keywords

    keywords = {"function": 1, "self": 2, "args": 3, "progress": 4, "policies": 5}
    assert guard.call(called, **keywords) == keywords
    assert asyncio.run(guard.call_async(awaited, **keywords)) == keywords
    assert asyncio.run(guard.call_async(called, **keywords)) == keywords


def test_a_plain_function_that_is_awaited_runs_on_the_pool() -> None:
    """The loop goes on meanwhile (rule G3)."""
    guard = Guard(retry=Retry())

    def where() -> int:
        return threading.get_ident()

    assert asyncio.run(guard.call_async(where)) != threading.get_ident()


def test_a_guarded_function_is_explained_and_follows_the_configuration_at_once() -> None:
    """Functions, methods and blocks do so alike (rule G5)."""
    guard = Guard(retry=Retry(max_retries=5, delay=0, jitter=0), name="payments")
    calls: list[int] = []

    @guard
    def charge() -> None:
        calls.append(1)
        failing()

    def in_blocks() -> None:
        for attempt in guard.attempts():
            with attempt:
                charge.__wrapped__()  # type: ignore[attr-defined]

    with pytest.raises(ConnectionError):
        charge()
    assert "payments" in repr(explain(charge))
    assert "payments" in [one.name for one in guards()]
    for count, call in ((1, charge), (2, in_blocks), (0, lambda: guard.call(charge.__wrapped__))):  # type: ignore[attr-defined]
        calls.clear()
        configure(properties={"payments/Retry/maxRetries": count})
        with pytest.raises(ConnectionError):
            call()
        assert len(calls) == 1 + count
        assert "payments/Retry/maxRetries" in repr(explain(charge))
    guard.close()


def test_guards_of_one_line_do_not_hide_each_other() -> None:
    """In a dictionary with one per host, each has a name, and a circuit of that name (rule G6)."""
    strict = CircuitBreaker(request_volume_threshold=1, failure_ratio=1.0)
    hosts = {host: Guard(circuit_breaker=strict) for host in ("a.example", "b.example", "c.example")}
    names = [guard.name for guard in hosts.values()]

    with pytest.raises(ConnectionError):
        hosts["b.example"].call(failing)
    hosts["c.example"].call(int)

    assert len(set(names)) == 3
    assert [circuit_breakers.state(name) for name in names] == ["closed", "open", "closed"]
    assert set(names) <= {one.name for one in guards()}


def test_a_guard_takes_decorators_as_a_function_does() -> None:
    """The decorators are the same, and parentheses may be left out there, too."""
    guard = Guard(retry(max_retries=2, delay="1s", jitter=0), circuit_breaker, timeout("500ms"))

    assert repr(guard).startswith("Guard(retry=Retry(max_retries=2, delay='1s', jitter=0), circuit_breaker=")
    with virtual_time() as clock:
        before = clock.monotonic()
        with pytest.raises(ConnectionError):
            guard.call(failing)
        assert clock.monotonic() - before == pytest.approx(2.0)


def test_a_guard_refuses_the_wrong_value_of_a_decorator_where_it_is_made() -> None:
    with pytest.raises(FaultToleranceDefinitionException, match=r"Guard @Retry\(max_retries\)") as refused:
        Guard(retry(max_retries=-2))

    assert len(refused.value.faults) == 1


def test_a_guard_refuses_a_decorator_without_its_values_and_an_object_that_is_no_decorator() -> None:
    for wrong in (partition_by, print):
        with pytest.raises(FaultToleranceDefinitionException, match=r"retry\(\.\.\.\), timeout\(\.\.\.\) and so on"):
            Guard(wrong)
