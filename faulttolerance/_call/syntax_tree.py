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

    def visit_If(self, node: ast.If | ast.IfExp) -> Any:
        node.test = self.visit(node.test)
        if not isinstance(node.test, ast.Constant):
            return self.generic_visit(node)
        kept = node.body if node.test.value else node.orelse  # the other one is never visited
        return self.visit(kept) if isinstance(kept, ast.expr) else self.generic_visit(ast.Module(kept, [])).body  # type: ignore[attr-defined]

    visit_IfExp = visit_If  # noqa: N815  # the name that ``ast`` looks up

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Evaluate the flags of a condition; each call evaluates the rest."""
        decides = isinstance(node.op, ast.Or)
        rest = []
        for value in map(self.visit, node.values):
            known = value.value if isinstance(value, ast.Constant) else None
            if known is decides:
                return value  # type: ignore[no-any-return]
            if not isinstance(known, bool):
                rest.append(value)
        node.values = rest
        return node if len(rest) > 1 else rest[0] if rest else ast.copy_location(ast.Constant(not decides), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.copy_location(ast.Constant(not node.operand.value), node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._flags:
            return ast.copy_location(ast.Constant(self._flags[node.id]), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return node if isinstance(node.value, ast.Name) else self.generic_visit(node)  # flags have no attributes

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_While(self, node: ast.While) -> ast.While:
        """Return *node*; an endless loop gets the place of its first statement, because each line is an instruction."""
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            ast.copy_location(node.test, node.body[0])
            node.lineno = node.test.lineno
        return node

    def visit_Assert(self, node: ast.Assert) -> None:
        """Drop an assertion, which only states facts about the order of ``attempt.attempt`` for type checkers."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        self.generic_visit(node)
        node.returns = None
        if isinstance(node, ast.FunctionDef) or self._flags["ASYNC"] or self._flags.get("BLOCK"):
            return node
        return ast.copy_location(ast.FunctionDef(node.name, node.args, node.body, [], None), node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  # the name that ``ast`` looks up
