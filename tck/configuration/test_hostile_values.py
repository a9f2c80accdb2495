"""Strange values and files, by mistake or on purpose: each is refused in words, in time and in short."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import faulttolerance as ft
from faulttolerance import FaultToleranceDefinitionException, configure, reload, retry
from faulttolerance._config.key import ANNOTATIONS
from faulttolerance._policy import parameters
from kit.optional import needs_reader_of
from kit.tiers import few_and_many


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, content: str | bytes) -> None:
    needs_reader_of(name)
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


class Unspeakable:
    """A value that has no representation."""

    def __repr__(self) -> str:
        raise RuntimeError


def looped() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


WRONG: dict[str, Any] = {
    "a list": [1, 2],
    "a set": {1, 2},
    "lists in a list": [[OSError]],
    "a loop": looped(),
    "what has no repr": Unspeakable(),
    "long text": "x" * 100_000,
    "bytes that are no text": "\udcff.\udcfe",
    "lines": "a\nb",
    "escape sequences": "\x1b[31mred",
    "turned round": "\u202etxt",
    "a NUL": "nul\x00.x",
    "bytes": b"bytes",
    "below all ranges": -(10**400),
    "no number": math.nan,
    "negative time": timedelta(-1),
    "digits": "9" * 5000,
    "a long duration": "9" * 99 + "d",
    "a lambda": lambda: None,
    "dots": "...",
}

FITTING = {
    ("Fallback/value", "a lambda"),
    ("CustomBackoff/value", "a lambda"),
    ("RetryWhen/exception", "a lambda"),
    ("RetryWhen/result", "a lambda"),
    ("FailWhen/exception", "a lambda"),
    ("FailWhen/result", "a lambda"),
    ("BeforeRetry/value", "a lambda"),
    ("HonorRetryAfter/read", "a lambda"),
    ("Coalesce/key", "a lambda"),
    ("PartitionBy/key", "a lambda"),
}
"""It is a callable; whether it fits the function is another question."""


def handler(context: object) -> Any:
    return None


def guards() -> Iterator[dict[str, Any]]:
    """Yield decorators for small guards that have every annotation with values, by its name."""
    again: dict[str, Any] = {"Retry": retry(delay=0, jitter=0)}
    breaker = {"CircuitBreaker": ft.circuit_breaker}
    yield {"Fallback": ft.fallback(handler), "Deadline": ft.deadline(60_000), "Timeout": ft.timeout}
    yield {**again, "RetryBudget": ft.retry_budget, "BeforeRetry": ft.before_retry(handler)}
    yield {**again, "RetryWhen": ft.retry_when(result=lambda value: False), "HonorRetryAfter": ft.honor_retry_after}
    yield {**again, "ExponentialBackoff": ft.exponential_backoff}
    yield {**again, "FibonacciBackoff": ft.fibonacci_backoff}
    yield {**again, "CustomBackoff": ft.custom_backoff(lambda: lambda failure: 0.0)}
    yield {**breaker, "FailWhen": ft.fail_when(result=lambda value: False)}
    yield {**breaker, "RateLimit": ft.rate_limit, "FleetWide": ft.fleet_wide}
    yield {"Bulkhead": ft.bulkhead, "PartitionBy": ft.partition_by(lambda: None)}
    yield {"Coalesce": ft.coalesce}
    yield {"AdaptiveThrottle": ft.adaptive_throttle}
    yield {"Hedge": lambda _: ft.asynchronous(ft.hedge(lambda: None))}


def used(annotation: str) -> Iterator[Callable[[], object]]:
    """Yield functions in use whose guards have *annotation*."""
    for decorators in guards():
        if annotation in decorators:

            def function() -> None: ...

            guarded = reduce(lambda inner, decorator: decorator(inner), decorators.values(), function)
            guarded()
            yield guarded


def keys() -> Iterator[str]:
    for annotation, policy in ANNOTATIONS.items():
        if "Asynchronous" not in annotation:
            yield f"{annotation}/enabled"
            yield from (f"{annotation}/{one.key}" for one in parameters(policy).values() if one.kind.is_configurable)


@pytest.mark.parametrize(("number", "key"), list(enumerate(keys())), ids=[*keys()])
@few_and_many("step", 4, 1, of="values")
def test_the_refusal_of_any_value_names_key_and_source(number: int, key: str, step: int) -> None:
    """Each fault is short, on a line of its own, and the error can be sent to another process."""
    functions = list(used(key.partition("/")[0]))
    assert functions

    for name, value in list(WRONG.items())[number % step :: step]:
        if (key, name) in FITTING:
            continue
        with pytest.raises(FaultToleranceDefinitionException) as refused:
            configure(properties={key: value})
        text = str(refused.value)
        lines = text.split("\n")

        assert all(key in line and "configure(properties=...)" in line for line in lines), name
        assert all(line.isprintable() and len(line) < 1000 for line in lines), name
        assert len(repr(refused.value)) < 2000 * len(lines), name
        assert str(pickle.loads(pickle.dumps(refused.value))) == text, name


@pytest.mark.parametrize("value", ["OSErro\udcff", "acme\udcff.Busy", "\udcff"])
def test_a_variable_that_is_no_text_is_refused_in_words(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable may hold any bytes."""
    function = retry(lambda: None)
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_RETRYON", value)

    with pytest.raises(FaultToleranceDefinitionException, match=r"Retry/retryOn names .*\\udcff") as refused:
        function()

    assert "environment variable FAULTTOLERANCE_RETRY_RETRYON" in str(refused.value)


ENDLESS = [
    "a loop",
    "deep json",
    "deep yaml",
    "deep toml",
]


@pytest.mark.parametrize("what", ENDLESS)
@pytest.mark.timeout(30)
def test_a_value_without_end_is_refused(what: str) -> None:
    """A file may nest without end."""
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        configure(**endless(what))

    assert "cannot be read" in str(refused.value)
    assert len(str(refused.value)) < 1000


def endless(what: str) -> dict[str, Any]:
    match what:
        case "a loop":
            text, name = "a: &a {b: *a}", "f.yaml"
        case "deep json":
            text, name = '{"a":' * 50_000, "f.json"
        case "deep yaml":
            text, name = "{a: " * 5_000, "f.yaml"
        case _:
            text, name = "a = " + "[" * 50_000, "f.toml"
    write(name, text)
    return {"files": [name]}


# Files


def refusal(name: str) -> str:
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        configure(files=[name])
    return str(refused.value).partition(" (named by")[0]


def test_a_path_that_is_no_file_cannot_be_read() -> None:
    """The message has the error of the system."""
    os.mkdir("folder.toml")
    os.symlink("loop.toml", "loop.toml")

    assert refusal("folder.toml").startswith("folder.toml cannot be read (")
    assert refusal("gone/f.toml").startswith("gone/f.toml cannot be read (FileNotFoundError: ")
    assert refusal("loop.toml").startswith("loop.toml cannot be read (OSError: ")
    assert refusal("nul\x00.toml").startswith("nul\\x00.toml cannot be read (ValueError: ")


@pytest.mark.parametrize("name", ["f.toml", "f.json", "f.yaml", "f.properties", "f.env"])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", "Retry/delay = ä".encode("latin-1"), "a".encode("utf-16")])
def test_a_file_in_another_encoding_is_refused(name: str, content: bytes) -> None:
    """It is not read as something else."""
    write(name, content)

    assert refusal(name).startswith(f"{name} cannot be read (UnicodeDecodeError: ")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("f.properties", "Retry/maxRetries = 5"),
        (".env", "FAULTTOLERANCE_RETRY_MAXRETRIES=5"),
        ("f.toml", "Retry.maxRetries = 5"),
        ("f.yaml", "Retry/maxRetries: 5"),
        ("f.json", '{"Retry/maxRetries": 5}'),
    ],
)
def test_a_byte_order_mark_and_ends_of_lines_change_nothing(name: str, line: str) -> None:
    """Editors of Windows write both; the first line counts like all others."""
    write(name, b"\xef\xbb\xbf" + line.encode() + b"\r\n\r\n")
    function = retry(lambda: None)
    function()

    changes = configure(files=[name])

    assert [int(one.after) for one in changes] == [5]
    assert changes[0].source.partition(" in ")[2].startswith(f"file {name}")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("f.json", "[1]", "f.json cannot be read (TypeError: it contains no mapping)"),
        ("f.json", '["ab"]', "f.json cannot be read (TypeError: it contains no mapping)"),
        ("f.json", "false", "f.json cannot be read (TypeError: it contains no mapping)"),
        ("f.yaml", "[]", "f.yaml cannot be read (TypeError: it contains no mapping)"),
        ("f.json", f'{{"a": {"9" * 5000}}}', "f.json cannot be read (ValueError: Exceeds the limit"),
        ("f.toml", "tool.faulttolerance = 5", "f.toml tool.faulttolerance is 5; allowed: a table"),
        ("pyproject.toml", "tool.faulttolerance = false", "pyproject.toml tool.faulttolerance is False; allowed: a ta"),
        ("f.toml", "tool.faulttolerance = []", "f.toml tool.faulttolerance is []; allowed: a table"),
    ],
)
def test_a_file_that_is_no_table_of_keys_is_refused(name: str, text: str, message: str) -> None:
    """The message helps to mend it."""
    write(name, text)

    assert refusal(name).startswith(message)


def test_a_tool_of_another_kind_is_no_table_of_ours() -> None:
    """``tool`` is a key like others where no table below it is ours."""
    Path("pyproject.toml").write_text("tool = 5")
    Path("f.toml").write_text("tool = 5\nRetry.maxRetries = 4")

    assert configure(files=["pyproject.toml", "f.toml"]) == []


def test_no_message_holds_a_line_of_a_dotenv_file() -> None:
    """It may be a password."""
    Path(".env").write_text("A=1\nPASSWORD='hunter2\n")

    with pytest.raises(FaultToleranceDefinitionException) as refused:
        configure(files=[".env"])

    assert str(refused.value).startswith(".env cannot be read (ValueError: line 2 is not NAME=value)")
    for text in (
        str(refused.value),
        repr(refused.value),
        repr(refused.value.faults),
        repr(pickle.dumps(refused.value)),
    ):
        assert "hunter2" not in text


@pytest.mark.parametrize(("name", "text"), [("f.yaml", "PASSWORD: 'hunter2"), ("f.toml", "PASSWORD = hunter2")])
def test_no_message_quotes_a_file_that_cannot_be_read(name: str, text: str) -> None:
    """It says where reading failed, not which text is there."""
    write(name, text)

    assert "hunter2" not in refusal(name)


# The environment


def test_a_variable_that_another_thread_deletes_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the environment takes longer than a moment."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "4")
    listed = [*os.environ, "FAULTTOLERANCE_SOMEBODY_ELSES", "SOMEBODY_ELSES"]
    monkeypatch.setattr(type(os.environ), "__iter__", lambda self: iter(listed))
    function = retry(lambda: None)

    function()

    assert reload() == []


def test_an_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in MicroProfile Config: a tool that starts containers cannot always leave a variable out."""
    Path(".env").write_text("FAULTTOLERANCE_RETRY_JITTER=\nFAULTTOLERANCE_RETRY_DELAY=7")
    for name in ("RETRY_MAXRETRIES", "RETRY_ENABLED", "CONFIG_ORDINAL", "TRACING", "CONFIG"):
        monkeypatch.setenv(f"FAULTTOLERANCE_{name}", "")
    monkeypatch.setenv("MP_FAULT_TOLERANCE_METRICS_ENABLED", "")
    function = retry(lambda: None)
    function()

    changes = configure(files=[".env"])

    assert [(one.where.partition("@")[2], one.after) for one in changes] == [("Retry(delay)", 7)]
    assert ft.validate() == []


def test_empty_text_in_a_file_is_a_value() -> None:
    """It means none."""
    write("f.properties", "Retry/abortOn =")
    function = retry(abort_on=OSError)(lambda: None)
    function()

    assert [(one.before, one.after) for one in configure(files=["f.properties"])] == [((OSError,), ())]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("MP_FAULT_TOLERANCE_METRICS_ENABLE", "MP_FAULT_TOLERANCE_METRICS_ENABLED"),
        ("MP_Fault_Tolerance_NonFallbackEnable", "MP_FAULT_TOLERANCE_NONFALLBACK_ENABLED"),
        ("MP_FAULT_TOLERENCE_METRICS_ENABLED", "MP_FAULT_TOLERANCE_METRICS_ENABLED"),
    ],
)
def test_a_misspelt_switch_is_reported(name: str, nearest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has the nearest switch."""
    monkeypatch.setenv(name, "false")

    assert [(one.key, one.nearest) for one in ft.validate()] == [(name, nearest)]


@pytest.mark.parametrize("value", ["on", "no", "0", "flase", "span"])
def test_the_switch_for_tracing_has_no_other_words(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown word is not ignored."""
    monkeypatch.setenv("FAULTTOLERANCE_TRACING", value)

    with pytest.raises(FaultToleranceDefinitionException) as refused:
        retry(lambda: None)()

    place = "environment variable FAULTTOLERANCE_TRACING"
    assert str(refused.value) == f"FAULTTOLERANCE_TRACING is {value!r}; allowed: events, spans or off ({place})"


@pytest.mark.timeout(30)
def test_a_long_name_of_a_variable_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name could begin a key at each of its characters."""
    monkeypatch.setenv("_RETRY" * 50_000 + "-", "1")
    monkeypatch.setenv("RETRY_" * 50_000 + "-", "1")

    assert retry(lambda: "done")() == "done"


@pytest.mark.parametrize("given", [{"properties": 5}, {"files": 5}, {"files": [5]}, {"sources": 5}])
def test_an_argument_in_another_form_is_refused(given: dict[str, Any]) -> None:
    """It is refused like every fault of the configuration."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"configure\(\w+\) is .*5.*; allowed: "):
        configure(**given)
