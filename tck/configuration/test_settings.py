"""The configuration in force: its preparation, its installation and restoration, and its cost."""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from faulttolerance._config import Configuration, Declared, Effective, Settings, Switches
from faulttolerance._policy import Asynchronous, Bulkhead, Fallback, Policy, Retry, Timeout
from faulttolerance.exceptions import FaultToleranceDefinitionException
from kit.configuration import put, renew, settings_of
from kit.program import ALONE, python


def resolve(settings: Settings, *policies: Policy, snapshot: Any = None) -> list[Effective]:
    declared = [Declared(policy, "method", "acme.Client", "charge") for policy in policies]
    state = settings.next_configuration(snapshot, settings.state) if snapshot is not None else None
    effective, faults = settings.resolve(declared, "acme.Client.charge", state)
    assert faults == []
    return effective


# In force and not yet


def test_a_prepared_configuration_changes_nothing_before_it_is_installed() -> None:
    """So every guard can be checked against it first."""
    settings = Settings()
    prepared = settings.prepare(settings.state, properties=({"Retry/maxRetries": 5},))

    there = resolve(settings, Retry(), snapshot=prepared)
    in_force = resolve(settings, Retry())
    put(settings, settings.next_configuration(prepared, settings.state))
    after = resolve(settings, Retry())

    assert [one[0].policy for one in (there, in_force, after)] == [Retry(max_retries=5), Retry(), Retry(max_retries=5)]


def test_an_argument_that_is_not_given_again_keeps_its_value() -> None:
    """``configure(files=...)`` does not forget the properties; an empty mapping does."""
    settings = Settings()
    renew(settings, properties={"Retry/maxRetries": 5})

    renew(settings, sources=[lambda: {"Retry/delay": 7}])
    both = resolve(settings, Retry())[0].policy
    renew(settings, properties={})
    one = resolve(settings, Retry())[0].policy

    assert (both, one) == (Retry(max_retries=5, delay=7), Retry(delay=7))


def test_a_configuration_is_not_changed_through_its_arguments() -> None:
    """A snapshot is immutable, also through the mapping of which it was made."""
    settings, properties = Settings(), {"Retry/maxRetries": 5}
    renew(settings, properties=properties)

    properties["Retry/maxRetries"] = 6
    renew(settings)

    assert resolve(settings, Retry())[0].policy == Retry(max_retries=5)


def test_a_state_can_be_restored() -> None:
    """Tests set values for a block and leave nothing behind, neither keys nor switches."""
    settings = Settings()
    renew(settings, properties={"Retry/delay": 1})
    before = settings.state

    renew(settings, properties={"MP_Fault_Tolerance_NonFallback_Enabled": False})
    inside = resolve(settings, Retry())[0]
    put(settings, settings.restored_configuration(before))
    after = resolve(settings, Retry())[0]
    put(settings, settings.restored_configuration(Configuration()))
    forgotten = resolve(settings, Retry())[0]

    assert (inside.enabled, after.enabled) == (False, True)
    assert (after.policy, forgotten.policy) == (Retry(delay=1), Retry())


def test_resolutions_see_one_snapshot_each_while_others_are_installed() -> None:
    """A guard never gets one value from the old configuration and one from the new."""
    settings = Settings()
    renew(settings, properties={"Retry/maxRetries": 0, "Retry/delay": 0})
    stop, torn = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            policy = resolve(settings, Retry(jitter=0))[0].policy
            if policy.max_retries != policy.delay:  # type: ignore[attr-defined]
                torn.append(policy)

    readers = [threading.Thread(target=look) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(200):
        renew(settings, properties={"Retry/maxRetries": number, "Retry/delay": number})
    stop.set()
    for reader in readers:
        reader.join()

    assert torn == []


# Switches


def test_switches_have_the_defaults_of_the_specification() -> None:
    """Everything is on; the interceptor's priority is ``PLATFORM_AFTER + 10``."""
    assert Settings().loaded().switches == Switches(True, True, 4010)


@pytest.mark.parametrize(
    ("variable", "value", "switches"),
    [
        ("MP_Fault_Tolerance_NonFallback_Enabled", "false", Switches(non_fallback_enabled=False)),
        ("MP_FAULT_TOLERANCE_NONFALLBACK_ENABLED", "FALSE", Switches(non_fallback_enabled=False)),
        ("MP_Fault_Tolerance_Metrics_Enabled", "false", Switches(metrics_enabled=False)),
        ("MP_FAULT_TOLERANCE_INTERCEPTOR_PRIORITY", "1000", Switches(interceptor_priority=1000)),
    ],
)
def test_switches_are_read_from_the_environment(
    variable: str, value: str, switches: Switches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where pydantic is not installed: switches do not need it."""
    monkeypatch.setenv(variable, value)
    monkeypatch.setitem(sys.modules, "pydantic", None)

    assert Settings().loaded().switches == switches


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MP_FAULT_TOLERANCE_NONFALLBACK_ENABLED", "no"),
        ("MP_FAULT_TOLERANCE_METRICS_ENABLED", "1"),
        ("MP_FAULT_TOLERANCE_INTERCEPTOR_PRIORITY", "first"),
    ],
)
def test_a_wrong_switch_is_refused(key: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first resolution refuses it, and names its variable."""
    monkeypatch.setenv(key, value)

    _, faults = Settings().resolve([Declared(Retry(), "method", "a", "b")], "a.b")

    assert [(fault.got, fault.source) for fault in faults] == [(value, f"environment variable {key}")]
    with pytest.raises(FaultToleranceDefinitionException):
        Settings().loaded()


def test_all_but_fallback_are_switched_off_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specification: fallback logic can be defined by the application only."""
    monkeypatch.setenv("MP_Fault_Tolerance_NonFallback_Enabled", "false")

    effective = resolve(Settings(), Retry(), Timeout(), Bulkhead(), Asynchronous(), Fallback(fallback_method="f"))

    assert [one.enabled for one in effective] == [False, False, False, False, True]


def test_individual_keys_beat_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specification: the switch "has the lowest priority"."""
    monkeypatch.setenv("MP_Fault_Tolerance_NonFallback_Enabled", "false")
    monkeypatch.setenv("Bulkhead/enabled", "true")
    monkeypatch.setenv("ACME_CLIENT_CHARGE_FALLBACK_ENABLED", "false")

    effective = resolve(Settings(), Retry(), Bulkhead(), Fallback(fallback_method="f"))

    assert [one.enabled for one in effective] == [False, True, False]


def test_a_wrong_switch_is_refused_when_it_is_configured() -> None:
    """The error comes before anything changes."""
    settings = Settings()

    with pytest.raises(FaultToleranceDefinitionException, match="allowed: true or false"):
        settings.prepare(settings.state, properties=({"MP_Fault_Tolerance_Metrics_Enabled": 1},))


def test_a_switch_is_read_once_and_a_later_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Specification: changes are "ignored until the application restarts"."""
    settings = Settings()
    resolve(settings, Retry())

    with caplog.at_level(logging.WARNING, "faulttolerance"):
        renew(settings, properties={"MP_Fault_Tolerance_NonFallback_Enabled": "false"})

    assert resolve(settings, Retry())[0].enabled
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_switch_that_is_configured_before_the_first_call_counts() -> None:
    """A configuration that was only prepared does not fix the switches."""
    settings = Settings()
    resolve(settings, Retry(), snapshot=settings.prepare(settings.state))

    renew(settings, properties={"MP_Fault_Tolerance_NonFallback_Enabled": "false"})

    assert not resolve(settings, Retry())[0].enabled


# Costs


PROGRAM = """
import sys
import faulttolerance
from faulttolerance._config import Declared, settings
from faulttolerance._policy import Retry, Timeout
effective, faults = settings.resolve([Declared(Retry(), "method", "acme.Client", "charge")], "acme.Client.charge")
assert (effective[0].policy, faults) == (Retry(), []), (effective, faults)
heavy = ("asyncio", "logging", "pydantic", "pydantic_settings", "tomllib")
print([name for name in heavy if name in sys.modules])
"""


@pytest.mark.outside
@pytest.mark.parametrize("variables", [{}, {"APP_RETRY_DELAY": "3", "TIMEOUT_VALUE": "x", "Retry": "1"}])
def test_without_configuration_nothing_heavy_is_imported(variables: dict[str, str]) -> None:
    """Variables of others that look alike do not change that."""
    done = python(PROGRAM, environment={**ALONE, **variables})

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


PROGRAM_THAT_CALLS = """
import builtins, json, sys
hidden = {"javaproperties", "yaml", "typer", "rich", "wrapt", "prometheus_client", "opentelemetry"}
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
import faulttolerance
imported = ["pydantic" in sys.modules]
@faulttolerance.timeout(500)
def call():
    return faulttolerance.remaining()
imported.append("pydantic" in sys.modules)
left = call()
imported.append("pydantic" in sys.modules)
print(json.dumps([imported, left]))
"""


def called(folder: Path, variables: dict[str, str]) -> tuple[list[bool], float]:
    """Return when pydantic was imported (by the package, the first decorator, the first call), and the time left."""
    done = python(PROGRAM_THAT_CALLS, folder=folder, environment={**ALONE, **variables})
    assert done.stderr == ""
    imported, left = json.loads(done.stdout)
    return imported, left


@pytest.mark.outside
@pytest.mark.parametrize("name", ["f.toml", "f.json", ".env"])
def test_files_need_no_extra_and_their_packages_are_imported_when_the_program_starts(name: str, tmp_path: Path) -> None:
    """A first request would otherwise wait while pydantic-settings is imported."""
    (tmp_path / "f.toml").write_text("Timeout.value = 50000")
    (tmp_path / "f.json").write_text('{"Timeout": {"value": "50s"}}')
    (tmp_path / ".env").write_text("FAULTTOLERANCE_TIMEOUT_VALUE=PT50S")

    imported, left = called(tmp_path, {"FAULTTOLERANCE_CONFIG": name})

    assert imported == [False, True, True]
    assert 10 < left <= 50


@pytest.mark.outside
@pytest.mark.parametrize("name", ["FAULTTOLERANCE_TIMEOUT_VALUE", "__main___call_Timeout_value"])
def test_variables_that_set_values_need_no_package(name: str, tmp_path: Path) -> None:
    """The kinds of the parameters parse them."""
    imported, left = called(tmp_path, {name: "50s"})

    assert imported == [False, False, False]
    assert 10 < left <= 50


@pytest.mark.outside
@pytest.mark.parametrize(
    "variables", [{}, {"SOMEBODY_RETRY_DELAY": "3", "TIMEOUT_VALUE": "x"}, {"FAULTTOLERANCE_RETRY_ENABLED": "true"}]
)
def test_pydantic_is_imported_only_where_something_is_configured(variables: dict[str, str], tmp_path: Path) -> None:
    """A switch of policies does not need it."""
    assert called(tmp_path, variables)[0] == [False, False, False]


@pytest.mark.outside
@pytest.mark.parametrize(("name", "needs"), [("f.yaml", "yaml"), ("f.properties", "javaproperties")])
def test_formats_that_need_an_extra_say_so(name: str, needs: str, tmp_path: Path) -> None:
    """The rest of the message is the command to type."""
    (tmp_path / name).write_text("")
    program = f"import sys; sys.modules[{needs!r}] = None; import faulttolerance as ft; ft.configure(files=[{name!r}])"
    done = python(program, folder=tmp_path, environment=ALONE)

    install = 'pip install "faulttolerance[files]"'
    assert f"{name} cannot be read without {needs}; allowed: {install}" in done.stderr


def test_files_ask_for_pydantic_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named sources ask for it, too."""
    monkeypatch.delitem(sys.modules, "faulttolerance._config.reading", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_settings", None)

    with pytest.raises(FaultToleranceDefinitionException, match=r"needs pydantic_settings; allowed: pip install"):
        settings_of(files=["faulttolerance.toml"])


@pytest.mark.outside
@pytest.mark.parametrize("variables", [{}, {"FAULTTOLERANCE_CONFIG": ".env"}])
def test_an_installed_package_that_cannot_be_imported_says_why(variables: dict[str, str], tmp_path: Path) -> None:
    """To install it again would not help, as in an isolated sub-interpreter."""
    (tmp_path / ".env").write_text("")
    (tmp_path / "dotenv.py").write_text("raise ImportError('it does not support sub-interpreters')")
    program = "import sys; sys.path.insert(0, '.'); import faulttolerance as ft; ft.configure(files=['.env'])"

    done = python(program, folder=tmp_path, environment={**ALONE, **variables})

    assert "ImportError: it does not support sub-interpreters" in done.stderr.splitlines()[-1]


def test_properties_that_only_switch_need_no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service mesh switches policies off, and nothing is loaded for it."""
    monkeypatch.setitem(sys.modules, "pydantic", None)
    monkeypatch.setitem(sys.modules, "pydantic_settings", None)
    settings = Settings()

    renew(settings, properties={"Retry": {"enabled": False}, "MP_Fault_Tolerance_Metrics_Enabled": "false"})

    assert not resolve(settings, Retry())[0].enabled
    assert settings.loaded().switches == Switches(metrics_enabled=False)
