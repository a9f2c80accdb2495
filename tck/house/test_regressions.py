"""The list of former defects names tests that exist: a developer who rebuilds a part finds its tests there."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIST: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "tck" / "kit" / "regressions.toml").read_text(encoding="utf-8"))


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return ``test_a``, ``TestB`` and ``TestB::test_c``."""
    names = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {
                f"{node.name}::{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return frozenset(names)


def test_each_defect_has_the_test_that_found_it_or_the_reason_why_it_is_none() -> None:
    for name, defect in LIST.items():
        assert defect["was"].endswith("."), name
        assert defect.get("tests") or defect.get("kept"), name


def test_each_test_that_is_named_exists() -> None:
    for test in (test for defect in LIST.values() for test in defect.get("tests", ())):
        path, _, function = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not function or function.partition("[")[0] in names_in(ROOT / path), test
