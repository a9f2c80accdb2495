"""Cutting one function, written for every policy, down to the policies that a guard has.

``compose.path`` is ordinary Python: a coroutine function full of ``if BREAKER:`` and ``if ASYNC:``. ``woven`` evaluates
these capitals and drops what they rule out; of a synchronous call, whose ``await`` went that way, it drops ``async``
too. What is left keeps its file and its line numbers: a traceback or a debugger shows the lines of ``compose.py`` that
run. Nothing is added, so whoever reads ``compose.path`` has read every guard there is.

One function is compiled per combination of capitals, however many guards have it. Where the text of the program is not
there, as in a deployment of compiled files only, the function runs uncut: slower, to the same results.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Mapping
from functools import cache
from textwrap import dedent
from types import CodeType, FunctionType
from typing import Any, TypeVar

__all__ = ["Shape", "source_of", "uncut", "weavable", "woven"]

F = TypeVar("F", bound=Callable[..., Any])

Shape = Mapping[str, bool]
"""The capitals of the function, and whether each holds."""


_lines: dict[CodeType, list[str]] = {}


def weavable(function: F) -> F:
    """Remember the text of *function* as it is now: the file may be exchanged under a running program."""
    _lines[function.__code__] = linecache.getlines(function.__code__.co_filename, function.__globals__)
    return function


def woven(function: Callable[..., Any], shape: Shape) -> Callable[..., Any]:
    """*function* without what *shape* rules out."""
    return _woven(function, tuple(sorted(shape.items())))


def source_of(function: Callable[..., Any], shape: Shape) -> str:
    """The text of what ``woven`` gives, for people."""
    return ast.unparse(_cut(function, shape))


@cache
def _woven(function: Callable[..., Any], shape: tuple[tuple[str, bool], ...]) -> Callable[..., Any]:
    try:
        cut = _cut(function, dict(shape))
    except OSError:
        return uncut(function, dict(shape))
    names: dict[str, Any] = {}
    code = compile(cut, function.__code__.co_filename, "exec", dont_inherit=True)
    exec(code, function.__globals__, names)  # our own source
    return names[function.__name__]  # type: ignore[no-any-return]


def uncut(function: Callable[..., Any], shape: Shape) -> Callable[..., Any]:
    """*function* as it stands, with *shape* for its capitals; synchronous calls drive a coroutine that never waits."""
    whole = FunctionType(function.__code__, {**function.__globals__, **shape}, function.__name__)
    if shape["ASYNC"]:
        return whole

    def driven(*parts: Any) -> Callable[..., Any]:
        call = whole(*parts)

        def blocking(args: Any, kwargs: Any) -> Any:
            try:
                call(args, kwargs).send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError("a synchronous call waited")

        return blocking

    return driven


def _cut(function: Callable[..., Any], shape: Shape) -> ast.Module:
    tree = ast.parse(_source(function)[0])
    ast.increment_lineno(tree, _source(function)[1] - 1)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    for node in ast.walk(definition):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
    return ast.fix_missing_locations(_Cutter(shape).visit(tree))  # type: ignore[no-any-return]


@cache
def _source(function: Callable[..., Any]) -> tuple[str, int]:
    first = function.__code__.co_firstlineno
    lines = _lines.get(function.__code__)
    if not lines:
        raise OSError("the text of the program is not there")
    return dedent("".join(inspect.getblock(lines[first - 1 :]))), first


class _Cutter(ast.NodeTransformer):
    """Evaluates the capitals of a shape."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def visit_If(self, node: ast.If) -> Any:
        test = self._folded(node.test)
        if isinstance(test, bool):
            return self._block(node.body if test else node.orelse, may_be_empty=True)
        node.test = self.visit(test)
        node.body = self._block(node.body)
        node.orelse = self._block(node.orelse, may_be_empty=True)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self._folded(node.test)
        if isinstance(test, bool):
            return self.visit(node.body if test else node.orelse)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._shape:
            return ast.copy_location(ast.Constant(self._shape[node.id]), node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        node.body = self._block(node.body)
        if self._shape["ASYNC"]:
            return node
        return ast.copy_location(ast.FunctionDef(node.name, node.args, node.body, [], None), node)

    def visit_Try(self, node: ast.Try) -> Any:
        node.body = self._block(node.body)
        for handler in node.handlers:
            handler.body = self._block(handler.body)
        node.orelse = self._block(node.orelse, may_be_empty=True)
        node.finalbody = self._block(node.finalbody, may_be_empty=True)
        return node

    def _block(self, statements: list[ast.stmt], may_be_empty: bool = False) -> list[ast.stmt]:
        kept: list[ast.stmt] = []
        for statement in statements:
            visited = self.visit(statement)
            kept += visited if isinstance(visited, list) else [visited] if visited is not None else []
        return kept if kept or may_be_empty else [ast.copy_location(ast.Pass(), statements[0])]

    def _folded(self, test: ast.expr) -> Any:
        """What *test* comes to: a truth value, or the expression that is left to be asked."""
        if isinstance(test, ast.Name) and test.id in self._shape:
            return self._shape[test.id]
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._folded(test.operand)
            return not inner if isinstance(inner, bool) else test
        if isinstance(test, ast.BoolOp):
            ends_it = isinstance(test.op, ast.Or)
            left = []
            for one in map(self._folded, test.values):
                if one is ends_it:
                    return ends_it
                if not isinstance(one, bool):
                    left.append(one)
            if not left:
                return not ends_it
            return left[0] if len(left) == 1 else ast.copy_location(ast.BoolOp(test.op, left), test)
        return test
