"""The pages quote the package as it is: a quotation follows a comment that names the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_QUOTATION = re.compile(r"<!-- from (?P<path>\S+) -->\n\n```[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)

QUOTATIONS = [
    pytest.param(ROOT / found["path"], part, id=f"{page.stem}-{found['path']}-{number}")
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, found in enumerate(_QUOTATION.finditer(page.read_text(encoding="utf-8")))
    for part in re.split(r"^\.\.\.\n", found["code"], flags=re.MULTILINE)
]


def lines(text: str) -> str:
    """Return the lines of *text* without their indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize(("path", "quoted"), QUOTATIONS)
def test_each_quotation_stands_in_its_file(path: Path, quoted: str) -> None:
    """A contributor who changes the code learns which page to change."""
    assert f"\n{lines(quoted)}\n" in f"\n{lines(path.read_text(encoding='utf-8'))}\n"
