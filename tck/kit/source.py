"""The source code of the package, read and parsed once in a process: several tests look at each file of it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import faulttolerance

from .garbage import uncollected

__all__ = ["FILES", "PACKAGE", "nodes_of", "parsed", "text_of"]

PACKAGE = Path(faulttolerance.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@cache
def text_of(file: str) -> str:
    """Return the text of a file, which is named from the package's folder."""
    return (PACKAGE / file).read_text(encoding="utf-8")


def parsed(file: str) -> ast.Module:
    """Return the syntax tree of a file."""
    return _trees()[file]


@cache
def nodes_of(file: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, in the order of ``ast.walk``."""
    return tuple(ast.walk(parsed(file)))


@cache
def _trees() -> dict[str, ast.Module]:
    with uncollected():  # a quarter of a million nodes, which each later collection would visit
        return {file: ast.parse(text_of(file), file) for file in FILES}
