"""The syntax tree of a function without the parts that its flags exclude. Loaded when the first guard is cut."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial
from typing import Any

from .._platform.atomic import uncollected

__all__ = ["cut"]


def cut(text: str, flags: Mapping[str, bool]) -> ast.Module:
    """Return the function that *text* consists of, reduced by *flags*; see ``specialize``."""
    # A finalizer that formats a traceback parses a line; two parsers at the same time fail with a SystemError.
    parsed = uncollected(partial(compile, text, "faulttolerance", "exec", ast.PyCF_ONLY_AST, dont_inherit=True))
    definition = parsed.body[0]  # type: ignore[attr-defined]
    assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef))
    definition.decorator_list = []
    return ast.Module([_Cutter(flags).visit(definition)], [])


class _Cutter(ast.NodeTransformer):
    """Evaluates the flags in a syntax tree."""

    def __init__(self, flags: Mapping[str, bool]) -> None:
        self._flags = flags

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
        if node.id in self._flags:
            return ast.copy_location(ast.Constant(self._flags[node.id]), node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Assert(self, node: ast.Assert) -> None:
        """Drop an assertion, which only states facts about the order of ``attempt.attempt`` for type checkers."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        node.args, node.returns = self.visit(node.args), None
        node.body = self._block(node.body)
        if isinstance(node, ast.FunctionDef) or self._flags["ASYNC"] or self._flags["BLOCK"]:
            return node
        return ast.copy_location(ast.FunctionDef(node.name, node.args, node.body, [], None), node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  # the name that ``ast`` looks up

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
        """Evaluate *test*: return a truth value, or the remaining expression, which each call evaluates."""
        if isinstance(test, ast.Name) and test.id in self._flags:
            return self._flags[test.id]
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
