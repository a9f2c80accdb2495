"""The sources of keys, their order, and the message where a source cannot be read (rule C1)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from faulttolerance._config import Declared, Settings
from faulttolerance._policy import Retry, Timeout
from faulttolerance.exceptions import FaultToleranceDefinitionException
from kit.configuration import renew, settings_of
from kit.optional import needs_reader_of


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, *lines: str) -> str:
    needs_reader_of(name)
    Path(name).write_text("\n".join(lines), encoding="utf-8")
    return name


def max_retries(settings: Settings, level: Any = "method") -> tuple[int, str]:
    """Return the effective value and its source."""
    effective, faults = settings.resolve([Declared(Retry(), level, "acme.Client", "charge")], "acme.Client.charge")
    assert faults == []
    policy = effective[0].policy
    assert isinstance(policy, Retry)
    return policy.max_retries, effective[0].sources["max_retries"].partition(" in ")[2]


def refusal(**inputs: Any) -> list[str]:
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        settings_of(**inputs)
    return [str(fault) for fault in refused.value.faults]


# Ordinals


def test_the_strongest_source_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programmatic 500, environment 300, .env 295, files 100."""
    files = [write("f.toml", "Retry.maxRetries = 11"), write(".env", "FAULTTOLERANCE_RETRY_MAXRETRIES=12")]
    variable = "FAULTTOLERANCE_RETRY_MAXRETRIES"

    found = [
        max_retries(settings_of()),
        max_retries(settings_of(files=files[:1])),
        max_retries(settings_of(files=files)),
    ]
    monkeypatch.setenv(variable, "13")
    found.append(max_retries(settings_of(files=files)))
    found.append(max_retries(settings_of(files=files, properties={"Retry/maxRetries": 14})))

    assert found == [
        (3, ""),
        (11, "file f.toml"),
        (12, "file .env"),
        (13, f"environment variable {variable}"),
        (14, "configure(properties=...)"),
    ]


def test_a_method_key_in_the_weakest_source_beats_a_global_key_in_the_strongest() -> None:
    """Specification: the kind of key decides first, the source second."""
    file = write("f.toml", '"acme.Client/charge/Retry/maxRetries" = 5')

    assert max_retries(settings_of(files=[file], properties={"Retry/maxRetries": 7}))[0] == 5


def test_of_equal_files_the_last_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of FAULTTOLERANCE_CONFIG come last: the operator has the last word."""
    names = [write(f"{one}.toml", f"Retry.maxRetries = {one}") for one in range(4)]

    assert max_retries(settings_of(files=names[:2]))[0] == 1
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", os.pathsep.join(["", names[2], names[3], ""]))
    assert max_retries(settings_of(files=names[:2]))[0] == 3


@pytest.mark.parametrize(
    ("name", "line", "setting"),
    [
        ("f.toml", "config_ordinal = 400", "Retry.maxRetries = 9"),
        ("f.json", '{"config_ordinal": "400",', '"Retry": {"maxRetries": 9}}'),
        ("f.yaml", "config_ordinal: 400", "Retry/maxRetries: 9"),
        ("f.properties", "config_ordinal=400", "Retry/maxRetries=9"),
        (".env", "config_ordinal=400", "Retry_maxRetries=9"),
        (".env", "FAULTTOLERANCE_CONFIG_ORDINAL=400", "Retry_maxRetries=9"),
    ],
)
def test_config_ordinal_moves_a_source(name: str, line: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may outrank the environment if it says so."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "1")

    assert max_retries(settings_of(files=[write(name, line, setting)]))[0] == 9


def test_config_ordinal_moves_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is a source like others."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "1")
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG_ORDINAL", "50")

    assert max_retries(settings_of(files=[write("f.toml", "Retry.maxRetries = 9")]))[0] == 9


@pytest.mark.parametrize("value", ["high", "1.5", "true"])
def test_a_wrong_ordinal_is_refused(value: str) -> None:
    """The error has its file and line."""
    assert refusal(files=[write("f.properties", "# a comment", f"config_ordinal = {value}")]) == [
        f"config_ordinal is {value!r}; allowed: an integer (file f.properties)"
    ]


# The environment


@pytest.mark.parametrize(
    "variable",
    [
        "acme.Client/charge/Retry/maxRetries",
        "acme.Client/charge/Retry/max_retries",
        "acme_Client_charge_Retry_maxRetries",
        "ACME_CLIENT_CHARGE_RETRY_MAXRETRIES",
        "ACME_CLIENT_CHARGE_RETRY_MAX_RETRIES",
        "Retry/maxRetries",
        "Retry_maxRetries",
        "FAULTTOLERANCE_RETRY_MAXRETRIES",
        "FAULTTOLERANCE_RETRY_MAX_RETRIES",
        "ACME.CLIENT/CHARGE/RETRY/MAXRETRIES",
        "RETRY/MAXRETRIES",
    ],
)
def test_a_variable_is_found_by_each_spelling(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MicroProfile Config: exact, with underscores, that in upper case; Windows shows the exact name in upper case."""
    monkeypatch.setenv(variable, "8")

    assert max_retries(settings_of()) == (8, f"environment variable {variable}")


@pytest.mark.parametrize(
    "variable",
    [
        "RETRY_MAXRETRIES",
        "RETRY_MAX_RETRIES",
        "Acme_Client_charge_Retry_maxRetries",
        "ACME_CLIENT_RETRY_MAXRETRIES",
        "X_FAULTTOLERANCE_RETRY_MAXRETRIES",
        "FAULTTOLERANCE_ACME_CLIENT_CHARGE_RETRY_MAXRETRIES",
        "FaultTolerance_Retry_maxRetries",
    ],
)
def test_other_variables_are_left_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above all common names, which lack the prefix."""
    monkeypatch.setenv(variable, "8")

    assert max_retries(settings_of())[0] == 3


def test_the_first_spelling_of_a_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mapping has an order."""
    monkeypatch.setenv("ACME_CLIENT_CHARGE_RETRY_MAXRETRIES", "8")
    monkeypatch.setenv("acme_Client_charge_Retry_maxRetries", "7")

    assert max_retries(settings_of())[0] == 7


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next snapshot sees a change, and nothing sees it earlier."""
    settings = settings_of()
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "8")

    before = max_retries(settings)[0]
    renew(settings)

    assert (before, max_retries(settings)[0]) == (3, 8)


# Files


@pytest.mark.parametrize("name", [".env", "faulttolerance.toml", "pyproject.toml", "microprofile-config.properties"])
def test_a_file_that_nobody_names_is_not_read(name: str) -> None:
    """A file that lies in the folder by chance sets no value."""
    write(name, "garbage [[[ = ")

    assert max_retries(settings_of()) == (3, "")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("f.properties", ["# about", "", "a = b\\", "  c", "acme.Client/charge/Retry/maxRetries: 5"]),
        ("f.properties", ["acme.Client/charge/Retry/maxRetries 5"]),
        ("f.toml", ["list = [", "  1,", "]", '"acme.Client/charge/Retry/maxRetries" = 5']),
        ("f.toml", ['["acme.Client".charge.Retry]', "# about", 'x = """', "y", '"""', "maxRetries = 5"]),
        ("f.toml", ['["acme.Client"]', "charge.Retry = { maxRetries = 5 }"]),
        ("f.toml", ["[tool.faulttolerance]", '"acme.Client/charge".Retry.maxRetries = 5']),
        ("f.toml", ["# one line\u2028\x85of TOML", '"acme.Client/charge/Retry/maxRetries" = 5']),
        ("pyproject.toml", ["[project]", '[tool.faulttolerance."acme.Client".charge.Retry]', "maxRetries = 5"]),
        ("f.yaml", ["# about", "acme.Client/charge:", "  Retry:", "    maxRetries: 5"]),
        ("f.yml", ["acme.Client/charge/Retry/maxRetries: 5"]),
        ("f.json", ["{", '"acme.Client/charge": {"Retry": {', '"maxRetries": 5}}}']),
        ("prod.env", ["# about", "", "export ACME_CLIENT_CHARGE_RETRY_MAXRETRIES='5'"]),
    ],
)
def test_a_file_is_read(name: str, lines: list[str]) -> None:
    """Nested tables are joined by a slash."""
    assert max_retries(settings_of(files=[write(name, *lines)])) == (5, f"file {name}")


@pytest.mark.parametrize(
    ("name", "text"), [("f.toml", ""), ("pyproject.toml", "[project]"), ("f.yaml", ""), ("f.json", "{}"), (".env", "")]
)
def test_a_file_without_keys_is_fine(name: str, text: str) -> None:
    """It sets no value."""
    assert max_retries(settings_of(files=[write(name, text)]))[0] == 3


def test_a_path_may_be_an_object(tmp_path: Path) -> None:
    """An object of ``pathlib`` serves, too."""
    file = tmp_path / write("f.toml", "Retry.maxRetries = 5")

    assert max_retries(settings_of(files=[file]))[0] == 5


@pytest.mark.parametrize("kind", [str, Path])
def test_a_single_file_need_not_be_a_list(kind: type[Any]) -> None:
    """A string is not a list of letters."""
    file = write("f.toml", "Retry.maxRetries = 5")

    assert max_retries(settings_of(files=kind(file)))[0] == 5


def test_variables_in_dotenv_follow_the_rules_of_the_environment() -> None:
    """Upper case without a class needs the prefix there, too."""
    assert max_retries(settings_of(files=[write(".env", "RETRY_MAXRETRIES=5")]))[0] == 3


@pytest.mark.parametrize("name", [".env.local", ".env.production"])
def test_a_dotenv_file_may_have_its_stage_behind_its_name(name: str) -> None:
    """Services have such a file for each stage."""
    file = write(name, "FAULTTOLERANCE_RETRY_MAXRETRIES=5")

    assert max_retries(settings_of(files=[file])) == (5, f"file {name}")


def test_a_known_ending_behind_dotenv_is_the_format() -> None:
    """A TOML file remains one."""
    assert max_retries(settings_of(files=[write(".env.toml", "Retry.maxRetries = 5")]))[0] == 5


def test_keys_in_files_are_exact() -> None:
    """Only variables are spelled in other ways."""
    assert max_retries(settings_of(files=[write("f.toml", "RETRY_MAXRETRIES = 5", "Retry_maxRetries = 6")]))[0] == 3


def test_a_table_without_a_name_is_a_part_of_its_keys() -> None:
    """Its keys are not those of the whole file."""
    assert max_retries(settings_of(properties={"": {"Retry/maxRetries": 11}})) == (3, "")


def test_properties_may_be_nested() -> None:
    """They nest like tables of a file."""
    assert max_retries(settings_of(properties={"acme.Client": {"charge": {"Retry/maxRetries": 5}}}))[0] == 5


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("f.toml", ["a = "], "f.toml cannot be read (TOMLDecodeError"),
        ("f.yaml", ["a: ["], "f.yaml cannot be read (ParserError"),
        ("f.yaml", ["- a", "- b"], "f.yaml cannot be read (TypeError: it contains no mapping)"),
        ("f.json", ["[1]"], "f.json cannot be read (TypeError: it contains no mapping)"),
        ("f.json", ["{a}"], "f.json cannot be read (JSONDecodeError"),
        ("f.properties", ["a = \\u12"], "f.properties cannot be read (InvalidUEscapeError"),
        (".env", ["a=1", "'b"], ".env cannot be read (ValueError: line 2 is not NAME=value)"),
        ("f.ini", ["a=1"], "f.ini has an unknown format; allowed: .properties, .toml, .yaml, .yml, .json or .env"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(name: str, lines: list[str], message: str) -> None:
    """A named file is never ignored silently."""
    assert [one.startswith(message) for one in refusal(files=[write(name, *lines)])] == [True]


def test_every_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at once, each with the place that names it."""
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", "b.toml")

    first, second = refusal(files=["a.toml"])

    assert first.startswith("a.toml cannot be read (FileNotFoundError: ")
    assert first.endswith(" (named by configure(files=...))")
    assert second.startswith("b.toml cannot be read (FileNotFoundError: ")
    assert second.endswith(" (named by FAULTTOLERANCE_CONFIG)")


def test_a_file_of_the_environment_that_is_missing_shows_at_the_first_resolution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where no code calls configure()."""
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", "b.toml")

    effective, faults = Settings().resolve([Declared(Timeout(), "class", "a", "b")], "a.b")

    assert [fault.where for fault in faults] == ["b.toml"]
    assert [one.policy for one in effective] == [Timeout()]


# Sources of others


class Consul(PydanticBaseSettingsSource):
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return {"Retry": {"maxRetries": "5"}, "config_ordinal": 120}


def test_a_source_of_pydantic_settings_is_taken() -> None:
    """Existing sources for secrets managers and key vaults can be used here."""
    file = write("f.toml", "Retry.maxRetries = 9")

    settings = settings_of(sources=[Consul(BaseSettings)], files=[file])

    assert max_retries(settings) == (5, "source Consul")


def test_a_function_is_a_source_that_is_asked_at_every_reading() -> None:
    """Reloading reads all sources anew."""
    answers = iter([{"Retry/maxRetries": 1}, {"Retry/maxRetries": 2}])

    def remote() -> dict[str, int]:
        return next(answers)

    settings = settings_of(sources=[remote])
    before = max_retries(settings)
    renew(settings)

    assert (before, max_retries(settings)) == ((1, "source remote"), (2, "source remote"))


def test_a_source_that_fails_is_refused() -> None:
    """The error has the failure that it raised."""

    def remote() -> dict[str, int]:
        raise ConnectionError("no route")

    assert "cannot be read (ConnectionError: no route)" in refusal(sources=[remote])[0]


class Stopped(BaseException):
    """Ends a greenlet, a task or a request."""


def test_control_flow_that_arrives_while_a_source_is_read_passes_through() -> None:
    """The one that sent it waits for it, and no fault would reach it."""

    def remote() -> dict[str, int]:
        raise Stopped

    with pytest.raises(Stopped):
        settings_of(sources=[remote])


def test_a_source_that_ends_the_program_is_refused() -> None:
    """As a module that a value names is: the service goes on."""

    def remote() -> dict[str, int]:
        raise SystemExit(0)

    assert "cannot be read (SystemExit: 0)" in refusal(sources=[remote])[0]
