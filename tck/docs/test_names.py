"""The pages on the inside name only files, rooms, functions and classes that exist."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

import faulttolerance

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(faulttolerance.__file__).parent
PAGES = [
    ROOT / "docs" / "explanation" / "architecture.md",
    ROOT / "docs" / "explanation" / "cost.md",
    ROOT / "docs" / "how-to" / "add-a-policy.md",
]

_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_NEW = re.compile(r"^New file `.*`:$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./-]*\w\.(py|md)")
_ROOM = re.compile(r"_\w+(/\w+)*")
_NAME = re.compile(r"[A-Za-z]\w*(\.\w+)*")


@cache
def words() -> set[str]:
    """Return the words of the package's source code."""
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return {"asyncio"}.union(*(re.findall(r"\w+", text) for text in texts))


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_file(name: str) -> bool:
    """Return whether *name* is a path in package, repository or tests, or a file anywhere in package, tests or docs."""
    if any((folder / name).is_file() for folder in (PACKAGE, ROOT, ROOT / "tck")):
        return True
    return "/" not in name and any(any(folder.rglob(name)) for folder in (PACKAGE, ROOT / "tck", ROOT / "docs"))


def is_there(code: str) -> bool:
    """Return whether *code* names an existing file, room or name; other code names nothing, and passes."""
    if _FILE.fullmatch(code):
        return is_file(code)
    if _ROOM.fullmatch(code) and ("/" in code or code not in words()):
        return (PACKAGE / code).is_dir()
    return not _NAME.fullmatch(code) or words().issuperset(code.split("."))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_name_on_a_page_on_the_inside_exists(page: Path) -> None:
    """A contributor who renames or moves something learns which page to change."""
    text = _NEW.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))

    assert [code for code in _CODE.findall(text) if not is_there(code)] == []


@pytest.mark.parametrize("code", ["_call/gone.py", "gone.py", "_never_was", "_call/gone", "BoundPolicies.no_such_name"])
def test_a_name_that_is_gone_is_noticed(code: str) -> None:
    assert not is_there(code)


def test_the_picture_of_the_rooms_shows_the_contract() -> None:
    """It shows them row by row, as the layers in which import-linter has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [re.findall(r"\w+", layer) for layer in contracts[0]["layers"]]

    picture = (ROOT / "docs" / "explanation" / "architecture.svg").read_text(encoding="utf-8")
    rooms = re.findall(r'y="(\d+)" class="middle"><tspan class="room">(\w+)<', picture)

    assert [[room for _, room in row] for _, row in groupby(rooms, key=lambda room: room[0])] == layers
