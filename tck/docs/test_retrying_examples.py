"""Examples that retry name the failures that they retry, for readers copy them (rule M5)."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from pathlib import Path

from kit.source import FILES, PACKAGE, nodes_of

ROOT = Path(__file__).resolve().parents[2]
ABOUT = "what-may-be-retried.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [*sorted((ROOT / "examples").rglob("*.py")), *(PACKAGE / file for file in FILES)]
_FENCE = re.compile(r"^```(python|pycon)(?! old)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""Code of ours: `python old` is code of the library from which a page moves."""


def examples(path: Path) -> Iterator[str]:
    """Yield the code of a page, of a module of examples, or of the docstrings of a module."""
    if path.suffix == ".md":
        for kind, code in _FENCE.findall(path.read_text(encoding="utf-8")):
            yield shown(code) if kind == "pycon" else code
    elif path.is_relative_to(ROOT / "examples"):
        yield path.read_text(encoding="utf-8")
    else:
        for node in nodes_of(path.relative_to(PACKAGE).as_posix()):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield shown(ast.get_docstring(node) or "")


def shown(session: str) -> str:
    return "".join(one.source for one in doctest.DocTestParser().get_examples(session)) if ">>>" in session else ""


def retries(code: str) -> Iterator[tuple[int, bool]]:
    """Yield the line of each retry, and whether it names its failures."""
    if "retry" not in code.lower():
        return  # without parsing it
    decided = set()
    tree = ast.parse(code)
    for node in ast.walk(tree):
        beside = [*getattr(node, "decorator_list", [])]
        if isinstance(node, ast.Call):
            beside += [*node.args, *(one.value for one in node.keywords)]
        if any(name_of(one) in ("retry_when", "RetryWhen") and says(one, "exception") for one in beside):
            decided |= {id(one) for one in beside}
        for one in getattr(node, "decorator_list", []):
            if name_of(one) == "retry" and not isinstance(one, ast.Call):
                yield one.lineno, id(one) in decided
        if isinstance(node, ast.Call) and name_of(node) in ("retry", "Retry") and not never(node):
            yield node.lineno, id(node) in decided or says(node, "retry_on", "abort_on")


def name_of(node: ast.AST) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def never(call: ast.Call) -> bool:
    """Return whether the call retries nothing, or is refused."""
    return any(one.arg == "max_retries" and ast.unparse(one.value) in ("0", "-3") for one in call.keywords)


def says(call: ast.AST, *names: str) -> bool:
    return isinstance(call, ast.Call) and any(one.arg in (None, *names) for one in call.keywords)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_an_example_that_retries_names_the_failures() -> None:
    """Rule M5: examples on other subjects do so, too."""
    bare = [
        (named(path), code.splitlines()[line - 1])
        for path in (*PAGES, *MODULES)
        for code in examples(path)
        for line, names in retries(code)
        if not names
    ]

    assert bare == []


def test_a_page_that_retries_links_to_the_page_on_failures_that_may_be_retried() -> None:
    """Rule M5: a reader who copies the example finds the conditions there."""
    retrying = [page for page in PAGES if any(True for code in examples(page) for _ in retries(code))]

    silent = [page for page in retrying if page.name != ABOUT and ABOUT not in page.read_text(encoding="utf-8")]

    assert silent == []
