"""Decorators take the parameters of the policies that they declare."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

from faulttolerance import bulkhead, explain, fleet_wide, policies, retry, timeout
from faulttolerance._policy import Policy, Retry, parameters


def decorator_of(policy: type[Policy]) -> Any:
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in policy.__name__)
    return getattr(policies, name.removeprefix("_"))


@pytest.mark.parametrize("policy", Policy.__subclasses__())
def test_a_decorator_shows_the_parameters_of_its_policy(policy: type[Policy]) -> None:
    """``inspect.signature`` and ``help()`` have them with their defaults."""
    decorator = decorator_of(policy)

    assert inspect.signature(decorator) == inspect.signature(policy)
    assert all(name in pydoc.render_doc(decorator) for name in parameters(policy))
    assert decorator.__doc__
    assert decorator.__module__ == "faulttolerance.policies"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: retry(max_retris=3), "@Retry has no parameter 'max_retris'; it has max_retries, delay, "),
        (lambda: fleet_wide(namespace="n"), "@FleetWide has no parameter 'namespace'; it has none"),
        (lambda: bulkhead(1, 2, 3), "Bulkhead: too many positional arguments"),
        (lambda: bulkhead(1, value=2), "Bulkhead: multiple values for argument 'value'"),
        (lambda: policies.custom_backoff(), "CustomBackoff: missing a required argument: 'value'"),
    ],
)
def test_arguments_that_a_policy_does_not_take_are_refused(call: Any, message: str) -> None:
    """The same holds for any function."""
    with pytest.raises(TypeError) as refused:
        call()

    assert str(refused.value).startswith(message)


def test_parameters_may_stand_behind_the_target() -> None:
    """This serves a call that guards undecorated code."""

    def charge() -> str:
        return "charged"

    by_name, by_position = retry(charge, max_retries=7), timeout(charge, 400)

    assert (by_name(), by_position()) == ("charged", "charged")
    assert "maxRetries = 7" in explain(by_name)
    assert "value = 400" in explain(by_position)


def test_a_default_is_the_one_of_the_policy() -> None:
    """It is written there only."""
    shown = inspect.signature(retry).parameters

    assert {name: one.default for name, one in shown.items()} == {name: getattr(Retry(), name) for name in shown}
