"""Rule R9: what a definition error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import (
    ChronoUnit,
    FaultToleranceDefinitionException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    fallback,
    rate_limit,
    retry,
    timeout,
    validate,
)
from faulttolerance.testing import configured
from kit import key
from kit.definition import refused

RANGES: list[tuple[Callable[..., Any], str, str, list[Any], list[Any]]] = [
    (retry, "Retry", "max_retries", [-2, 1.5, "3"], [-1, 0, 7]),
    (retry, "Retry", "delay", [-1, "1"], [0, 5]),
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
]


@pytest.mark.parametrize(("decorator", "annotation", "name", "wrong", "right"), RANGES)
def test_message_says_what_where_got_and_allowed(
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


def test_all_faults_of_stacked_decorators_are_told_together() -> None:
    """R9: one error for one function, whatever the number of decorators and parameters."""
    with refused("max_retries", "delay", "failure_ratio", "@Bulkhead(value)", "@Timeout(value)") as found:

        class _Client:
            @retry(max_retries=-5, delay=-1)
            @circuit_breaker(failure_ratio=2)
            @timeout(-4)
            @bulkhead(0)
            def charge(self) -> None: ...

    assert len(found.faults) == 5


def test_faults_of_two_functions_are_told_apart() -> None:
    """R9: those of a function that failed before are not told again with the next one."""
    with refused("first"):

        @retry(max_retries=-5)
        @bulkhead(0)
        def first() -> None: ...

    with refused("second") as found:

        @timeout(-1)
        @bulkhead(0)
        def second() -> None: ...

    assert "first" not in str(found)
    assert len(found.faults) == 2


def test_duration_must_be_longer_than_the_delay() -> None:
    """R9: checked across parameters and units, on what is declared."""
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
    """R9: with the key and its source, at the first call where nobody validates, and across parameters."""
    name = key(Configured, "charge", parameter)
    given = "50" if value == "0.05" else value  # of another parameter the message tells seconds
    with pytest.raises(FaultToleranceDefinitionException) as raised, configured({name: given}):
        Configured().charge()

    text = str(raised.value)

    assert parameter.split("/")[0] in text
    assert value in text
    assert "allowed" in text
    assert Configured().charge() == "charged"


def test_validate_lists_all_that_is_wrong_with_all_guards() -> None:
    """R9: one error for everything."""
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
    """R9: and not at the first call."""

    async def function() -> int:
        return 1

    with refused("function"):
        contradiction(function)
