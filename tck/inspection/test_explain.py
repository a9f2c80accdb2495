"""The output of `explain` (rule M3)."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance._policy import ChronoUnit, Policy, parameters
from faulttolerance.testing import configured


class Client:
    @ft.retry(max_retries=2, delay="1.5s", retry_on=ConnectionError)
    @ft.timeout(2, ft.ChronoUnit.SECONDS)
    def charge(self) -> None: ...


OWN = f"{__name__}.Client/charge"
VARIABLE = OWN.replace(".", "_").replace("/", "_").upper()


def test_values_other_than_the_default_are_shown_with_source_and_variable() -> None:
    """Rule M3: defaults are only counted."""
    assert repr(ft.explain(Client.charge)) == str(ft.explain(Client.charge)) == (
        f"{__name__}.Client.charge\n"
        "  Retry (declared on the method)\n"
        "    maxRetries = 2  [decorator]\n"
        f"      variable {VARIABLE}_RETRY_MAXRETRIES\n"
        "    delay = 1500ms  [decorator]\n"
        f"      variable {VARIABLE}_RETRY_DELAY\n"
        "    retryOn = ConnectionError  [decorator]\n"
        f"      variable {VARIABLE}_RETRY_RETRYON\n"
        f"    [{len(parameters(ft.policies.Retry)) - 3} at the default]\n"
        "  Timeout (declared on the method)\n"
        "    value = 2s  [decorator]\n"
        f"      variable {VARIABLE}_TIMEOUT_VALUE\n"
        "    unit = SECONDS  [decorator]\n"
        f"      variable {VARIABLE}_TIMEOUT_UNIT\n"
        f"    [{len(parameters(ft.policies.Timeout)) - 2} at the default]"
    )  # fmt: skip


def test_all_shows_the_defaults_behind_the_other_values() -> None:
    """Rule M3: defaults have their units."""
    lines = ft.explain(Client.charge, all=True).splitlines()
    values = [line for line in lines if line.startswith("    ") and " = " in line]

    assert "    maxDuration = 3m  [default]" in values
    assert "    jitter = 200ms  [default]" in values
    assert len(values) == len(parameters(ft.policies.Retry)) + len(parameters(ft.policies.Timeout))
    in_retry = [line.endswith("[default]") for line in values[: len(parameters(ft.policies.Retry))]]
    assert in_retry == sorted(in_retry)


@pytest.mark.parametrize("which", ["maxRetries", "delay", "retryOn"])
def test_the_variable_that_is_named_changes_the_value(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule M3: it wins over a stronger source with a key for more guards."""
    text = {"maxRetries": "7", "delay": "7s", "retryOn": "OSError"}
    with configured({"Retry/maxRetries": "5", "Retry/delay": "5s", "Retry/retryOn": "KeyError"}):
        told = ft.explain(Client.charge).as_dict()["policies"][0]["parameters"][which]
        monkeypatch.setenv(told["variable"], text[which])
        ft.reload()

        shown = ft.explain(Client.charge)

    assert f"    {which} = {text[which]}  [" in shown
    assert f"variable {told['variable']}]" in shown.replace("environment ", "")
    assert f"      variable {told['variable']}" not in shown


@pytest.mark.parametrize("key", ["Retry/delay", f"{OWN}/Retry/delay"])
@pytest.mark.parametrize("ending", [".json", ".env"])
def test_a_value_of_a_file_is_shown_with_the_variable_that_would_override_it(
    key: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule M3: the variable wins over any key of a file."""
    file = tmp_path / f"{ending}"
    in_dotenv = f"{VARIABLE}_RETRY_DELAY" if key.startswith(OWN) else "FAULTTOLERANCE_RETRY_DELAY"
    file.write_text(json.dumps({key: "5s"}) if ending == ".json" else f"{in_dotenv}=5s\n")
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", str(file))
    ft.reload()

    before = ft.explain(Client.charge)
    told = before.as_dict()["policies"][0]["parameters"]["delay"]
    monkeypatch.setenv(told["variable"], "7s")
    ft.reload()

    assert f"    delay = 5s  [{key} in file {file}" in before
    assert f"      variable {told['variable']}\n" in before
    assert "    delay = 7s  [" in ft.explain(Client.charge)


@pytest.mark.parametrize(
    ("ordinal", "environments", "is_named"), [(300, "300", True), (301, "300", False), (100, "99", False)]
)
def test_the_variable_is_named_where_the_environment_is_stronger(
    ordinal: int, environments: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule M3: the ordinals of the two decide, and each source may declare its own."""
    file = tmp_path / "faulttolerance.json"
    file.write_text(json.dumps({"config_ordinal": ordinal, f"{OWN}/Retry/delay": "5s"}))
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", str(file))
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG_ORDINAL", environments)
    ft.reload()

    told = ft.explain(Client.charge).as_dict()["policies"][0]["parameters"]["delay"]
    monkeypatch.setenv(f"{VARIABLE}_RETRY_DELAY", "7s")
    ft.reload()

    assert told["variable"] == (f"{VARIABLE}_RETRY_DELAY" if is_named else "")
    assert ("    delay = 7s  [" in ft.explain(Client.charge)) == is_named


def test_no_variable_is_named_beside_a_stronger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule M3: of two spellings the first counts."""
    monkeypatch.setenv(f"{OWN}/Retry/delay", "5s")
    ft.reload()

    assert ft.explain(Client.charge).as_dict()["policies"][0]["parameters"]["delay"]["variable"] == ""


def test_no_variable_is_named_where_it_would_change_nothing() -> None:
    """Rule M3: a stronger source sets the same key, and is named."""
    with configured({f"{OWN}/Retry/delay": "7s"}):
        shown = ft.explain(Client.charge)

    assert f"delay = 7s  [{OWN}/Retry/delay in configure(properties=...)]" in shown
    assert f"{VARIABLE}_RETRY_DELAY" not in shown


@pytest.mark.parametrize(("ordinal", "is_named"), [(299, True), (300, False), (301, False)])
def test_no_variable_is_named_beside_properties_of_its_ordinal(
    ordinal: int, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule M3: they stand before the environment."""
    ft.configure(properties={"config_ordinal": ordinal, f"{OWN}/Retry/delay": "5s"})

    told = ft.explain(Client.charge).as_dict()["policies"][0]["parameters"]["delay"]
    monkeypatch.setenv(f"{VARIABLE}_RETRY_DELAY", "7s")
    ft.reload()

    assert bool(told["variable"]) == is_named
    assert ("    delay = 7s  [" in ft.explain(Client.charge)) == is_named


def test_the_variables_of_a_guard_without_a_name_are_the_global_ones() -> None:
    """Rule M3: such a guard has no other variables."""
    assert "variable FAULTTOLERANCE_RETRY_MAXRETRIES" in ft.explain(ft.Guard(retry=ft.policies.Retry(max_retries=1)))


def test_a_value_without_a_key_has_no_variable() -> None:
    """Rule M3: the name of a circuit has none."""

    @ft.circuit_breaker
    @ft.circuit_breaker_name("m3 orders")
    def order() -> None: ...

    assert "value = m3 orders  [decorator]" in ft.explain(order)
    assert " variable " not in ft.explain(order)


def durations() -> Iterator[tuple[type[Policy], str]]:
    for policy in Policy.__subclasses__():
        for one in parameters(policy).values():
            if one.kind.name == "duration":
                yield policy, one.name


@pytest.mark.parametrize(("policy", "name"), list(durations()))
def test_durations_are_shown_with_their_units(policy: type[Policy], name: str) -> None:
    """Rule M3: each number has its unit."""
    one = parameters(policy)[name]
    unit = {one.kind.unit: ChronoUnit.MINUTES} if one.kind.unit else {}
    further = {"max_duration": 0} if policy is ft.policies.Retry and name != "max_duration" else {}
    made = policy(**{name: 6_000, **unit, **further})

    assert one.formatted_value(made) == ("100h" if unit else "6s")
    assert one.formatted_value(policy(**{name: timedelta(seconds=3), **unit, **further})) == "3s"


def test_every_unit_is_that_of_a_duration() -> None:
    """Rule M3: the test knows each parameter that is the unit of another."""
    for policy in Policy.__subclasses__():
        named = parameters(policy)
        units = {name for name, one in named.items() if isinstance(one.default, ChronoUnit)}
        assert {one.kind.unit for one in named.values() if one.kind.unit} == units


def test_a_duration_that_is_no_whole_number_of_microseconds_keeps_its_unit() -> None:
    """Rule M3: it is not rounded."""
    assert "value = 0.5 nanos" in ft.explain(ft.Guard(timeout=ft.policies.Timeout(0.5, ft.ChronoUnit.NANOS)))
    assert "value = 3.5us" not in ft.explain(ft.Guard(timeout=ft.policies.Timeout(3.5, ft.ChronoUnit.MICROS)))


class Waits(float, Enum):
    HALF = 5.5


@pytest.mark.parametrize(
    ("window", "unit", "shown"),
    [
        (1e308, ChronoUnit.DAYS, "1e+308 days"),
        (5e-324, ChronoUnit.NANOS, "4.94066e-324 nanos"),
        (Waits.HALF, ChronoUnit.NANOS, "5.5 nanos"),
    ],
)
def test_every_number_that_is_accepted_as_a_duration_is_shown(window: float, unit: ChronoUnit, shown: str) -> None:
    """Also one that is too long or too short for microseconds, and a member of an enumeration."""
    guard = ft.Guard(ft.rate_limit(1, window, unit))
    assert f"window = {shown}  [decorator]" in repr(ft.explain(guard))


def test_as_dict_is_for_json_and_has_everything() -> None:
    """Rule M3: it has the values that the text leaves out."""
    told: Any = json.loads(json.dumps(ft.explain(Client.charge).as_dict()))

    assert (told["name"], told["wrong"]) == (f"{__name__}.Client.charge", [])
    assert [policy["annotation"] for policy in told["policies"]] == ["Retry", "Timeout"]
    assert told["policies"][0]["parameters"]["maxRetries"] == {
        "value": 2,
        "source": "decorator",
        "default": 3,
        "variable": f"{VARIABLE}_RETRY_MAXRETRIES",
    }
    assert told["policies"][0]["parameters"]["maxDuration"]["default"] == "3m"
    assert told["policies"][1]["parameters"]["value"]["value"] == "2s"
    assert told["policies"][0]["parameters"]["abortOn"]["value"] == []


def test_as_dict_goes_from_guard_to_guard() -> None:
    """Rule M3: the outermost guard comes first."""
    inner = ft.Guard(timeout=ft.policies.Timeout("1s"), name="m3 inner")

    @ft.bulkhead(3)
    @inner
    def function() -> None: ...

    told = ft.explain(function).as_dict()
    inner.close()

    assert told["policies"][0]["annotation"] == "Bulkhead"
    assert told["inside"]["guard"] == "m3 inner"
    assert told["inside"]["policies"][0]["annotation"] == "Timeout"


def test_an_explanation_can_be_copied_and_pickled() -> None:
    """Rule M3: it is a value."""
    explanation = ft.explain(Client.charge)

    for again in (copy.deepcopy(explanation), pickle.loads(pickle.dumps(explanation))):
        assert (again, again.as_dict()) == (explanation, explanation.as_dict())
