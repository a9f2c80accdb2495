"""The reference of the command line agrees with ``--help``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from faulttolerance._command.cli import app

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:.|\n)*?)(?=^## |\Z)", TEXT, re.MULTILINE))
OF_ALL = "Meaning"
"""The section on options that all commands have."""
OF_TYPER = {"--help", "--install-completion", "--show-completion"}

Option = tuple[frozenset[str], str]
"""The spellings of an option, with its argument, and its meaning."""


def helped(*command: str) -> str:
    """Return the output of ``--help``, in lines as long as they need to be."""
    return str(CliRunner().invoke(app, [*command, "--help"], terminal_width=300, max_content_width=300).output)


def option(spelled: str, meaning: str) -> Option:
    return frozenset(re.findall(r"[\w-]+", spelled)), re.split(r"\s+\\?\[default", meaning)[0].strip()


def told(text: str) -> list[Option]:
    """Return the options that ``--help`` lists."""
    listed = text.partition("Options:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^  (-.+?)(?:  |\n {5,})(.+)$", listed, re.MULTILINE)
    return [one for one in (option(*pair) for pair in found) if not one[0] & OF_TYPER]


def documented(section: str) -> list[Option]:
    """Return the rows of a table of options."""
    return [option(*pair) for pair in re.findall(r"^\| (`-.+`) \| (.+) \|$", section, re.MULTILINE)]


@pytest.mark.parametrize("command", SECTIONS)
def test_every_option_has_its_row_and_none_is_invented(command: str) -> None:
    found = told(helped() if command == OF_ALL else helped(command))

    assert found
    assert documented(SECTIONS[command]) == found


def test_commands_stand_in_their_order_with_their_descriptions() -> None:
    commands = re.findall(r"^  (\w+) +(.+)$", helped().partition("Commands:\n")[2], re.MULTILINE)

    assert [*SECTIONS] == [OF_ALL, *(name for name, _ in commands)]
    for name, does in commands:
        argument = re.search(r"\[OPTIONS\] \{?([A-Z:]+)", helped(name))
        assert argument
        assert f"faulttolerance {name} [OPTIONS] {argument[1]}" in SECTIONS[name]
        assert does in " ".join(SECTIONS[name].split())
