"""Durations that are text mean the same in code as in the configuration (rule M1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

import faulttolerance as ft
from faulttolerance import ChronoUnit, FaultToleranceDefinitionException
from faulttolerance.policies import Retry, Timeout
from faulttolerance.testing import configured, virtual_time

MEANINGS = {
    "500ms": timedelta(milliseconds=500),
    "500 MS": timedelta(milliseconds=500),
    " 2s ": timedelta(seconds=2),
    "1.5m": timedelta(seconds=90),
    ".5h": timedelta(minutes=30),
    "2.d": timedelta(days=2),
    "10us": timedelta(microseconds=10),
    "1.0000006s": timedelta(seconds=1, microseconds=1),
    "PT0.5S": timedelta(milliseconds=500),
    "pt1h30m": timedelta(minutes=90),
    "P1DT2H": timedelta(days=1, hours=2),
    "P2W": timedelta(weeks=2),
    "0:00:02": timedelta(seconds=2),
    "1 day, 0:00:00.500000": timedelta(days=1, milliseconds=500),
    "0s": timedelta(),
    "500": 500,
    "2.5": 2.5,
}

REFUSED = {
    "soon": "is 'soon'; allowed",
    "": "is ''; allowed",
    "2 parsecs": "is '2 parsecs'; allowed",
    "-2s": "is '-2s'; allowed",
    "1s 500ms": "is '1s 500ms'; allowed",
    "1,500ms": "is '1,500ms'; allowed",
    "PT": "is 'PT'; allowed",
    "P1DT": "is 'P1DT'; allowed",
    "P1M": "is 'P1M'; allowed",
    "P1Y": "is 'P1Y'; allowed",
    "٢s": "is '٢s'; allowed",
    "inf": "is 'inf'; allowed",
    "nan": "is 'nan'; allowed",
    "0.4us": "is '0.4us', shorter than a microsecond; allowed",
    "PT0.0000001S": "is 'PT0.0000001S', shorter than a microsecond; allowed",
    "9999999999d": "is '9999999999d', longer than 999999999 days; allowed",
}


@pytest.mark.parametrize("text", MEANINGS)
def test_text_means_the_same_in_code_as_in_the_configuration(text: str) -> None:
    """Rule M1: there is one parser."""

    @ft.timeout(7)
    def configured_later() -> None: ...

    with configured({"Timeout/value": text}):
        [guard] = [one for one in ft.guards() if one.method is configured_later]

    assert Timeout(text).value == guard.values["Timeout/value"][0] == MEANINGS[text]


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_duration_is_refused_in_the_same_words(text: str) -> None:
    """Rule M1: the library does not guess, and no value is rounded to no limit."""
    guarded = ft.timeout(lambda: None)
    guarded()

    with pytest.raises(FaultToleranceDefinitionException) as declared:
        ft.retry(delay=text)(print)
    with pytest.raises(FaultToleranceDefinitionException) as by_configuration, configured({"Timeout/value": text}):
        guarded()

    assert REFUSED[text] in str(declared.value)
    assert REFUSED[text] in str(by_configuration.value)


@pytest.mark.parametrize("unit", ChronoUnit)
def test_a_unit_beside_text_changes_nothing_unless_it_is_a_bare_number(unit: ChronoUnit) -> None:
    """Rule M1: text has its own unit, as a ``timedelta`` does."""
    assert Timeout("2s", unit) == Timeout(timedelta(seconds=2), unit)
    assert Timeout("2", unit) == Timeout(2, unit)


@given(st.timedeltas(timedelta(), timedelta(days=40_000)))
def test_the_text_of_a_timedelta_is_read_exactly(span: timedelta) -> None:
    """Rule M1: to the microsecond."""
    assert Timeout(str(span)).value == span


@given(st.integers(0, 10**9), st.integers(0, 6))
def test_decimal_fractions_are_exact(number: int, digits: int) -> None:
    """Rule M1: 0.000007s are seven microseconds."""
    digit_string = str(number).rjust(digits + 1, "0")
    text = f"{digit_string[: len(digit_string) - digits]}.{digit_string[len(digit_string) - digits :]}s"

    assert Timeout(text).value == timedelta(microseconds=number * 10 ** (6 - digits))


def test_every_duration_takes_text() -> None:
    """Rule M1: in decorators and in the values of a guard."""
    with virtual_time() as clock:

        @ft.retry(max_retries=2, delay="1m", jitter="0s", max_duration="PT1H", retry_on=ConnectionError)
        @ft.exponential_backoff(max_delay="90s")
        def fails() -> None:
            raise ConnectionError

        began = clock.monotonic()
        with pytest.raises(ConnectionError):
            fails()
        assert clock.monotonic() - began == 60 + 90

        guard = ft.Guard(
            rate_limit=ft.policies.RateLimit(1, window="1m", min_spacing="1s"),
            circuit_breaker=ft.policies.CircuitBreaker(delay="2s"),
            timeout=Timeout("PT0.5S"),
        )
        guard.call(int)
        with pytest.raises(ft.RateLimitException) as refused:
            guard.call(int)
        assert refused.value.retry_after == 60


@pytest.mark.parametrize(
    "contradictory",
    [
        lambda: Retry(delay="2s", max_duration="PT2S"),
        lambda: ft.policies.RateLimit(window="0s"),
        lambda: ft.policies.AdaptiveThrottle(window="999ms"),
    ],
)
def test_text_is_compared_with_other_values(contradictory: Any) -> None:
    """Rule M1."""
    with pytest.raises(FaultToleranceDefinitionException):
        contradictory()


SMALL: dict[str, Callable[[], Any]] = {
    "@Timeout(value) is 5": lambda: ft.timeout(5),
    "@Timeout(value) is 0.5": lambda: ft.timeout(value=0.5),
    "@CircuitBreaker(delay) is 30": lambda: ft.circuit_breaker(delay=30),
    "@CircuitBreaker(window) is 60": lambda: ft.circuit_breaker(window=60),
    "@Retry(delay) is 2": lambda: ft.retry(lambda: None, delay=2),
    "@Deadline(value) is 2": lambda: ft.deadline(2),
    "@RateLimit(max_wait) is 2": lambda: ft.rate_limit(10, max_wait=2),
    "@Bulkhead(max_wait) is 1": lambda: ft.Guard(bulkhead=ft.policies.Bulkhead(3, max_wait=1)),
    "@Hedge(delay) is 0.2": lambda: ft.policies.Hedge(delay=0.2),
    "@Timeout(value) is 5.0": lambda: ft.policies.Timeout("5.0"),
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
    lambda: ft.Guard(timeout=ft.policies.Timeout(5, unit="seconds"), retry=ft.policies.Retry()),
]


@pytest.mark.parametrize("where", SMALL)
def test_a_number_that_looks_like_seconds_causes_a_warning_at_its_line(where: str) -> None:
    """The warning has the written value and a better one, and names the line of the application."""
    written = SMALL[where]

    with pytest.warns(ft.exceptions.MillisecondsWarning) as caught:
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
def test_a_duration_with_a_unit_causes_no_warning(written: Callable[[], Any]) -> None:
    """Text with a unit, a timedelta, a number beside its unit and plausible milliseconds pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written()


def test_a_change_of_the_configuration_causes_no_warning_in_code() -> None:
    """Only the line that declares a number causes a warning, and neither a first call nor a change of keys does."""

    @ft.timeout(5, ft.ChronoUnit.MILLIS)
    @ft.retry(delay=1, delay_unit="millis", jitter=0)
    def fetch() -> str:
        return "fetched"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with configured({"Retry/maxRetries": 1, "Timeout/value": 9}):
            assert fetch() == "fetched"
