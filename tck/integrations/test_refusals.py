"""The answers of servers to refusals of the library, in any framework."""

from __future__ import annotations

import json

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    FaultToleranceException,
    RateLimitException,
    RefusedException,
    TimeoutException,
)
from faulttolerance.exceptions import ThrottleException
from faulttolerance.integrations._refusals import HttpAnswer, answer_to


class OutOfStock(RefusedException):
    """A refusal of the application's own."""


def answered(failure: BaseException, accept: str = "") -> HttpAnswer:
    answer = answer_to(failure, accept)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (CircuitBreakerOpenException("shop.Cart.pay: circuit is open", 4.2), 503),
        (BulkheadException("shop.Cart.pay: bulkhead is full"), 503),
        (ThrottleException("shop.Cart.pay: throttled"), 503),
        (OutOfStock("shop.Cart.pay: out of stock"), 503),
        (RateLimitException("shop.Cart.pay: rate limit of 5 calls exceeded", 0.3), 429),
        (TimeoutException("shop.Cart.pay: timed out after 0.5 s"), 504),
    ],
)
@pytest.mark.parametrize("accept", ["", "text/html"])
def test_each_refusal_has_its_status_and_tells_nothing_of_the_inside(
    failure: Exception, status: int, accept: str
) -> None:
    answer = answered(failure, accept)

    assert answer.status == status
    assert b"shop" not in answer.body
    assert b"Cart" not in answer.body


@pytest.mark.parametrize(
    "failure",
    [
        ValueError(),
        TimeoutError(),
        FaultToleranceException("result refused"),
        FaultToleranceDefinitionException(),
        KeyboardInterrupt(),
        BaseExceptionGroup("", [BulkheadException("full"), KeyboardInterrupt()]),
        ExceptionGroup("", [BulkheadException("full"), ValueError()]),
        ExceptionGroup("", [ExceptionGroup("", [ValueError()])]),
    ],
)
def test_a_failure_that_is_no_refusal_is_not_answered(failure: BaseException) -> None:
    """A programming error, alone or beside a refusal, must be visible."""
    assert answer_to(failure) is None


@pytest.mark.parametrize(
    ("seconds", "header"), [(0.0, None), (0.001, "1"), (1.0, "1"), (1.2, "2"), (59.0001, "60"), (1e300, "2147483647")]
)
def test_the_wait_is_rounded_up_to_whole_seconds(seconds: float, header: str | None) -> None:
    """A client that came back a fraction early would be refused again; an unknown wait has no header."""
    answer = answered(CircuitBreakerOpenException("open", seconds))

    assert answer.headers.get("Retry-After") == header


def test_a_group_of_refusals_is_answered_by_the_longest_wait() -> None:
    """Task groups wrap what their tasks raise; a client that comes back needs all of them to succeed."""
    refused = [CircuitBreakerOpenException("open", 2.0), CircuitBreakerOpenException("open", 7.0)]

    answer = answered(ExceptionGroup("", [TimeoutException("late"), ExceptionGroup("", refused)]))

    assert (answer.status, answer.headers["Retry-After"]) == (503, "7")


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "text/html, application/json"])
def test_the_body_is_problem_details(accept: str) -> None:
    answer = answered(TimeoutException("late"), accept)

    assert answer.headers["Content-Type"] == "application/problem+json"
    assert json.loads(answer.body) == {
        "type": "about:blank",
        "title": "Gateway Timeout",
        "status": 504,
        "detail": "The answer was not ready in time.",
    }


@pytest.mark.parametrize("accept", ["text/plain", "text/html,application/xhtml+xml,*/*;q=0.8"])
def test_the_body_is_plain_text_for_a_client_that_asks_for_text(accept: str) -> None:
    answer = answered(TimeoutException("late"), accept)

    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.body.decode() == "504 Gateway Timeout\nThe answer was not ready in time.\n"
