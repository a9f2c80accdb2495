"""The spelling of parameters in files, in properties and in the environment."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from faulttolerance._config import Declared, parameter_keys
from faulttolerance._config.key import ANNOTATIONS, Key, switch_key
from faulttolerance._policy import CircuitBreakerName, Policy, Retry, Timeout, parameters
from faulttolerance._signature.naming import qualified_name_of


def run(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(module, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def names(keys: list[Key]) -> list[str]:
    return [key.name for key in keys]


def test_a_method_key_is_stronger_than_a_global_one_and_no_class_key_reaches_a_method() -> None:
    """Specification, chapter configuration: class keys concern annotations on classes only."""
    declared = Declared(Retry(), "method", "acme.Client", "charge")

    keys = parameter_keys(declared, "max_retries")

    assert names(keys) == ["acme.Client/charge/Retry/maxRetries", "Retry/maxRetries"]


def test_no_method_key_reaches_an_annotation_on_a_class() -> None:
    """Specification: "the config property com.acme.ClassA/methodB/Retry/maxRetries will be ignored"."""
    declared = Declared(Retry(), "class", "acme.Client", "charge")

    keys = parameter_keys(declared, "max_retries")

    assert names(keys) == ["acme.Client/Retry/maxRetries", "Retry/maxRetries"]


def test_a_guard_is_configured_by_its_name() -> None:
    """A guard is no method: its keys have two parts."""
    declared = Declared(Timeout(), "class", "payments", "")

    assert names(parameter_keys(declared, "value")) == ["payments/Timeout/value", "Timeout/value"]
    assert names(parameter_keys(declared, "enabled")) == ["payments/Timeout/enabled", "Timeout/enabled"]


def test_a_guard_without_a_name_answers_to_global_keys() -> None:
    """An empty name is no name."""
    declared = Declared(Timeout(), "class", "", "")

    assert names(parameter_keys(declared, "value")) == ["Timeout/value"]


def test_a_plain_function_is_configured_by_its_module_and_qualified_name() -> None:
    """Local functions have a spelling, too."""
    declared = Declared(Timeout(), "method", "acme.billing", "make.<locals>.charge")

    key = parameter_keys(declared, "value")[0]

    assert key.name == "acme.billing/make.<locals>.charge/Timeout/value"
    assert key.variable == "ACME_BILLING_MAKE__LOCALS__CHARGE_TIMEOUT_VALUE"


@pytest.mark.parametrize("level", ["method", "class"])
def test_enabled_keys_follow_the_method_whatever_the_level_of_the_declaration(level: str) -> None:
    """Specification: method-level configuration overrides class-level, which overrides global."""
    declared = Declared(Retry(), level, "acme.Base", "charge", ("acme.Client", "acme.Base"))  # type: ignore[arg-type]

    keys = parameter_keys(declared, "enabled")

    assert names(keys) == [
        "acme.Client/charge/Retry/enabled",
        "acme.Base/charge/Retry/enabled",
        "acme.Client/Retry/enabled",
        "acme.Base/Retry/enabled",
        "Retry/enabled",
    ]


def test_variables_are_spelled_by_the_mapping_of_microprofile_config() -> None:
    """Exact, other characters replaced, that in upper case; last the exact name as Windows shows it.

    The Python spelling of the parameter likewise.
    """
    key = parameter_keys(Declared(Retry(), "method", "acme.My_Client", "charge"), "max_retries")[0]

    assert key.variables == (
        "acme.My_Client/charge/Retry/maxRetries",
        "acme.My_Client/charge/Retry/max_retries",
        "acme_My_Client_charge_Retry_maxRetries",
        "acme_My_Client_charge_Retry_max_retries",
        "ACME_MY_CLIENT_CHARGE_RETRY_MAXRETRIES",
        "ACME_MY_CLIENT_CHARGE_RETRY_MAX_RETRIES",
        "ACME.MY_CLIENT/CHARGE/RETRY/MAXRETRIES",
        "ACME.MY_CLIENT/CHARGE/RETRY/MAX_RETRIES",
    )


def test_a_global_key_in_upper_case_needs_the_prefix() -> None:
    """``RETRY_DELAY`` is a common name of other things."""
    key = parameter_keys(Declared(Retry(), "class", "", ""), "delay")[0]

    assert key.variables == ("Retry/delay", "Retry_delay", "FAULTTOLERANCE_RETRY_DELAY", "RETRY/DELAY")
    assert key.variable == "FAULTTOLERANCE_RETRY_DELAY"


def test_the_switches_of_the_specification_need_no_prefix() -> None:
    """They carry one of their own."""
    key = switch_key("mp.fault.tolerance.interceptor.priority")

    assert "MP_FAULT_TOLERANCE_INTERCEPTOR_PRIORITY" in key.variables


def test_letters_outside_ascii_are_replaced() -> None:
    """Names of environment variables are ASCII everywhere."""
    key = parameter_keys(Declared(Timeout(), "method", "acme.Kunde", "prüfe"), "value")[0]

    assert key.variable == "ACME_KUNDE_PR_FE_TIMEOUT_VALUE"


@pytest.mark.parametrize("prompt", ["_pyrepl.__main__", "asyncio.__main__"])
def test_code_that_is_typed_at_a_prompt_is_not_of_the_module_that_shows_it(prompt: str) -> None:
    """Also at the prompts of Python 3.13 and of asyncio run by ``python -m``."""
    typed: dict[str, Any] = {"__name__": "__main__", "__spec__": ModuleSpec(prompt, None)}
    exec("def charge(): ...", typed)

    assert str(qualified_name_of(typed["charge"])) == "__main__.charge"


@pytest.mark.parametrize(
    ("run_as", "declared_as"),
    [("acme.app", "acme.app.Client"), ("acme.__main__", "acme.Client"), ("acme.__main__", "acme.__main__.Client")],
)
def test_a_module_that_is_run_answers_to_both_of_its_names(
    monkeypatch: pytest.MonkeyPatch, run_as: str, declared_as: str
) -> None:
    """``python -m acme.app`` takes the keys that were written for ``import acme.app``."""
    run(monkeypatch, run_as)

    key = parameter_keys(Declared(Timeout(), "method", declared_as, "charge"), "value")[0]

    assert key.name == f"{run_as.removesuffix('.__main__')}.Client/charge/Timeout/value"
    assert "__main__.Client/charge/Timeout/value" in key.names
    assert f"{run_as}.Client/charge/Timeout/value" in key.names


def test_a_module_whose_name_begins_like_the_one_that_is_run_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are compared by their parts."""
    run(monkeypatch, "acme.app")

    key = parameter_keys(Declared(Timeout(), "method", "acme.application.Client", "charge"), "value")[0]

    assert key.names == ("acme.application.Client/charge/Timeout/value",)


def test_everything_but_names_can_be_configured() -> None:
    """The application finds the breaker, and shares the budget, by its name, so no source may change it."""
    configurable = set(ANNOTATIONS.values())

    assert {one for one in Policy.__subclasses__() if one.__module__.startswith("faulttolerance.")} - configurable == {
        CircuitBreakerName
    }
    assert parameter_keys(Declared(CircuitBreakerName("x"), "method", "a", "b"), "value") == []
    assert parameter_keys(Declared(CircuitBreakerName("x"), "method", "a", "b"), "enabled") == []
    assert sorted(
        (kind.annotation, one.name)
        for kind in configurable
        for one in parameters(kind).values()
        if not one.kind.is_configurable
    ) == [("CircuitBreaker", "name"), ("RetryBudget", "name")]


def test_no_two_parameters_of_an_annotation_share_a_spelling() -> None:
    """Case and underscores are lost in an upper-case variable."""
    for policy in ANNOTATIONS.values():
        spelled = [one.key.upper() for one in parameters(policy).values()]

        assert len(set(spelled)) == len(spelled)
