"""The reference of the command line says what ``--help`` does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("prometheus_client")
from typer.testing import CliRunner

from faulttolerance._command.cli import app

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:.|\n)*?)(?=^## |\Z)", TEXT, re.MULTILINE))
OF_ALL = "Meaning"
"""The section of what holds for all commands."""
OF_TYPER = {"--help", "--install-completion", "--show-completion"}

Option = tuple[frozenset[str], str]
"""How it is spelled, with what stands behind it, and what it means."""


def helped(*command: str) -> str:
    """What ``--help`` says, in lines as long as they need to be."""
    return str(CliRunner().invoke(app, [*command, "--help"], terminal_width=300, max_content_width=300).output)


def option(spelled: str, meaning: str) -> Option:
    return frozenset(re.findall(r"[\w-]+", spelled)), re.split(r"\s+\\?\[default", meaning)[0].strip()


def told(text: str) -> list[Option]:
    """The options that ``--help`` lists."""
    listed = text.partition("Options:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^  (-.+?)(?:  |\n {5,})(.+)$", listed, re.MULTILINE)
    return [one for one in (option(*pair) for pair in found) if not one[0] & OF_TYPER]


def documented(section: str) -> list[Option]:
    """The rows of a table of options."""
    return [option(*pair) for pair in re.findall(r"^\| (`-.+`) \| (.+) \|$", section, re.MULTILINE)]


@pytest.mark.parametrize("command", SECTIONS)
def test_every_option_has_its_row_and_none_is_invented(command: str) -> None:
    found = told(helped() if command == OF_ALL else helped(command))

    assert found
    assert documented(SECTIONS[command]) == found


def test_commands_stand_in_their_order_with_what_they_do() -> None:
    commands = re.findall(r"^  (\w+) +(.+)$", helped().partition("Commands:\n")[2], re.MULTILINE)

    assert [*SECTIONS] == [OF_ALL, *(name for name, _ in commands)]
    for name, does in commands:
        argument = re.search(r"\[OPTIONS\] \{?([A-Z:]+)", helped(name))
        assert argument
        assert f"faulttolerance {name} [OPTIONS] {argument[1]}" in SECTIONS[name]
        assert does in " ".join(SECTIONS[name].split())


def test_the_limits_of_top_are_those_of_the_page() -> None:
    pytest.importorskip("rich")
    from faulttolerance._command.top import guard_stats, scraper, screen, target

    said = SECTIONS["top"]
    assert ("[default: 2s]" in helped("top").replace("\\", ""), "The interval is 2 seconds" in said) == (True, True)
    assert (
        f"An address has {target.PATIENCE:g} seconds to answer, with {scraper.LARGEST // 1_000_000} MB at most" in said
    )
    shown = json.loads(json.dumps(screen.as_dict([target.Target("a")], [guard_stats.GuardStats("m", {}, {}, {})], 0.0)))
    whole, of_each = (re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) for part in said.split("| of each guard"))
    assert (whole, of_each) == (list(shown), list(shown["guards"][0]))
    assert all(f"`{key}`" in said for key in shown["targets"][0])
    for names in (
        [rank.name.lower() for rank in guard_stats.Severity],
        [kind for kind in guard_stats.COUNTERS if kind not in guard_stats.REFUSALS],
        guard_stats.REFUSALS, guard_stats.STATES, guard_stats.ADDED, guard_stats.HIGHEST,
    ):  # fmt: skip
        assert ", ".join(f"`{name}`" for name in names) in said


@pytest.mark.outside
def test_the_picture_of_top_is_what_it_shows(tmp_path: Path) -> None:
    """Drawn anew, it says the same; where things stand is rich's business."""
    pytest.importorskip("rich")
    pictures = ROOT / "docs" / "pictures"
    subprocess.run([sys.executable, "-W", "error", str(pictures / "top.py"), str(tmp_path / "top.svg")], check=True)

    now, kept = (re.findall(r">([^<>]+)</text>", (path / "top.svg").read_text()) for path in (tmp_path, pictures))

    assert now == kept, f"run python {(pictures / 'top.py').relative_to(ROOT)}"
    assert "@font-face" not in (pictures / "top.svg").read_text()
