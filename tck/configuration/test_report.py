"""Keys that nothing uses, variables that are ambiguous, values that changed (rule C4)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from faulttolerance._config import Declared, report
from faulttolerance._config.report import changes, collisions, keys, unused
from faulttolerance._policy import Bulkhead, Policy, Retry, Timeout
from kit.configuration import settings_of

CHARGE = Declared(Retry(), "method", "acme.Client", "charge")
REFUND = Declared(Timeout(500), "class", "acme.Client", "refund", ("acme.Special", "acme.Client"))
DECLARED = [CHARGE, REFUND]


def reported(**inputs: Any) -> list[tuple[str, str]]:
    return [(one.key, one.nearest) for one in unused(settings_of(**inputs).snapshot, DECLARED)]


@pytest.mark.parametrize(
    "key",
    [
        "acme.Client/charge/Retry/maxRetries",
        "acme.Client/charge/Retry/max_retries",
        "Retry/delay",
        "acme.Client/charge/Retry/enabled",
        "acme.Client/Retry/enabled",
        "acme.Special/refund/Timeout/enabled",
        "acme.Client/Timeout/value",
        "MP_Fault_Tolerance_Metrics_Enabled",
        "mp.fault.tolerance.interceptor.priority",
    ],
)
def test_a_key_that_concerns_a_declaration_is_used(key: str) -> None:
    """This holds whether or not another source is stronger."""
    value = "true" if key.endswith("nabled") else 1

    assert reported(properties={key: value}, sources=[lambda: {key: value}]) == []


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("acme.Client/charge/Retry/maxRetrys", "acme.Client/charge/Retry/maxRetries"),
        ("acme.Client/charge/Retyr/maxRetries", "acme.Client/charge/Retry/maxRetries"),
        ("acme.Client/chrge/Retry/delay", "acme.Client/charge/Retry/delay"),
        ("acme.client/charge/Retry/delay", "acme.Client/charge/Retry/delay"),
        ("acme.Client/Retry/delay", "acme.Client/charge/Retry/delay"),
        ("acme.Client/refund/Timeout/value", "acme.Client/Timeout/value"),
        ("Retry/maxDurationUnit", "Retry/maxDuration"),
        ("Timout/value", "Timeout/value"),
        ("Bulkhead/value", ""),
        ("something else", ""),
        ("MP_Fault_Tolerance_Metric_Enabled", "MP_Fault_Tolerance_Metrics_Enabled"),
        ("mp.fault.tolerance.interceptor.prio", "mp.fault.tolerance.interceptor.priority"),
    ],
)
def test_a_key_that_nothing_uses_is_named_with_the_nearest(key: str, nearest: str) -> None:
    """The specification ignores it; here it can be seen."""
    assert reported(properties={key: 1}) == [(key, nearest)]


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("ACME_CLIENT_CHARGE_RETRY_MAXRETRY", "ACME_CLIENT_CHARGE_RETRY_MAXRETRIES"),
        ("ACME_CLIENT_CHARG_RETRY_MAXRETRIES", "ACME_CLIENT_CHARGE_RETRY_MAXRETRIES"),
        ("ACME_CLIENT_CHARGE_RETRY_ATTEMPTS", "ACME_CLIENT_CHARGE_RETRY_JITTER"),
        ("ACME_CLIENT_CHARGE_CIRCUITBREAKER_SUCCESSTHRESHOLD", ""),
        ("FAULTTOLERANCE_RETRY_MAXRETRIS", "FAULTTOLERANCE_RETRY_MAXRETRIES"),
        ("FAULTTOLERANCE_BULKHEAD_SIZE", ""),
        ("acme.Client/charge/Retry/dely", "acme.Client/charge/Retry/delay"),
    ],
)
def test_a_variable_that_nothing_uses_is_named_with_the_nearest(
    variable: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for a variable that looks like one of ours."""
    monkeypatch.setenv(variable, "1")

    assert reported() == [(variable, nearest)]


@pytest.mark.parametrize("variable", ["APP_RETRY_DELAY", "TIMEOUT_VALUE", "RETRY_ENABLED", "FAULTTOLERANCE_CONFIG"])
def test_variables_of_others_are_not_reported(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment holds variables of all programs."""
    monkeypatch.setenv(variable, "")

    assert reported() == []


@pytest.mark.parametrize("variable", ["SHOP_TIMEOUT_SECONDS", "SHOP_BULKHEAD_SIZE"])
def test_variables_of_an_application_are_not_reported(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin with the module of a guarded function, whose only keys there are switches."""
    monkeypatch.setenv(variable, "3")
    pay = Declared(Timeout(500), "method", "shop", "pay")

    assert unused(settings_of().snapshot, [pay]) == []


def test_keys_of_others_in_a_shared_file_are_not_reported(tmp_path: Path) -> None:
    """``microprofile-config.properties`` holds the settings of a whole application."""
    pytest.importorskip("javaproperties")
    file = tmp_path / "microprofile-config.properties"
    file.write_text("db.url=x\nacme.Rest/mp-rest/url=http://x\nacme.Client/charge/Retry/dely=5\n")

    assert reported(files=[file]) == [("acme.Client/charge/Retry/dely", "acme.Client/charge/Retry/delay")]


def test_keys_of_others_in_a_shared_file_are_compared_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hundreds of them and of guards, that would take many seconds, at each reload on a signal."""
    pytest.importorskip("javaproperties")
    file = tmp_path / "microprofile-config.properties"
    file.write_text("db.url=x")
    monkeypatch.setattr(report, "nearest", pytest.fail)

    assert reported(files=[file]) == []


def test_the_report_reads_as_a_sentence() -> None:
    """The sentence has the source."""
    found = unused(settings_of(properties={"Retry/dely": 1}).snapshot, DECLARED)

    assert [str(one) for one in found] == [
        "Retry/dely is not used; did you mean Retry/delay? (configure(properties=...))"
    ]


def test_a_variable_that_stands_for_two_keys_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dots and underscores are lost in a variable, which was meant for one of the two keys."""
    monkeypatch.setenv("A_B_C_RETRY_DELAY", "5")
    declared = [Declared(Retry(), "method", "a.b", "c"), Declared(Retry(), "method", "a", "b_c")]

    found = collisions(settings_of().snapshot, declared)

    assert [(fault.where, fault.problem) for fault in found] == [
        ("A_B_C_RETRY_DELAY", "stands for a.b/c/Retry/delay and for a/b_c/Retry/delay")
    ]


def test_a_variable_that_is_spelled_exactly_stands_for_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the remedy, besides a file."""
    monkeypatch.setenv("a.b/c/Retry/delay", "5")
    declared = [Declared(Retry(), "method", "a.b", "c"), Declared(Retry(), "method", "a", "b_c")]

    assert collisions(settings_of().snapshot, declared) == []


def test_a_key_of_many_guards_is_no_collision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Global keys and class keys concern several methods."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_DELAY", "5")

    assert collisions(settings_of().snapshot, [CHARGE, CHARGE._replace(method="refund")]) == []


def test_keys_lists_all_that_could_be_set() -> None:
    """Each is listed once, in the order of declaration."""
    found = list(keys([REFUND, REFUND]))

    assert found == [
        "acme.Client/Timeout/value",
        "Timeout/value",
        "acme.Client/Timeout/unit",
        "Timeout/unit",
        "acme.Client/Timeout/interrupt",
        "Timeout/interrupt",
        "acme.Client/Timeout/adaptive",
        "Timeout/adaptive",
        "acme.Special/refund/Timeout/enabled",
        "acme.Client/refund/Timeout/enabled",
        "acme.Special/Timeout/enabled",
        "acme.Client/Timeout/enabled",
        "Timeout/enabled",
        "acme.Special/refund/Timeout/mode",
        "acme.Client/refund/Timeout/mode",
        "acme.Special/Timeout/mode",
        "acme.Client/Timeout/mode",
        "Timeout/mode",
    ]


def test_changes_name_the_guard_the_parameter_both_values_and_the_source() -> None:
    """``reload()`` returns these changes."""
    policies: list[Policy] = [Retry(), Bulkhead()]
    declared = [Declared(policy, "method", "acme.Client", "charge") for policy in policies]
    before, _ = settings_of(properties={"Retry/delay": 5}).resolve(declared, "x")
    after, _ = settings_of(properties={"Retry/maxRetries": 5, "Bulkhead/enabled": False}).resolve(declared, "x")

    found = changes("acme.Client.charge", before, after)

    assert [str(one) for one in found] == [
        "acme.Client.charge @Retry(max_retries): 3 -> 5 (Retry/maxRetries in configure(properties=...))",
        "acme.Client.charge @Retry(delay): 5 -> 0 (default)",
        "acme.Client.charge @Bulkhead(enabled): true -> false (Bulkhead/enabled in configure(properties=...))",
    ]
    assert changes("acme.Client.charge", after, after) == []


def test_changes_are_written_as_in_a_configuration_file() -> None:
    """A log line of a reload says 400ms and a class's name, as ``explain`` does, and not the repr of Python."""
    policy = Retry(delay=timedelta(milliseconds=400), abort_on=KeyError)
    declared = [Declared(policy, "method", "acme.Client", "charge")]
    texts = {"Retry/delay": "2s", "Retry/abortOn": ""}
    before, _ = settings_of().resolve(declared, "x")
    after, _ = settings_of(properties=texts).resolve(declared, "x")

    assert [str(one).partition(" (")[0] for one in changes("charge", before, after)] == [
        "charge @Retry(delay): 400ms -> 2s",
        "charge @Retry(abort_on): KeyError -> none",
    ]
