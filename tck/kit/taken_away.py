"""A copy of the package without some of its extensions."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Collection
from importlib.util import cache_from_source
from pathlib import Path

import faulttolerance

__all__ = ["EXTENSIONS", "copy_of_package", "copy_without"]

_PACKAGE = Path(faulttolerance.__file__).parent
EXTENSIONS = sorted(path.name for path in (_PACKAGE / "_extensions").iterdir() if (path / "row.py").exists())
_NAMING = (
    "_extensions/order.py",
    "_extensions/keywords.py",
    "policies.py",
    "_recommended.py",
    "__init__.py",
    "testing/__init__.py",
)
"""The files that name extensions: the order, the keywords of a ``Guard``, and the public names."""
_DOORS = {"fleet": "testing/memory_fleet.py"}
"""Further files with public names of an extension."""


def copy_of_package(folder: Path) -> Path:
    """Copy the package into *folder*, with its compiled files; return the copy."""
    copy = folder / "faulttolerance"

    def copy_file(source: str, target: str) -> None:
        shutil.copy2(source, target)
        compiled = Path(cache_from_source(source)) if source.endswith(".py") else None
        if compiled is not None and compiled.exists():
            cache = Path(cache_from_source(target))
            cache.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(compiled, cache)

    shutil.copytree(_PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"), copy_function=copy_file)
    return copy


def copy_without(extensions: Collection[str], folder: Path) -> Path:
    """Copy the package into *folder* without *extensions*: their folders, rows and public names; return *folder*."""
    copy = copy_of_package(folder)
    removed = {f"_extensions.{extension}" for extension in extensions}
    for extension in extensions:
        shutil.rmtree(copy / "_extensions" / extension)
        if extension in _DOORS:
            (copy / _DOORS[extension]).unlink()
            removed.add(_DOORS[extension].removesuffix(".py").replace("/", "."))
    names: set[str] = set()
    for file in _NAMING:
        room = file.rpartition("/")[0].replace("/", ".")
        tree = _Removal(removed, names, room).visit(ast.parse((copy / file).read_text(encoding="utf-8")))
        (copy / file).write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    return folder


class _Removal(ast.NodeTransformer):
    """Removes every use of the names that modules of extensions define; collects these names.

    Args:
        modules: The modules that are no longer there, from the package on.
        names: The names that go with them.
        room: The package of the file.
    """

    def __init__(self, modules: Collection[str], names: set[str], room: str) -> None:
        self._modules = modules
        self._names = names
        self._room = room

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        path = ".".join(filter(None, (self._room if node.level == 1 else "", node.module or "")))
        if node.level and any(f"{path}.".startswith(f"{module}.") for module in self._modules):
            self._names |= {alias.asname or alias.name for alias in node.names}
            return None
        node.names = [alias for alias in node.names if alias.name not in self._names]
        return node if node.names else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        """Remove the decorator of a policy that is removed."""
        declared = [argument for call in node.decorator_list if isinstance(call, ast.Call) for argument in call.args]
        if any(map(self._is_removed, declared)):
            self._names.add(node.name)
            return None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Remove the keyword of a ``Guard`` for a policy that is removed."""
        if any(map(self._is_removed, ast.walk(node.annotation))):
            return None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST | None:
        """Return the row that an extension decorates; remove other calls of it, and keywords with its names."""
        node.keywords = [keyword for keyword in node.keywords if not self._is_removed(keyword.value)]
        if self._is_removed(node.func) or any(map(self._is_removed, node.args)):
            rows = [row for row in node.args if isinstance(row, ast.Attribute) and row.attr.isupper()]
            return rows[0] if rows and self._is_removed(node.func) else None
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST | None:
        """Return the alternative of a removed call."""
        self.generic_visit(node)
        return node if hasattr(node, "body") else node.orelse

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """Remove the modules of names that are imported late."""
        kept = [
            (key, value)
            for key, value in zip(node.keys, node.values, strict=True)
            if not (isinstance(key, ast.Constant) and str(key.value).removeprefix(".").startswith(tuple(self._modules)))
        ]
        node.keys, node.values = [key for key, _ in kept], [value for _, value in kept]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        """Leave no empty block."""
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        return self._without_removed(node)

    def visit_List(self, node: ast.List) -> ast.AST:
        return self._without_removed(node)

    def _without_removed(self, node: ast.Tuple | ast.List) -> ast.AST:
        node.elts = [element for element in node.elts if not self._is_removed(element)]
        return self.generic_visit(node)

    def _is_removed(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in self._names) or (
            isinstance(node, ast.Constant) and node.value in self._names
        )
