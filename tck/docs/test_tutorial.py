"""The first pages work for a newcomer who types them at a plain prompt, or keeps them in files and runs them."""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import faulttolerance

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-service.md"
README = ROOT / "README.md"

_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([\w.]+)"')
MODULE = "faulttolerance.policies"
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield found["info"], found["code"]


def says(wanted: str, said: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, said, _FLAGS)


def typed(code: list[str], tmp_path: Path) -> tuple[list[str], str]:
    """Return the answers of a plain prompt to each of *code*, and its standard error without its prompts."""
    mark = "-- next --"
    text = "".join(f"{one.rstrip()}\n\nprint({mark!r})\n" for one in code)
    done = subprocess.run(
        [sys.executable, "-q", "-i", "-"],
        input=text, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert done.returncode == 0
    return done.stdout.split(f"{mark}\n")[:-1], done.stderr


def test_the_first_lines_of_the_readme_can_be_pasted(tmp_path: Path) -> None:
    """They run at a plain prompt, and as a file."""
    [(_, code), (_, promised), *_] = [one for one in blocks(README) if one[0] in ("python", "text")]
    first = tmp_path / "first.py"
    first.write_text(code, encoding="utf-8")

    answered, complaints = typed([code], tmp_path)
    printed = subprocess.run([sys.executable, first], capture_output=True, encoding="utf-8", timeout=60, check=True)

    assert answered == [promised]
    assert "Error" not in complaints
    assert (printed.stdout, printed.stderr) == (promised, "")


def test_the_site_begins_as_the_readme_does() -> None:
    """Both begin with the installation, and with lines that run as they are pasted."""
    first = [list(blocks(page))[:3] for page in (README, ROOT / "docs" / "index.md")]

    assert [info for info, _ in first[0]] == ["sh", "python", "text"]
    assert first[0] == first[1]


def test_the_readme_has_every_decorator() -> None:
    """Its table has each by its name."""
    text = README.read_text(encoding="utf-8").partition("## The decorators")[2]

    names = {name for name, value in vars(faulttolerance).items() if getattr(value, "__module__", "") == MODULE}
    assert len(names) > 20
    assert {name for name in names if f"@{name}" not in text} == set()


@pytest.mark.alone  # the page has a time-out of 0.3 s, and a circuit that stays open for 5 s
def test_the_tutorial_can_be_typed(tmp_path: Path) -> None:
    """At a plain prompt a blank line ends a block; the log is the one that the page announces."""
    pytest.importorskip("prometheus_client")
    page = TUTORIAL.read_text(encoding="utf-8")
    [(set_up, message)] = re.findall(r"After `(.+?)`, lines of its log, such as `(.+?)`", page)
    code, wanted = [set_up], [""]
    for info, text in blocks(TUTORIAL):
        if info == "pycon":
            for example in doctest.DocTestParser().get_examples(text):
                code.append(example.source)
                wanted.append("" if example.exc_msg else example.want)
        elif info.startswith("python ") and "no-run" not in info:
            code.append(text)
            wanted.append("")

    answered, complaints = typed(code, tmp_path)

    assert [
        (one, said) for one, want, said in zip(code, wanted, answered, strict=True) if not says(want, said)
    ] == []  # fmt: skip
    expected = sum("Traceback" in text for info, text in blocks(TUTORIAL) if info == "pycon")
    assert complaints.count("Traceback (most recent call last)") == expected, complaints
    assert "SyntaxError" not in complaints
    assert message in complaints


def test_the_tutorial_can_be_kept_in_files(tmp_path: Path) -> None:
    """The service answers curl, and the command line and pytest print, as the page says."""
    for module in ("prometheus_client", "typer", "pydantic_settings"):
        pytest.importorskip(module)
    for name in ("shop.py", "test_shop.py"):
        parts = [text for info, text in blocks(TUTORIAL) if name in _TITLE.findall(info)]
        (tmp_path / name).write_text(assembled(parts), encoding="utf-8")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    wrong = []

    with subprocess.Popen(
        [sys.executable, "shop.py", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
        assert service.stdout is not None
        try:
            announced = service.stdout.readline()
            address = announced.split()[-1]
            for command, wanted in commands():
                if command.startswith("python "):
                    said = announced.replace(address, "http://127.0.0.1:8000")
                elif command.startswith("curl "):
                    said = curl(command.replace("http://127.0.0.1:8000", address))
                elif command.startswith("export "):
                    name, _, value = command.removeprefix("export ").partition("=")
                    environment[name], said = value, ""
                else:
                    said = run(command, tmp_path, environment)
                if not says(wanted, said):
                    wrong.append((command, wanted, said))
        finally:
            service.kill()

    assert wrong == []


def assembled(parts: list[str]) -> str:
    """Return the file in which a later definition replaces an earlier one of the same name."""
    kept: dict[object, str] = {}
    for number, part in enumerate(parts):
        lines = part.splitlines(keepends=True)
        for node in ast.parse(part).body:
            named = isinstance(node, (ast.FunctionDef, ast.ClassDef))
            decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            first = min([node.lineno, *(one.lineno for one in decorators)])
            text = "".join(lines[first - 1 : node.end_lineno])
            key: object = node.name if named else (number, node.lineno)  # type: ignore[attr-defined]
            kept.pop(key, None)
            kept[key] = f"{text}\n\n" if named else text
    return "".join(kept.values())


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command of the tutorial, with its output."""
    for info, text in blocks(TUTORIAL):
        if info == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, wanted = part.partition("\n")
                yield command, wanted


def curl(command: str) -> str:
    asked, _, pattern = command.removeprefix("curl ").partition(" | grep ")
    try:
        with urlopen(asked, timeout=30) as answer:
            text = answer.read().decode()
    except HTTPError as error:
        text = error.read().decode()
        error.close()
    return "".join(line for line in text.splitlines(keepends=True) if re.search(pattern, line))


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    module, *arguments = command.split()
    assert module in ("faulttolerance", "pytest")
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
