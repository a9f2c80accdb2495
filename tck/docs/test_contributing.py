"""The page for contributors names only commands that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / ".github" / "CONTRIBUTING.md"

if not PAGE.is_file():
    pytest.skip("the page for contributors is not here", allow_module_level=True)

TEXT = PAGE.read_text(encoding="utf-8")


def assigned(path: Path, name: str) -> ast.expr:
    """Return the value that the file assigns to *name*."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )


def test_every_task_and_session_is_there() -> None:
    """The page names them behind `bootstrap.py` and `nox -s`; parentheses behind a session's name do not count."""
    tasks = ast.literal_eval(
        ast.unparse(assigned(ROOT / ".ci" / "bootstrap.py", "TASKS")).replace("*CHECKS", "'the sessions'")
    )
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = set(re.findall(r"^@nox\.session.*(?:\n@.*)*\ndef (\w+)", noxfile, re.MULTILINE))

    run = set(re.findall(r"bootstrap\.py (\w+)", TEXT))
    named = {
        name.partition("-")[0]
        for names in re.findall(r"(?:nox -s|--sessions) ([\w. -]+?)(?= -- |  |`|$)", TEXT, re.MULTILINE)
        for name in names.split()
    }

    assert run <= tasks.keys()
    assert run
    assert named <= sessions
    assert named


def test_no_option_of_pytest_is_named_that_the_tests_do_not_have() -> None:
    """`-n` belongs to a plug-in; the page may name it once the extra `test` installs that."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert "pytest-xdist" in project or not re.search(r"bootstrap\.py test.* -n\b", TEXT)


def test_no_time_is_promised() -> None:
    """A number of minutes holds for one machine, and is wrong with the next hundred tests."""
    assert not re.search(r"\b\d+ (?:seconds?|minutes?|s|min)\b", TEXT)
