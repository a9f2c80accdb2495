"""The page on adding a policy works: a copy of the package with its files and changes passes its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from kit.taken_away import copy_of_package

pytest.importorskip("pydantic_settings")  # the page's tests set values from outside

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-a-policy.md"
MOST_CHANGED = 3
"""Existing files that a policy may change."""

_STEP = re.compile(
    r"^(?:New file `(?P<new>[^`]+)`|In `(?P<changed>[^`]+)`, behind `(?P<line>[^`]+)`|"
    r"At the end of `(?P<extended>[^`]+)`):\n\n```python no-run\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_POLICIES = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
PARTS = {found[1]: part for part in _POLICIES if (found := re.match(r".*`@(\w+)`\n", part))}
"""The part of the page on each policy."""


def insert(file: Path, line: str, code: str) -> None:
    """Insert *code* behind the only line of *file* that reads *line*, and indent it as that line."""
    text = file.read_text(encoding="utf-8")
    (found,) = re.finditer(rf"^( *){re.escape(line)}\n", text, re.MULTILINE)
    file.write_text(text[: found.end()] + indent(code, found[1]) + text[found.end() :], encoding="utf-8")


@pytest.mark.outside
@pytest.mark.parametrize("policy", sorted(PARTS))
def test_a_policy_of_the_page_works_with_few_changes_to_existing_files(policy: str, tmp_path: Path) -> None:
    """A contributor who follows the page writes a folder, a row, and public names."""
    copy_of_package(tmp_path)
    changed: set[Path] = set()
    for step in _STEP.finditer(PARTS[policy]):
        file = tmp_path / (step["new"] or step["changed"] or step["extended"])
        if step["new"]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step["code"], encoding="utf-8")
            continue
        changed.add(file)
        if step["changed"]:
            insert(file, step["line"], step["code"])
        else:
            file.write_text(f"{file.read_text(encoding='utf-8')}\n\n{step['code']}", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tck/{policy}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert 0 < len(changed) <= MOST_CHANGED
