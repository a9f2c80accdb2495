"""The map of the tests, `tck/README.md`, leads to every folder, and every test stands in one."""

from __future__ import annotations

import re
from pathlib import Path

TCK = Path(__file__).resolve().parents[1]
MAP = (TCK / "README.md").read_text(encoding="utf-8")

A_SCREEN = 50


def test_each_folder_stands_in_the_map_once() -> None:
    """Files between the folders belong to no subject."""
    folders = {path.relative_to(TCK).parts[0] for path in TCK.rglob("*.py") if path.parent != TCK}

    assert sorted(re.findall(r"(?<=`)(\w+)/(?=`)", MAP)) == sorted(folders)
    assert list(TCK.glob("test_*.py")) == []


def test_the_map_is_one_screen() -> None:
    assert len(MAP.splitlines()) <= A_SCREEN


def test_no_file_is_named_by_the_number_of_a_rule() -> None:
    """A name states the promise; a number has to be looked up on another page."""
    numbered = re.compile(r"test_(.*_)?[a-z]{1,2}\d+[a-z]?(_.*)?\.py")

    assert [path.name for path in TCK.rglob("test_*.py") if numbered.fullmatch(path.name)] == []
