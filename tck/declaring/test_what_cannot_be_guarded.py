"""Objects that cannot be guarded, and wrong values, are refused in words; never by an error from inside."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from faulttolerance import (
    ChronoUnit,
    FaultToleranceDefinitionException,
    Guard,
    apply_guard,
    bulkhead,
    circuit_breaker,
    exponential_backoff,
    fallback,
    guards,
    honor_retry_after,
    rate_limit,
    retry,
    timeout,
    unguarded,
    validate,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, RateLimit, Retry, Timeout
from kit.definition import refused

HUGE = 10**400


class Shy:
    """A value without a representation."""

    def __repr__(self) -> str:
        raise RuntimeError("shy")


class Remote:
    """The proxy of a server's functions, as of xmlrpc.client: every attribute is there, and callable."""

    def __getattr__(self, name: str) -> Remote:
        return Remote()

    def __call__(self) -> str:
        return "answered"


@pytest.mark.parametrize(
    "declare",
    [
        lambda value: retry(delay=value),
        lambda value: retry(max_duration=value),
        lambda value: timeout(value),
        lambda value: circuit_breaker(delay=value),
        lambda value: circuit_breaker(failure_ratio=value),
        lambda value: rate_limit(5, value),
        lambda value: Retry(jitter=value),
        lambda value: Timeout(value),
    ],
)
@pytest.mark.parametrize("value", [HUGE, -HUGE, Shy()], ids=["huge", "hugely negative", "shy"])
def test_a_value_beyond_reason_is_refused_in_words(declare: Callable[[Any], Any], value: object) -> None:
    """A number that no clock can count, and an object without a repr, are definition errors (rule R9)."""
    with pytest.raises(FaultToleranceDefinitionException, match="allowed"):
        declare(value)(lambda: None)


@pytest.mark.parametrize(
    "policy",
    [
        {"circuit_breaker": CircuitBreaker(request_volume_threshold=HUGE)},
        {"circuit_breaker": CircuitBreaker(delay=sys.float_info.max, delay_unit=ChronoUnit.DAYS)},
        {"bulkhead": Bulkhead(HUGE, HUGE)},
        {"rate_limit": RateLimit(HUGE, timedelta.max, min_spacing=0)},
        {"rate_limit": RateLimit(5, sys.float_info.max, ChronoUnit.DAYS)},
        {"rate_limit": RateLimit(5, 1, min_spacing=sys.float_info.max)},
        {"timeout": Timeout(sys.float_info.max, ChronoUnit.DAYS)},
        {"retry": Retry(max_retries=HUGE, max_duration=sys.float_info.max, duration_unit=ChronoUnit.DAYS)},
    ],
    ids=lambda policy: str(policy)[:60],
)
def test_a_limit_that_is_never_reached_is_no_obstacle(policy: dict[str, Any]) -> None:
    """The largest accepted values work: "practically never" is a reasonable wish."""

    async def answer() -> int:
        return 42

    assert Guard(**policy).call(int, "42") == 42
    assert asyncio.run(Guard(**policy).call_async(answer)) == 42


@pytest.mark.parametrize("decorate", [Guard(retry=Retry()), apply_guard("nobody")], ids=["Guard", "apply_guard"])
@pytest.mark.parametrize(
    "target", [None, 5, property(lambda self: 5), sys, object(), int, Shy()], ids=lambda one: type(one).__name__
)
def test_a_guard_refuses_a_target_that_it_cannot_decorate(decorate: Any, target: object) -> None:
    """A guard decorates functions; a class, whose place a function would take, is refused (rule R9)."""
    with pytest.raises(FaultToleranceDefinitionException, match="cannot be guarded"):
        decorate(target)


@pytest.mark.parametrize("name", [Guard(retry=Retry()), None, 5], ids=lambda one: type(one).__name__)
def test_apply_guard_takes_a_name(name: Any) -> None:
    """A guard itself in place of its name is refused where it stands, and not at the first call (rule R9)."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"@apply_guard\(name\) is .*; allowed: the name of a"):
        apply_guard(name)


@pytest.mark.parametrize("decorator", [retry, circuit_breaker, exponential_backoff, honor_retry_after])
def test_a_value_by_position_is_answered_with_the_names(decorator: Any) -> None:
    """Where parameters have names only, the error for a number in place of the function lists them (rule R9)."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"got 500 by position; .* by name: .*delay"):
        decorator(500)


def test_the_name_of_a_guard_is_text() -> None:
    """No key and no look-up would find anything else; ``None`` is no name (rules R9, G6)."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"Guard\(name\) is 5; allowed: text"):
        Guard(retry=Retry(), name=5)  # type: ignore[arg-type]
    assert Guard(retry=Retry(), name=None).call(int, "42") == 42  # type: ignore[arg-type]


def test_a_guard_decorates_static_and_class_methods_on_either_side() -> None:
    """A ``Guard`` may stand on either side, as the decorators may (rule P1)."""
    guard = Guard(retry=Retry(max_retries=1))

    class Client:
        @guard
        @staticmethod
        def above_static() -> str:
            return "static"

        @staticmethod
        @guard
        def below_static() -> str:
            return "static"

        @guard
        @classmethod
        def above_class(cls) -> str:
            return cls.__name__

        @classmethod
        @guard
        def below_class(cls) -> str:
            return cls.__name__

    assert [Client.above_static(), Client().above_static(), Client.below_static()] == ["static"] * 3
    assert [Client.above_class(), Client().above_class(), Client.below_class()] == ["Client"] * 3


@pytest.mark.parametrize("decorate", [retry, timeout(30_000), bulkhead(2), Guard(retry=Retry()), unguarded])
def test_a_callable_with_attributes_of_every_name_is_guarded(decorate: Any) -> None:
    """The proxy of a remote function answers any look-up of an attribute: it is not taken for a wrapped function."""
    assert decorate(Remote())() == "answered"


@pytest.mark.parametrize("target", [None, 5, sys])
def test_unguarded_refuses_a_target_that_is_no_method(target: Any) -> None:
    """``@unguarded`` is for methods; anything else is a definition error (rule R9)."""
    with pytest.raises(FaultToleranceDefinitionException, match="unguarded"):
        unguarded(target)


def test_unguarded_leaves_a_property_as_it_is() -> None:
    """A class-level decorator never covers properties, so that to exempt one is right and does nothing."""

    @retry
    class Client:
        @unguarded
        @property
        def balance(self) -> int:
            return 5

    assert Client().balance == 5


def test_a_refused_guard_or_class_is_not_listed() -> None:
    """It may live on in its error, and in a cycle: validate() would report it again, or a conflict with it."""
    taken = Guard(name="taken")
    errors = []
    with refused("has the name of another guard") as refusal:
        Guard(name="taken", circuit_breaker=CircuitBreaker(name="the only one"))
    errors.append(refusal.error)
    with refused("names 'missing', which") as refusal:

        class Client:
            @fallback("missing")
            @retry
            def send(self) -> None: ...

            @property
            @retry
            def address(self) -> None: ...

    errors.append(refusal.error)

    free = Guard(name="free", circuit_breaker=CircuitBreaker(name="the only one"))
    validate()
    names = [one.name for one in guards()]
    taken.close()
    free.close()

    assert "free" in names
    assert not [
        name for name in names if name == "taken" or f"{test_a_refused_guard_or_class_is_not_listed.__name__}." in name
    ]
