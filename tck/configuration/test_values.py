"""Every parameter of every annotation, from every kind of source (rule C2)."""

from __future__ import annotations

import importlib.util
import json
from collections import UserList
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance._config import Declared, Effective, Settings
from faulttolerance._config.key import ANNOTATIONS
from faulttolerance._policy import (
    BeforeRetry,
    ChronoUnit,
    CustomBackoff,
    FailWhen,
    Fallback,
    Policy,
    RateLimit,
    RateLimitType,
    Retry,
    RetryWhen,
    Timeout,
    parameters,
)
from faulttolerance.exceptions import Fault
from kit.configuration import settings_of


def handler(context: object) -> str:
    return "substitute"


def back_off() -> object:
    return lambda failure: 0


class Outer:
    class Handler:
        def handle(self, context: object) -> str:
            return "substitute"

    class Error(Exception):
        pass


HERE = __name__

TABLE: dict[tuple[str, str], tuple[str, Any, str]] = {
    # (annotation, parameter): (text of a right value, what it means, text of a wrong value)
    ("Retry", "max_retries"): ("7", 7, "-2"),
    ("Retry", "delay"): ("400ms", timedelta(milliseconds=400), "-1"),
    ("Retry", "delay_unit"): ("MICROS", ChronoUnit.MICROS, "FORTNIGHTS"),
    ("Retry", "max_duration"): ("PT1H30M", timedelta(minutes=90), "soon"),
    ("Retry", "duration_unit"): ("hours", ChronoUnit.HOURS, "1"),
    ("Retry", "jitter"): ("0", 0, "-0.5"),
    ("Retry", "jitter_delay_unit"): ("NANOS", ChronoUnit.NANOS, ""),
    ("Retry", "jitter_kind"): ("Full", "full", "some"),
    ("Retry", "retry_on"): ("OSError, concurrent.futures.CancelledError", None, "int"),
    ("Retry", "abort_on"): (" ", (), "acme.NoSuchModule"),
    ("RetryBudget", "ratio"): ("0.5", 0.5, "1.01"),
    ("RetryBudget", "burst"): ("20", 20, "0"),
    ("Timeout", "value"): ("2.5", 2.5, "nan"),
    ("Timeout", "unit"): ("SECONDS", ChronoUnit.SECONDS, "seconds!"),
    ("Timeout", "interrupt"): ("false", False, "no"),
    ("Timeout", "adaptive"): ("true", True, "yes"),
    ("CircuitBreaker", "fail_on"): ("ValueError", (ValueError,), "ValueErro"),
    ("CircuitBreaker", "skip_on"): (" KeyError , KeyError ", (KeyError,), "KeyError,,"),
    ("CircuitBreaker", "delay"): ("2s", timedelta(seconds=2), "inf"),
    ("CircuitBreaker", "delay_unit"): ("DAYS", ChronoUnit.DAYS, "day"),
    ("CircuitBreaker", "request_volume_threshold"): ("4", 4, "0"),
    ("CircuitBreaker", "failure_ratio"): ("0.75", 0.75, "1.01"),
    ("CircuitBreaker", "success_threshold"): ("2", 2, "1.5"),
    ("CircuitBreaker", "slow"): ("800ms", timedelta(seconds=0.8), "-1"),
    ("CircuitBreaker", "window"): ("1m", timedelta(minutes=1), "long"),
    ("CircuitBreaker", "max_delay"): ("60000", 60_000, "inf"),
    ("FailWhen", "exception"): (f"{HERE}.handler", handler, f"{HERE}.handlr"),
    ("FailWhen", "result"): (f"{HERE}.handler", handler, "acme.NoSuchModule"),
    ("AdaptiveThrottle", "multiplier"): ("1.5", 1.5, "1"),
    ("AdaptiveThrottle", "window"): ("30s", timedelta(seconds=30), "-1"),
    ("AdaptiveThrottle", "min_requests"): ("20", 20, "0"),
    ("AdaptiveThrottle", "fail_on"): ("OSError", (OSError,), "OSErro"),
    ("AdaptiveThrottle", "skip_on"): ("KeyError", (KeyError,), "int"),
    ("Bulkhead", "value"): ("3", 3, "0"),
    ("Bulkhead", "waiting_task_queue"): ("12", 12, "many"),
    ("Bulkhead", "max_wait"): ("200ms", timedelta(milliseconds=200), "-1"),
    ("Bulkhead", "latency"): ("0.25s", timedelta(milliseconds=250), "-1"),
    ("PartitionBy", "key"): ("tenant", "tenant", "a tenant"),
    ("PartitionBy", "max_partitions"): ("50", 50, "0"),
    ("Coalesce", "key"): ("tenant, order", ("tenant", "order"), "an order"),
    ("Hedge", "max_hedges"): ("5", 5, "6"),
    ("Hedge", "quantile"): ("0.9", 0.9, "0.4"),
    ("Hedge", "delay"): ("50ms", timedelta(milliseconds=50), "-1"),
    ("Deadline", "value"): ("2s", timedelta(seconds=2), "-1"),
    ("Fallback", "value"): (f"{HERE}.handler", handler, f"{HERE}.handlr"),
    ("Fallback", "fallback_method"): ("other", "other", "not a name"),
    ("Fallback", "apply_on"): (f"{HERE}.Outer.Error", (Outer.Error,), f"{HERE}.Outer"),
    ("Fallback", "skip_on"): ("OSError", (OSError,), "."),
    ("RateLimit", "value"): ("50", 50, "0"),
    ("RateLimit", "window"): ("1m", timedelta(minutes=1), "-1m"),
    ("RateLimit", "window_unit"): ("MINUTES", ChronoUnit.MINUTES, "MINUTE"),
    ("RateLimit", "min_spacing"): ("10us", timedelta(microseconds=10), "-3s"),
    ("RateLimit", "min_spacing_unit"): ("HALF_DAYS", ChronoUnit.HALF_DAYS, "HALFDAYS"),
    ("RateLimit", "type"): ("rolling", RateLimitType.ROLLING, "sliding"),
    ("RateLimit", "max_wait"): ("1.5s", timedelta(seconds=1.5), "-1s"),
    ("RateLimit", "burst"): ("5", 5, "0"),
    ("ExponentialBackoff", "factor"): ("1.5", 1.5, "0.5"),
    ("ExponentialBackoff", "min_delay"): ("100ms", timedelta(milliseconds=100), "-1"),
    ("ExponentialBackoff", "max_delay"): ("1d", timedelta(days=1), "x"),
    ("ExponentialBackoff", "max_delay_unit"): ("SECONDS", ChronoUnit.SECONDS, "S"),
    ("FibonacciBackoff", "max_delay"): (".5h", timedelta(minutes=30), "h"),
    ("FibonacciBackoff", "max_delay_unit"): ("SECONDS", ChronoUnit.SECONDS, "S"),
    ("CustomBackoff", "value"): (f"{HERE}.back_off", back_off, f"{HERE}.handler"),
    ("HonorRetryAfter", "max_delay"): ("30s", timedelta(seconds=30), "-1"),
    ("HonorRetryAfter", "read"): (f"{HERE}.handler", handler, "handler"),
    ("RetryWhen", "exception"): (f"{HERE}.handler", handler, "handler"),
    ("RetryWhen", "give"): ("Result", "result", "both"),
    ("RetryWhen", "result"): ("callable", callable, f"{HERE}.TABLE"),
    ("BeforeRetry", "value"): (f"{HERE}:handler", handler, "not there"),
    ("BeforeRetry", "method_name"): ("reconnect", "reconnect", "not there"),
}

BASE: dict[str, Policy] = {
    "Fallback": Fallback(fallback_method="substitute"),
    "CustomBackoff": CustomBackoff(lambda: lambda failure: 0.0),
    "Deadline": ft.policies.Deadline(1000),
    "PartitionBy": ft.policies.PartitionBy("order"),
    "RetryWhen": RetryWhen(result=bool),
    "FailWhen": FailWhen(result=bool),
    "BeforeRetry": BeforeRetry(handler),
    "RateLimit": RateLimit(type="smooth"),
}
"""The declared values where an annotation has no defaults."""

OTHERS: dict[tuple[str, str], str] = {
    ("Fallback", "value"): "fallback_method",
    ("BeforeRetry", "method_name"): "value",
}
"""The parameter that must be emptied beside, since one of two is wanted."""


def test_the_table_names_every_parameter() -> None:
    """No parameter can be forgotten."""
    assert set(TABLE) == {
        (name, one)
        for name, policy in ANNOTATIONS.items()
        for one, parameter in parameters(policy).items()
        if parameter.kind.is_configurable
    }


Configure = Callable[[pytest.MonkeyPatch, Path, dict[str, str]], Settings]


def from_properties(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    return settings_of(properties=keys)


def from_environment(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    for name, value in keys.items():
        monkeypatch.setenv("FAULTTOLERANCE_" + name.replace("/", "_").upper(), value)
    return settings_of()


def from_dotenv(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    return from_file(folder / ".env", [f"{name.replace('/', '_')}='{value}'" for name, value in keys.items()])


def from_java_properties(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    file = folder / "microprofile-config.properties"
    return from_file(file, [f"{name} = {value}" for name, value in keys.items()])


def from_flat_toml(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    file = folder / "faulttolerance.toml"
    return from_file(file, [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in keys.items()])


def from_nested_toml(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    lines = [f"{name.replace('/', '.')} = {json.dumps(value)}" for name, value in keys.items()]
    return from_file(folder / "pyproject.toml", ["[tool.faulttolerance]", *lines])


def from_yaml(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    return from_file(folder / "f.yaml", [f"{name}: {json.dumps(value)}" for name, value in keys.items()])


def from_json(monkeypatch: pytest.MonkeyPatch, folder: Path, keys: dict[str, str]) -> Settings:
    return from_file(folder / "f.json", [json.dumps(keys)])


def from_file(file: Path, lines: list[str]) -> Settings:
    file.write_text("\n".join(lines), encoding="utf-8")
    return settings_of(files=[file])


SOURCES: list[Configure] = [
    from_properties,
    from_environment,
    from_dotenv,
    from_java_properties,
    from_flat_toml,
    from_nested_toml,
    from_yaml,
    from_json,
]
NEEDED = {from_java_properties: "javaproperties", from_yaml: "yaml"}
"""The packages that are needed to read a source."""


def resolve(settings: Settings, policy: Policy) -> tuple[Effective, list[Fault]]:
    effective, faults = settings.resolve([Declared(policy, "method", "acme.Client", "charge")], "acme.Client.charge")
    return effective[0], faults


def declared(annotation: str) -> Policy:
    return BASE.get(annotation) or ANNOTATIONS[annotation]()


def beside(annotation: str, name: str) -> dict[str, str]:
    other = OTHERS.get((annotation, name))
    return {f"{annotation}/{parameters(ANNOTATIONS[annotation])[other].key}": " "} if other else {}


@pytest.mark.parametrize(("annotation", "name"), TABLE)
def test_a_parameter_takes_its_value_from_each_source(annotation: str, name: str, tmp_path: Path) -> None:
    """Each parameter has the configured value in place of the declared one, and its source."""
    text, value, _ = TABLE[annotation, name]
    key = f"{annotation}/{parameters(ANNOTATIONS[annotation])[name].key}"
    keys = {key: text} | beside(annotation, name)
    found = {}

    for source in SOURCES:
        if source in NEEDED and importlib.util.find_spec(NEEDED[source]) is None:
            continue
        with pytest.MonkeyPatch.context() as monkeypatch:
            effective, faults = resolve(source(monkeypatch, tmp_path, keys), declared(annotation))
        found[source.__name__] = (
            faults,
            getattr(effective.policy, name),
            effective.sources[name].startswith(f"{key} in "),
        )

    expected = value if value is not None else expected_classes()
    assert found == dict.fromkeys(found, ([], expected, True))


def expected_classes() -> tuple[type[BaseException], ...]:
    from concurrent.futures import CancelledError

    return (OSError, CancelledError)


@pytest.mark.parametrize(("annotation", "name"), TABLE)
def test_a_parameter_takes_its_value_from_the_decorator(annotation: str, name: str) -> None:
    """Without configuration the declared object itself is in force."""
    policy = declared(annotation)

    effective, faults = resolve(settings_of(), policy)

    assert effective.policy is policy
    assert faults == []
    assert effective.sources[name] in ("default", "decorator")


@pytest.mark.parametrize(("annotation", "name"), [pair for pair in TABLE if pair != ("BeforeRetry", "method_name")])
def test_a_wrong_value_is_refused_with_all_that_is_needed_to_correct_it(annotation: str, name: str) -> None:
    """The message has the key, the value, the allowed values, and the source."""
    wrong = TABLE[annotation, name][2]
    key = f"{annotation}/{parameters(ANNOTATIONS[annotation])[name].key}"
    settings = settings_of(properties={key: wrong} | beside(annotation, name))

    effective, faults = resolve(settings, declared(annotation))

    assert [(fault.where, fault.got, fault.source) for fault in faults if fault.where == key] == [
        (key, wrong, "configure(properties=...)")
    ]
    assert faults[0].allowed
    assert effective.policy == declared(annotation)


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_every_annotation_is_switched_by_enabled(annotation: str) -> None:
    """Also an annotation without parameters."""
    found = {}

    for text in ("true", "false", "TRUE", " False "):
        settings = settings_of(properties={f"{annotation}/enabled": text})
        effective, faults = resolve(settings, declared(annotation))
        found[text] = (effective.enabled, faults, effective.sources["enabled"])

    source = f"{annotation}/enabled in configure(properties=...)"
    assert found == {
        text: (on, [], source) for text, on in {"true": True, "false": False, "TRUE": True, " False ": False}.items()
    }


@pytest.mark.parametrize("value", ["whatever", "1", "yes", "", 1, None])
def test_enabled_is_true_or_false(value: object) -> None:
    """The specification leaves other values open; a mistake there would go unnoticed for long."""
    _, faults = resolve(settings_of(properties={"Retry/enabled": value}), Retry())

    assert [(fault.where, fault.allowed) for fault in faults] == [("Retry/enabled", "true or false")]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("400", 400),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        (" 400 ", 400),
        ("400ms", timedelta(milliseconds=400)),
        ("400 MS", timedelta(milliseconds=400)),
        ("2s", timedelta(seconds=2)),
        ("1.5m", timedelta(seconds=90)),
        ("PT0.4S", timedelta(milliseconds=400)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("00:00:02", timedelta(seconds=2)),
        ("0ms", timedelta()),
    ],
)
def test_a_duration_is_a_number_in_its_unit_or_names_one(text: str, meaning: object) -> None:
    """A number counts in ``unit``, configured or declared."""
    effective, faults = resolve(settings_of(properties={"Timeout/value": text}), Timeout(1, ChronoUnit.SECONDS))

    assert faults == []
    assert effective.policy == Timeout(meaning, ChronoUnit.SECONDS)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0.1us", "PT0.0000001S"])
def test_a_duration_that_would_vanish_is_refused(text: str) -> None:
    """A time-out of 0 would mean no time-out."""
    _, faults = resolve(settings_of(properties={"Timeout/value": text}), Timeout())

    assert [str(fault).split(";")[0] for fault in faults] == [f"Timeout/value is {text!r}, shorter than a microsecond"]


@pytest.mark.parametrize(
    "value", [True, [1], {"seconds": 1}, None, "-2s", "2 parsecs", "9999999999d", "P9999999999D", "", timedelta(-1)]
)
def test_a_value_that_is_no_duration_is_refused(value: object) -> None:
    """The library does not guess."""
    properties = {"Timeout": {"value": value}} if not isinstance(value, dict) else {"Timeout/value": [value]}
    _, faults = resolve(settings_of(properties=properties), Timeout())

    assert [fault.where for fault in faults] == ["Timeout/value"]


def test_python_values_are_taken_as_they_are() -> None:
    """Properties need not be text."""
    settings = settings_of(
        properties={
            "Retry": {
                "retryOn": [OSError, "ValueError"],
                "abortOn": KeyError,
                "delay": timedelta(seconds=1),
                "delayUnit": ChronoUnit.DAYS,
                "maxRetries": 4,
            },
        }
    )

    effective, faults = resolve(settings, Retry())

    assert faults == []
    assert effective.policy == Retry(
        retry_on=[OSError, ValueError],
        abort_on=KeyError,
        delay=timedelta(seconds=1),
        delay_unit=ChronoUnit.DAYS,
        max_retries=4,
    )


def test_a_list_in_a_file_names_exception_classes(tmp_path: Path) -> None:
    """TOML, YAML and JSON have lists of their own."""
    settings = from_file(tmp_path / "f.toml", ["[Retry]", 'retryOn = ["OSError", "ValueError"]'])

    effective, faults = resolve(settings, Retry())

    assert faults == []
    assert effective.policy == Retry(retry_on=(OSError, ValueError))


def test_a_sequence_of_a_library_of_configuration_names_exception_classes() -> None:
    """It needs not be a list of Python."""
    settings = settings_of(sources=[lambda: {"Retry": {"retryOn": UserList(["OSError", "ValueError"])}}])

    effective, faults = resolve(settings, Retry())

    assert faults == []
    assert effective.policy == Retry(retry_on=(OSError, ValueError))


def test_hours_minutes_and_seconds_in_yaml_need_no_quotes(tmp_path: Path) -> None:
    """YAML 1.1 reads a number of seconds, which would count as milliseconds; other integers stay as they are."""
    pytest.importorskip("yaml")
    file = tmp_path / "f.yaml"
    file.write_text("Retry:\n  maxDuration: 1:30:00\n  delay: 0x10\n  jitter: 0:00:01.5\n")

    effective, faults = resolve(settings_of(files=[file]), Retry())

    assert (effective.policy, faults) == (
        Retry(max_duration=timedelta(hours=1.5), delay=16, jitter=timedelta(seconds=1.5)),
        [],
    )


def test_true_is_no_number() -> None:
    """``bool`` is an ``int`` in Python, and a mistake here."""
    settings = settings_of(properties={"Retry/maxRetries": True, "CircuitBreaker/failureRatio": True})

    faults = resolve(settings, Retry())[1] + resolve(settings, ANNOTATIONS["CircuitBreaker"]())[1]

    assert [fault.got for fault in faults] == [True, True]


def test_python_spelling_of_a_parameter_is_understood_and_the_specification_s_goes_first() -> None:
    """``max_retries`` as well as ``maxRetries``; within one source the specification's wins."""
    alone, _ = resolve(settings_of(properties={"Retry/max_retries": 5}), Retry())
    both, _ = resolve(settings_of(properties={"Retry/max_retries": 5, "Retry/maxRetries": 6}), Retry())

    assert (alone.policy, both.policy) == (Retry(max_retries=5), Retry(max_retries=6))


def test_contradictions_are_found_between_configured_and_declared_values() -> None:
    """A value may be right alone and wrong beside the others; the fault names the configured key."""
    _, faults = resolve(settings_of(properties={"Retry/maxDuration": "100"}), Retry(delay=200))

    assert [(fault.where, fault.problem, fault.source) for fault in faults] == [
        (
            "Retry/maxDuration",
            "is 0.1 s while delay is 0.2 s",
            "configure(properties=...); delay: acme.Client.charge @Retry(delay), set by the decorator",
        )
    ]


def test_a_contradiction_that_the_decorator_is_part_of_names_the_function() -> None:
    """The configured delay is right alone; it exceeds the declared limit."""
    _, faults = resolve(settings_of(properties={"Retry/delay": "5m"}), Retry())
    _, declared = resolve(settings_of(properties={"Retry/delay": "5m"}), Retry(max_duration=20_000))

    assert {fault.where for fault in (*faults, *declared)} == {"acme.Client.charge @Retry(max_duration)"}
    assert [fault.source for fault in (*faults, *declared)] == [
        "the default; delay: Retry/delay, configure(properties=...)",
        "set by the decorator; delay: Retry/delay, configure(properties=...)",
    ]


def test_a_fallback_that_does_not_fit_the_function_is_refused_with_its_key() -> None:
    """It is checked once everything is resolved, and a source has set it nevertheless."""

    class Client:
        @ft.fallback(fallback_method="other")
        def charge(self) -> int:
            return 1

        def other(self) -> int:
            return 2

    Client().charge()
    with pytest.raises(ft.FaultToleranceDefinitionException, match=r"which .* does not define") as refused:
        ft.configure(properties={"Fallback/fallbackMethod": "othr"})
    with pytest.raises(ft.FaultToleranceDefinitionException, match="which does not take one argument") as unfit:
        ft.configure(properties={"Fallback/fallbackMethod": "", "Fallback/value": lambda: 1})

    assert refused.value.source == "Fallback/fallbackMethod in configure(properties=...)"
    assert unfit.value.source == "Fallback/value in configure(properties=...)"


def test_a_fallback_that_does_not_fit_a_guard_is_refused_with_its_key() -> None:
    """The same holds for functions."""
    guard = ft.Guard(fallback=Fallback(handler), name="misfitted")
    guard.call(int)
    with pytest.raises(ft.FaultToleranceDefinitionException, match="a guard belongs to no class") as refused:
        ft.configure(properties={"Fallback/fallbackMethod": "other", "Fallback/value": ""})
    guard.close()

    assert refused.value.source == "Fallback/fallbackMethod in configure(properties=...)"


def test_all_wrong_values_are_reported_at_once() -> None:
    """So the user corrects all of them before the next start."""
    settings = settings_of(properties={"Retry/maxRetries": "x", "Retry/delay": "y", "Retry/enabled": "z"})

    _, faults = resolve(settings, Retry())

    assert {fault.where for fault in faults} == {"Retry/maxRetries", "Retry/delay", "Retry/enabled"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("OSErro", "names OSErro, which is not a built-in; did you mean 'OSError'?"),
        (f"{HERE}.Outer.Eror", f"names {HERE}.Outer.Eror, which does not exist"),
        ("none", "names none, which is not a built-in"),
        ("OSError,", "has an empty name"),
        ("acme.nowhere.Error", "names acme.nowhere.Error, which cannot be imported (ModuleNotFoundError"),
    ],
)
def test_a_class_that_cannot_be_found_is_named(text: str, message: str) -> None:
    """A typing mistake is corrected in one look."""
    _, faults = resolve(settings_of(properties={"Retry/retryOn": text}), Retry())

    assert faults[0].problem.startswith(message)
    assert "None" not in faults[0].problem


def test_a_module_that_fails_on_import_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the failure and names the key."""
    (tmp_path / "broken_for_configuration.py").write_text("raise ZeroDivisionError('at import')")
    monkeypatch.syspath_prepend(tmp_path)

    _, faults = resolve(settings_of(properties={"Retry/retryOn": "broken_for_configuration.Error"}), Retry())

    assert "cannot be imported (ZeroDivisionError: at import)" in faults[0].problem


@pytest.mark.parametrize("line", ["import missing_package", "import json; json.missing", "from json import missing"])
@pytest.mark.parametrize("name", ["broken.Error", "broken.Outer.Error"])
def test_a_module_of_a_package_that_fails_on_import_is_not_said_to_be_missing(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the failure of the module, such as the name of a package that is not installed."""
    package = tmp_path / "package_for_configuration"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "broken.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)

    _, faults = resolve(settings_of(properties={"Retry/retryOn": f"package_for_configuration.{name}"}), Retry())

    assert "cannot be imported (" in faults[0].problem
    assert "missing" in faults[0].problem


def test_a_module_that_ends_the_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service goes on, and the first guarded call fails with the key that names a script."""
    (tmp_path / "script_for_configuration.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_RETRYON", "script_for_configuration.Error")

    with pytest.raises(ft.FaultToleranceDefinitionException, match=r"cannot be imported \(SystemExit: 0\)") as refused:
        ft.retry(lambda: None)()

    assert refused.value.where == "Retry/retryOn"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ft.Interrupted, GeneratorExit])
def test_an_exception_that_ends_the_caller_of_an_import_passes_through(
    kind: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, a deadline of the guarded call that reads the value first, and the end of its greenlet."""
    (tmp_path / "slow_for_configuration.py").write_text(
        f"from builtins import *\nfrom faulttolerance import Interrupted\nraise {kind.__name__}"
    )
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(kind):
        resolve(settings_of(properties={"Retry/retryOn": "slow_for_configuration.Error"}), Retry())


def test_a_handler_class_may_be_nested() -> None:
    """Its key has the qualified name that Python shows."""
    settings = settings_of(properties={"Fallback/value": f"{HERE}.Outer.Handler"})

    effective, faults = resolve(settings, Fallback(handler))

    assert (effective.policy, faults) == (Fallback(Outer.Handler), [])


def test_a_configured_class_without_handle_is_refused() -> None:
    """Configuration refuses the same values as the decorator."""
    _, faults = resolve(settings_of(properties={"Fallback/value": f"{HERE}.Outer"}), Fallback(handler))

    assert [(fault.where, fault.allowed) for fault in faults] == [("Fallback/value", "a FallbackHandler class")]


def test_an_unknown_parameter_is_ignored() -> None:
    """The official test kit sets one; it is reported as unused, not refused."""
    effective, faults = resolve(settings_of(properties={"Retry/maxDurationUnit": "SECONDS"}), Retry())

    assert (effective.policy, faults) == (Retry(), [])
