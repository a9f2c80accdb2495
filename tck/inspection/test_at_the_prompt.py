"""`help`, completion and `repr` for a user who tries the library at a prompt (rule M2)."""

from __future__ import annotations

import inspect
import pydoc
from datetime import timedelta
from typing import Any, get_args, get_type_hints

import pytest

import faulttolerance as ft
from faulttolerance._extensions.keywords import GuardPolicies
from faulttolerance._policy import Policy, parameters

_PUBLIC = {name: getattr(ft, name) for name in ft.__all__}
PROMPT = vars(ft) | vars(ft.policies)
"""The names of a prompt that has imported all of both modules."""
DECORATORS = {
    policy: name
    for name, one in _PUBLIC.items()
    for policy in Policy.__subclasses__()
    if policy is getattr(one, "__wrapped__", None)
}
"""The decorator of each policy."""


def test_every_decorator_is_known() -> None:
    assert set(DECORATORS) == set(Policy.__subclasses__())


@pytest.mark.parametrize("policy", DECORATORS, ids=lambda one: one.__name__)
def test_help_shows_every_parameter_with_default_and_meaning(policy: type[Policy]) -> None:
    """Rule M2: both the decorator and the value have it."""
    decorator = getattr(ft, DECORATORS[policy])
    said = pydoc.render_doc(decorator, renderer=pydoc.plaintext)  # type: ignore[attr-defined]

    assert inspect.signature(decorator) == inspect.signature(policy)
    for name, parameter in parameters(policy).items():
        default = inspect.signature(decorator).parameters[name].default
        assert f"\n        {name}: " in said
        assert default is inspect.Parameter.empty or default == parameter.kind.normalised(parameter.default)


POLICIES = [
    ft.policies.Retry(),
    ft.policies.Retry(
        max_retries=2,
        delay="2s",
        jitter=timedelta(microseconds=5),
        retry_on=[OSError, KeyError],
        abort_on=ft.TimeoutException,
    ),
    ft.policies.Retry(retry_on=(), delay_unit=ft.ChronoUnit.SECONDS),
    ft.policies.Timeout("500ms"),
    ft.policies.Timeout(2, ft.ChronoUnit.SECONDS, interrupt=False),
    ft.policies.Timeout(timedelta()),
    ft.policies.RateLimit(5, "1m", type="rolling"),
    ft.policies.Bulkhead(5),
    ft.policies.CircuitBreaker(failure_ratio=0.25),
    ft.policies.Fallback(len, skip_on=KeyError),
    ft.policies.Fallback(fallback_method="instead"),
    ft.policies.BeforeRetry(method_name="reconnect"),
    ft.policies.RetryWhen(result=bool),
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_the_repr_of_a_policy_makes_it_again(policy: Policy) -> None:
    """Rule M2: it is short, for defaults are left out."""
    text = repr(policy)

    assert eval(text, PROMPT) == policy
    assert all(f"{name}=" not in text for name in parameters(policy) if policy._is_default(name, getattr(policy, name)))


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_the_repr_of_a_decorator_that_waits_makes_it_again(policy: Policy) -> None:
    """Rule M2: it is the line above a function."""
    values = {name: getattr(policy, name) for name in parameters(policy)}
    waiting = getattr(ft, DECORATORS[type(policy)])(**values)

    assert repr(waiting) == repr(policy).replace(type(policy).__name__, DECORATORS[type(policy)], 1)
    assert repr(eval(repr(waiting), PROMPT)) == repr(waiting)


def test_a_decorator_with_a_wrong_value_is_shown_as_it_was_written() -> None:
    """Rule M2: the decorator reports the error when it decorates."""
    assert repr(ft.timeout("soon")) == "timeout(value='soon')"


def test_the_repr_of_a_guard_makes_one_like_it() -> None:
    """Rule M2."""
    guard = ft.Guard(
        retry=ft.policies.Retry(max_retries=1, retry_on=OSError), timeout=ft.policies.Timeout("1s"), name="prompt"
    )
    text = repr(guard)
    guard.close()
    again = eval(text, PROMPT)
    again.close()

    assert text == "Guard(retry=Retry(max_retries=1, retry_on=OSError), timeout=Timeout(value='1s'), name='prompt')"
    assert repr(again) == text


def test_a_guard_completes_to_public_names() -> None:
    """Rule M2: names that begin with an underscore are private."""
    shown = dir(ft.Guard())

    assert {"call", "call_async", "close", "name"} <= set(shown)
    assert [name for name in shown if name.startswith("_") and not name.endswith("__")] == []


def test_policies_for_everything_that_a_guard_takes_are_exported() -> None:
    """Rule M2."""
    taken = {
        kind for hint in get_type_hints(GuardPolicies).values() for kind in get_args(hint) if kind is not type(None)
    }

    assert {kind.__name__ for kind in taken} <= set(ft.policies.__all__)


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (lambda: ft.timeout(1, ft.ChronoUnit.SECONDS, False), "Timeout: too many positional"),  # type: ignore[call-overload]
        (lambda: ft.policies.Timeout(1, ft.ChronoUnit.SECONDS, False), "Timeout: too many positional"),  # type: ignore[misc]
        (lambda: ft.rate_limit(1, 1, ft.ChronoUnit.SECONDS, 5), "RateLimit: too many positional"),  # type: ignore[call-overload]
        (lambda: ft.before_retry(None, "reconnect"), "BeforeRetry: too many positional"),  # type: ignore[call-arg]
        (lambda: ft.policies.Retry(3), "Retry: too many positional"),  # type: ignore[misc]
    ],
)  # fmt: skip
def test_the_first_parameters_of_the_specification_are_positional(call: Any, refused: str) -> None:
    """Rule M2: further parameters are keyword-only, so that new ones may come between them."""
    with pytest.raises(TypeError, match=refused):
        call()
