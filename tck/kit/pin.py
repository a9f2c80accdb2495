"""A place in the source code that is named by its function and its code, and not by file, line or layout.

The code of a pin is an expression, or statements that follow one another. Both are compared as syntax trees: spaces,
quotes, parentheses and comments do not count. A pin stays where it is when its function moves to another file.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

__all__ = ["Pin", "Span"]

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Span:
    """A part of a text: lines from 1, columns in bytes, as ``ast`` counts them."""

    line: int
    column: int
    end_line: int
    end_column: int

    def replaced(self, text: str, new: str) -> str:
        """Return *text* with *new* in the place of this part."""
        lines = text.splitlines(keepends=True)
        before = lines[self.line - 1].encode()[: self.column].decode()
        after = lines[self.end_line - 1].encode()[self.end_column :].decode()
        return "".join([*lines[: self.line - 1], before, new, after, *lines[self.end_line :]])


@dataclass(frozen=True)
class Pin:
    """An expression, or statements, in one function.

    Args:
        function: The qualified name of the function or class that is closest around; empty for a module's own code.
        code: The expression or the statements.
        new: The code that takes their place; statements are removed where it is empty.
    """

    function: str
    code: str
    new: str

    @lru_cache(maxsize=512)  # noqa: B019 -- the search for the file asks first, then the search for the place
    def spans(self, text: str) -> list[Span]:
        """Return where in the module *text* the code stands; each function of the name is searched."""
        scopes = (name for name in self.function.split(".") if name)
        if not all(f"def {name}" in text or f"class {name}" in text for name in scopes):
            return []  # without parsing it, as below
        if not all(word in text for word in self._words):
            return []
        expression = self._expressions
        if expression is not None:
            kind, sought = type(expression[0]), ast.dump(expression[0])
            alike = (node for node in _expressions_in(text, self.function) if type(node) is kind)
            return [_span(node, node) for node in alike if ast.dump(node) == sought]
        statements = ast.parse(textwrap.dedent(self.code)).body
        kinds, sought = [type(statement) for statement in statements], _dumped(statements)
        found = (
            block[first : first + len(kinds)]
            for block in _blocks_in(text, self.function)
            for first in range(len(block) - len(kinds) + 1)
        )
        return [
            _span(some[0], some[-1])
            for some in found
            if [type(statement) for statement in some] == kinds and _dumped(some) == sought  # most differ in kind
        ]

    def applied_to(self, text: str) -> str:
        """Return the module *text* with the new code in the only place of the old."""
        spans = self.spans(text)
        if len(spans) != 1:
            raise ValueError(f"{self.function} has {len(spans)} times the code {self.code!r}")
        (span,) = spans
        if self._expressions is not None:
            return span.replaced(text, f"({self.new})")
        new = textwrap.dedent(self.new).strip() or "pass"
        return span.replaced(text, textwrap.indent(new, " " * span.column).lstrip(" "))

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(re.findall(r"\w+", self.code))

    @cached_property
    def _expressions(self) -> tuple[ast.expr, ast.expr] | None:
        """Return old and new code as expressions; None where one of them is none."""
        try:
            old, new = (ast.parse(f"({code}\n)", mode="eval").body for code in (self.code, self.new))
        except SyntaxError:
            return None
        return (old, new) if self.new.strip() else None


def _dumped(statements: list[ast.stmt]) -> list[str]:
    return [ast.dump(statement) for statement in statements]


def _span(first: ast.stmt | ast.expr, last: ast.stmt | ast.expr) -> Span:
    line, column = min((node.lineno, node.col_offset) for node in [first, *getattr(first, "decorator_list", ())])
    if line != first.lineno:
        line, column = line, first.col_offset  # a decorator's own column is that behind its @
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    return Span(line, column, last.end_lineno, last.end_col_offset)


@lru_cache(maxsize=32)
def _scopes(text: str) -> dict[str, list[ast.AST]]:
    """Return the module, under an empty name, and all functions and classes in it by their qualified names."""
    module = ast.parse(text)
    found: dict[str, list[ast.AST]] = {"": [module]}

    def walk(tree: ast.AST, above: str) -> None:
        for node in ast.iter_child_nodes(tree):
            inside = above
            if isinstance(node, _SCOPES):
                found.setdefault(above + node.name, []).append(node)
                inside = f"{above}{node.name}."
            walk(node, inside)

    walk(module, "")
    return found


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a scope but those of functions and classes in it, of which only the whole is its own.

    Parts of text that is formatted are left out: before Python 3.12 their positions are wrong.
    """
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, (*_SCOPES, ast.JoinedStr)):
            yield from _own_nodes(node)


def _expressions_in(text: str, function: str) -> Iterator[ast.expr]:
    for scope in _scopes(text).get(function, ()):
        yield from (node for node in _own_nodes(scope) if isinstance(node, ast.expr))


def _blocks_in(text: str, function: str) -> Iterator[list[ast.stmt]]:
    for scope in _scopes(text).get(function, ()):
        for node in [scope, *(node for node in _own_nodes(scope) if not isinstance(node, _SCOPES))]:
            for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    yield block
