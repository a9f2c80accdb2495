"""Bare numbers that look like seconds are warned of where they are written (rule M1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance.testing import configured

SMALL: dict[str, Callable[[], Any]] = {
    "@Timeout(value) is 5": lambda: ft.timeout(5),
    "@Timeout(value) is 0.5": lambda: ft.timeout(value=0.5),
    "@CircuitBreaker(delay) is 30": lambda: ft.circuit_breaker(delay=30),
    "@CircuitBreaker(window) is 60": lambda: ft.circuit_breaker(window=60),
    "@Retry(delay) is 2": lambda: ft.retry(lambda: None, delay=2),
    "@Deadline(value) is 2": lambda: ft.deadline(2),
    "@RateLimit(max_wait) is 2": lambda: ft.rate_limit(10, max_wait=2),
    "@Bulkhead(max_wait) is 1": lambda: ft.Guard(bulkhead=ft.Bulkhead(3, max_wait=1)),
    "@Hedge(delay) is 0.2": lambda: ft.Hedge(delay=0.2),
    "@Timeout(value) is 5.0": lambda: ft.Timeout("5.0"),
    "last_good(max_age) is 60": lambda: ft.last_good(max_age=60),
    "RedisFleet(poll) is 2": lambda: ft.RedisFleet("redis://localhost", namespace="milliseconds", poll=2),
}


class Text(str):
    """Text of the application that is no number."""

    __slots__ = ()

    def __float__(self) -> float:
        raise ArithmeticError


PLAIN: list[Callable[[], Any]] = [
    lambda: ft.timeout("5ms"),
    lambda: ft.timeout(Text("5ms")),
    lambda: ft.timeout(timedelta(milliseconds=5)),
    lambda: ft.timeout(5, ft.ChronoUnit.SECONDS),
    lambda: ft.timeout(5, unit="millis"),
    lambda: ft.timeout(10),
    lambda: ft.timeout(0),
    lambda: ft.retry(delay=0, jitter=1),
    lambda: ft.rate_limit(10, window=0.5),
    lambda: ft.rate_limit(10, min_spacing=0.05),
    lambda: ft.circuit_breaker(delay=100),
    lambda: ft.Guard(timeout=ft.Timeout(5, unit="seconds"), retry=ft.Retry()),
]


@pytest.mark.parametrize("where", SMALL)
def test_a_number_that_looks_like_seconds_is_warned_of_at_its_line(where: str) -> None:
    """The warning says what was written and what to write, and names the line of the application."""
    written = SMALL[where]

    with pytest.warns(ft.MillisecondsWarning) as caught:
        written()

    (warning,) = caught
    number = where.rpartition(" ")[2]
    assert str(warning.message) == (
        f"{where}: a bare number counts milliseconds; write '{number}s' if seconds are meant,"
        f" or '{number}ms' if milliseconds are"
    )
    assert (warning.filename, warning.lineno) == (__file__, written.__code__.co_firstlineno)
    assert issubclass(warning.category, UserWarning)


@pytest.mark.parametrize("written", PLAIN)
def test_a_duration_that_says_what_it_counts_is_not_warned_of(written: Callable[[], Any]) -> None:
    """Text with a unit, a timedelta, a number beside its unit and plausible milliseconds pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written()


def test_what_a_configuration_changes_is_not_warned_of_in_code() -> None:
    """Only the line that gives a number is warned of, and neither a first call nor a change of keys."""

    @ft.timeout(5, ft.ChronoUnit.MILLIS)
    @ft.retry(delay=1, delay_unit="millis", jitter=0)
    def fetch() -> str:
        return "fetched"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with configured({"Retry/maxRetries": 1, "Timeout/value": 9}):
            assert fetch() == "fetched"
