"""The requirements of an installation, and the output of the command line (rule M6, rule O5)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from faulttolerance._config.template import FORMATS
from kit.program import ALONE, command_line, output_of, python

pytestmark = pytest.mark.outside

ACME = """
from faulttolerance import fallback, retry, timeout

class Client:
    @fallback(fallback_method="other", apply_on=OSError)
    @retry(max_retries=4, delay="2s", retry_on=OSError)
    @timeout("500ms")
    def charge(self, amount: int) -> int:
        return amount

    def other(self, amount: int) -> int:
        return 0

@retry(max_retries=1, retry_on=(OSError, KeyError))
def pay() -> None: ...
"""


NEEDED = [
    ({"FAULTTOLERANCE_CONFIG": "f.yaml"}, "yaml", "f.yaml cannot be read without yaml"),
    ({"FAULTTOLERANCE_CONFIG": "f.properties"}, "javaproperties", "f.properties cannot be read without javaproperties"),
    ({"FAULTTOLERANCE_CONFIG": "f.toml"}, "pydantic_settings", "the configuration needs pydantic_settings"),
    ({"FAULTTOLERANCE_CONFIG": "f.env"}, "dotenv", "the configuration needs dotenv"),
]
STARTS = {
    "the first guard": "@ft.timeout\ndef call(): ...",
    "the first guard that is a value": "ft.Guard(timeout=ft.policies.Timeout('1s'))",
    "configure": "ft.configure(properties={'Timeout/value': 3})",
    "validate": "ft.validate()",
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("variables", "package", "problem"), NEEDED)
def test_a_file_that_cannot_be_read_fails_when_the_program_starts(
    start: str, variables: dict[str, str], package: str, problem: str, tmp_path: Path
) -> None:
    """Rule O5: the first use of the library raises the error, which names the package to install."""
    (tmp_path / variables.get("FAULTTOLERANCE_CONFIG", "f")).write_text("")
    program = (
        f"import sys; sys.modules[{package!r}] = None\nimport faulttolerance as ft\nprint('imported')\n{STARTS[start]}"
    )

    done = python(program, folder=tmp_path, environment={**ALONE, **variables})

    assert (done.returncode, done.stdout) == (1, "imported\n")
    assert problem in done.stderr
    assert 'allowed: pip install "faulttolerance[files]"' in done.stderr


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"FAULTTOLERANCE_RETRY_DELAY": "2s"},
        {"FAULTTOLERANCE_RETRY_ENABLED": "false"},
        {"MP_FAULT_TOLERANCE_METRICS_ENABLED": "false"},
    ],
)
def test_variables_need_no_package(variables: dict[str, str], tmp_path: Path) -> None:
    """Rule O5: they set values and switch policies."""
    program = """
    import sys
    for name in ("pydantic", "pydantic_settings", "yaml", "javaproperties", "typer", "wrapt"):
        sys.modules[name] = None
    import faulttolerance as ft
    @ft.retry(retry_on=OSError)
    def call(): return "called"
    print(call(), ft.validate())
    """
    assert output_of(program, folder=tmp_path, environment={**ALONE, **variables}) == "called []"


def faulttolerance(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("typer")
    (folder / "acme.py").write_text(ACME)
    return command_line(*arguments, folder=folder, environment={**ALONE, **variables})


@pytest.mark.parametrize("arguments", [("--config", "f.toml", "list", "acme"), ("list", "acme", "--config", "f.toml")])
def test_a_file_can_be_named_for_one_run(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Rule M6: the option may stand before or after the command."""
    (tmp_path / "f.toml").write_text("[Retry]\nmaxRetries = 9\n")

    listed = json.loads(faulttolerance(*arguments, "--json", folder=tmp_path).stdout)

    [retry] = [one for one in listed[1]["policies"] if one["annotation"] == "Retry"]
    assert retry["parameters"]["maxRetries"]["value"] == 9


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Rule M6: the command does not go on without it."""
    assert faulttolerance("list", "acme", "--config", "none.toml", folder=tmp_path).returncode == 2


def test_explain_has_the_options_that_the_function_has(tmp_path: Path) -> None:
    """Rule M3: the command line shows the same."""
    shown = faulttolerance("explain", "acme:Client.charge", folder=tmp_path).stdout
    everything = faulttolerance("explain", "acme:Client.charge", "--all", folder=tmp_path).stdout
    [told] = json.loads(faulttolerance("explain", "acme:Client.charge", "--json", folder=tmp_path).stdout)

    assert "    delay = 2s  [decorator]\n      variable ACME_CLIENT_CHARGE_RETRY_DELAY\n" in shown
    assert "maxDuration" not in shown
    assert "    maxDuration = 3m  [default]\n" in everything
    assert [policy["annotation"] for policy in told["policies"]] == ["Fallback", "Retry", "Timeout"]


def test_it_tells_its_version(tmp_path: Path) -> None:
    """Rule M6: ``--version`` prints it."""
    assert faulttolerance("--version", folder=tmp_path).stdout == f"faulttolerance {version('faulttolerance')}\n"


def test_it_completes_in_shells(tmp_path: Path) -> None:
    """Rule M6: the completion is a script of its own."""
    assert "--show-completion" in faulttolerance("--help", folder=tmp_path).stdout


def test_a_pipe_gets_one_line_for_each_key(tmp_path: Path) -> None:
    """Rule M6: grep and awk can read it."""
    rows = faulttolerance("keys", "acme", folder=tmp_path).stdout.splitlines()

    assert [row for row in rows if "etry/maxRetries " in row and " 4 " in row]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that runs a command without any configuration, once, and returns its output."""
    folder = tmp_path_factory.mktemp("plain")

    @cache
    def output(*arguments: str) -> str:
        return faulttolerance(*arguments, folder=folder).stdout

    return output


SUFFIX = {"env": ".env", "toml": ".toml", "yaml": ".yaml", "properties": ".properties"}
READER = {"properties": "javaproperties", "yaml": "yaml"}


@pytest.mark.parametrize("how", FORMATS)
def test_a_template_can_be_used_as_it_is_printed(how: str, printed: Callable[..., str], tmp_path: Path) -> None:
    """Rule M6: it changes nothing, and each of its lines may be activated."""
    pytest.importorskip(READER.get(how, "tomllib"))
    template = printed("keys", "acme", "--format", how)
    plain = json.loads(printed("list", "acme", "--json"))
    file = tmp_path / f"filled{SUFFIX[how]}"

    file.write_text(template, encoding="utf-8")
    assert json.loads(faulttolerance("list", "acme", "--json", "--config", file.name, folder=tmp_path).stdout) == plain
    own = [line[1:] for line in template.splitlines() if line[:2] not in ("# ", "") and "acme" in line.lower()]
    file.write_text("\n".join(own), encoding="utf-8")
    done = faulttolerance("check", "acme", "--strict", "--config", file.name, folder=tmp_path)
    filled = json.loads(faulttolerance("list", "acme", "--json", "--config", file.name, folder=tmp_path).stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(own) > 30
    assert values(filled) == values(plain)
    assert "filled" in json.dumps(filled)


def values(listed: Any) -> dict[str, Any]:
    return {
        f"{guard['name']} {policy['annotation']} {name}": one["value"]
        for guard in listed
        for policy in guard["policies"]
        for name, one in policy["parameters"].items()
    }


@pytest.mark.parametrize("how", FORMATS)
def test_every_line_of_a_template_is_right_without_its_sign(
    how: str, printed: Callable[..., str], tmp_path: Path
) -> None:
    """Rule M6: its value is allowed, even where guards differ."""
    pytest.importorskip(READER.get(how, "tomllib"))
    template = printed("keys", "acme", "--format", how)
    lines = [line[1:] for line in template.splitlines() if line[:2] not in ("# ", "") and "Fallback" not in line]
    lines = [line for line in lines if "FALLBACK" not in line]
    file = tmp_path / f"filled{SUFFIX[how]}"
    file.write_text("\n".join(lines), encoding="utf-8")

    done = faulttolerance("check", "acme", "--config", file.name, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "is not used" not in done.stderr


def test_a_key_with_spaces_survives_every_format(tmp_path: Path) -> None:
    """Rule M6: the name of a guard may have any character."""
    from faulttolerance._config.key import Key
    from faulttolerance._config.template import FORMATS

    javaproperties, yaml = pytest.importorskip("javaproperties"), pytest.importorskip("yaml")
    for name in ("my guard/Retry/delay", "a:b=c#d!e/Retry/delay", "zażółć \U0001f680/Retry/delay", "back\\slash/x/y"):
        for value in ("", " leading", "# no comment", "tab\there", "naïve\\"):
            assert javaproperties.loads(FORMATS["properties"](Key(name), value)) == {name: value}
            assert yaml.safe_load(FORMATS["yaml"](Key(name), value)) == {name: value}
