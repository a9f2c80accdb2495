"""Rule R9: the text of a definition error."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import (
    ChronoUnit,
    FaultToleranceDefinitionException,
    Guard,
    adaptive_throttle,
    asynchronous,
    before_retry,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    custom_backoff,
    exponential_backoff,
    fallback,
    fibonacci_backoff,
    rate_limit,
    retry,
    retry_when,
    timeout,
    validate,
)
from faulttolerance.testing import configured
from kit import key
from kit.definition import refused

RANGES: list[tuple[Callable[..., Any], str, str, list[Any], list[Any]]] = [
    (retry, "Retry", "max_retries", [-2, 1.5, "3"], [-1, 0, 7]),
    (retry, "Retry", "delay", [-1, "1 sec"], [0, 5]),
    (retry, "Retry", "jitter", [-1], [0, 5]),
    (retry, "Retry", "max_duration", [-1], [0, 5]),
    (timeout, "Timeout", "value", [-1, None], [0, 5]),
    (circuit_breaker, "CircuitBreaker", "failure_ratio", [-0.1, 1.1], [0, 1, 0.5]),
    (circuit_breaker, "CircuitBreaker", "request_volume_threshold", [0, -1], [1]),
    (circuit_breaker, "CircuitBreaker", "success_threshold", [0, -1], [1]),
    (circuit_breaker, "CircuitBreaker", "delay", [-1], [0]),
    (bulkhead, "Bulkhead", "value", [0, -1], [1]),
    (bulkhead, "Bulkhead", "waiting_task_queue", [0, -1], [1]),
    (rate_limit, "RateLimit", "value", [0, -1], [1]),
    (adaptive_throttle, "AdaptiveThrottle", "multiplier", [1.0, 0], [1.1, 3]),
    (adaptive_throttle, "AdaptiveThrottle", "window", [999, 0], [1000]),
    (adaptive_throttle, "AdaptiveThrottle", "min_requests", [0, -1], [1]),
]


@pytest.mark.parametrize(("decorator", "annotation", "name", "wrong", "right"), RANGES)
def test_message_has_fault_place_value_and_allowed_values(
    decorator: Callable[..., Any], annotation: str, name: str, wrong: list[Any], right: list[Any]
) -> None:
    """R9: in the text and as attributes; and the ends of the range are right."""
    for value in wrong:
        with refused(f"Client.charge @{annotation}({name})", repr(value), "allowed:") as found:

            class Client:
                @decorator(**{name: value})
                def charge(self) -> None: ...

        assert found.error.where.endswith(f"Client.charge @{annotation}({name})")
        assert found.error.where.startswith(__name__)
        assert found.error.got == value
        assert found.error.allowed
        assert "decorator" in found.error.source
    for value in right:
        decorator(**{name: value})(lambda: None)


def test_all_faults_of_a_decorator_are_told_together() -> None:
    """R9: one error for one decorator, whatever the number of its parameters."""
    with refused("max_retries", "delay") as found:

        class _Client:
            @retry(max_retries=-5, delay=-1)
            def charge(self) -> None: ...

    assert len(found.faults) == 2


def test_duration_must_be_longer_than_the_delay() -> None:
    """R9: checked across parameters and units, on the declared values."""
    with refused("max_duration"):
        retry(delay=2, delay_unit=ChronoUnit.SECONDS, max_duration=1500)(lambda: None)
    retry(delay=2, delay_unit=ChronoUnit.SECONDS, max_duration=0)(lambda: None)
    retry(delay=2, delay_unit=ChronoUnit.SECONDS, max_duration=2001)(lambda: None)


class Configured:
    @retry(max_retries=1, delay=100)
    @bulkhead(3)
    def charge(self) -> str:
        return "charged"


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("Retry/maxRetries", "-7"), ("Bulkhead/value", "0"), ("Retry/delay", "soon"), ("Retry/maxDuration", "0.05")],
)
def test_wrong_configuration_is_refused_when_it_is_resolved(parameter: str, value: str) -> None:
    """R9: with the key and its source, at the first call where no code validates, and across parameters."""
    name = key(Configured, "charge", parameter)
    given = "50" if value == "0.05" else value  # of another parameter the message tells seconds
    with pytest.raises(FaultToleranceDefinitionException) as raised, configured({name: given}):
        Configured().charge()

    text = str(raised.value)

    assert parameter.split("/")[0] in text
    assert value in text
    assert "allowed" in text
    assert Configured().charge() == "charged"


def test_validate_lists_all_faults_of_all_guards() -> None:
    """R9: in one error."""
    with configured({key(Configured, "charge", "Timeout", "value"): "3"}):
        unused = validate()

    assert any("Timeout/value" in str(one) for one in unused)


@pytest.mark.parametrize(
    "contradiction",
    [
        lambda function: fallback(lambda context: 1)(fallback(lambda context: 2)(function)),
        lambda function: asynchronous(asynchronous(function)),
        lambda function: fallback(lambda context: 1, fallback_method="other")(function),
    ],
)
def test_contradiction_is_refused_when_the_second_decorator_is_applied(contradiction: Any) -> None:
    """R9: it is not left to the first call."""

    async def function() -> int:
        return 1

    with refused("function"):
        contradiction(function)


# Decorators without the policy that they belong to

numbers = itertools.count()


def named_anew(function: Any) -> Any:
    return circuit_breaker_name(f"companion {next(numbers)}")(function)


COMPANIONS: list[tuple[str, Any, Any, str]] = [
    ("ExponentialBackoff", exponential_backoff, retry, "@retry"),
    ("FibonacciBackoff", fibonacci_backoff(max_delay=5), retry, "@retry"),
    ("CustomBackoff", custom_backoff(lambda: lambda failure: 0.0), retry, "@retry"),
    ("RetryWhen", retry_when(result=lambda value: False), retry, "@retry"),
    ("BeforeRetry", before_retry(lambda context: None), retry, "@retry"),
    ("CircuitBreakerName", named_anew, circuit_breaker, "@circuit_breaker"),
]
each_companion = pytest.mark.parametrize(("annotation", "companion", "principal", "decorator"), COMPANIONS)


@each_companion
def test_a_decorator_that_would_do_nothing_is_refused_at_the_first_call_and_by_validate(
    annotation: str, companion: Any, principal: Any, decorator: str
) -> None:
    """R9: a back-off without a retry changes no delay, and gives no sign of that."""

    @companion
    def function() -> None: ...

    class Client:
        @timeout
        @companion
        def charge(self) -> None: ...

    allowed = f"is used without {'@CircuitBreaker' if principal is circuit_breaker else '@Retry'}; allowed: {decorator}"
    with pytest.raises(FaultToleranceDefinitionException, match=f"function @{annotation} {allowed} on the same"):
        function()
    with pytest.raises(FaultToleranceDefinitionException, match=f"Client.charge @{annotation} {allowed} on the same"):
        Client().charge()
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        validate()
    assert [fault.where.rpartition(".")[2] for fault in refused.value.faults] == [
        f"function @{annotation}",
        f"charge @{annotation}",
    ]


@each_companion
def test_a_companion_may_stand_above_or_below_and_on_the_class_or_the_method(
    annotation: str, companion: Any, principal: Any, decorator: str
) -> None:
    """R9: its policy is known when everything is declared, not before."""

    class Above:
        @companion
        @principal
        def charge(self) -> str:
            return "charged"

    @principal
    class Beyond:
        @companion
        def charge(self) -> str:
            return "charged"

    class Below(Beyond):
        @principal
        @companion
        def charge(self) -> str:
            return "charged"

    assert [one().charge() for one in (Above, Below, Beyond)] == ["charged"] * 3
    assert validate() == []


def test_a_companion_of_a_class_is_for_the_methods_that_have_its_policy() -> None:
    """R9: it is refused where no method has that policy."""

    @exponential_backoff
    class Some:
        @retry
        def charge(self) -> str:
            return "charged"

        def refund(self) -> str:
            return "refunded"

    @exponential_backoff
    class None_:
        def charge(self) -> None: ...

    assert (Some().charge(), Some().refund()) == ("charged", "refunded")
    with pytest.raises(FaultToleranceDefinitionException, match=r"None_\.charge @ExponentialBackoff is used without"):
        None_().charge()


def test_a_subclass_may_have_a_policy_that_its_abstract_class_lacks() -> None:
    """R9: the method is never called on an object of the abstract class itself."""

    class Base(ABC):
        @exponential_backoff
        def charge(self) -> str:
            return "charged"

        @abstractmethod
        def refund(self) -> None: ...

    @retry
    class Client(Base):
        def refund(self) -> None: ...

    assert (Client().charge(), validate()) == ("charged", [])


def test_a_companion_of_a_policy_that_is_switched_off_is_no_mistake() -> None:
    """R9: operators switch a retry off, and its back-off with it."""

    @exponential_backoff
    @retry
    def function() -> str:
        return "done"

    with configured({"Retry/enabled": "false"}):
        assert (function(), validate()) == ("done", [])
    with configured({"MP_Fault_Tolerance_NonFallback_Enabled": "false"}):
        assert (function(), validate()) == ("done", [])


def test_a_decorator_that_a_guard_refuses_is_no_fault_of_the_next_function() -> None:
    """The program may go on without it."""
    with pytest.raises(FaultToleranceDefinitionException, match="2sec"):
        Guard(timeout("2sec"))

    @retry(max_retries=1, retry_on=OSError)
    def load() -> int:
        return 1

    assert load() == 1
