"""The public surface in words: every public name of every public module, with its parameters and their defaults.

    python tck/kit/surface.py    # records it, where a change of it is meant

A parameter that is renamed, moved or gets another default breaks code of others as a name does that is gone.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import EnumType
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tck" / "kit" / "surface.txt"
MODULES = ["", ".exceptions", ".instrumentation", ".patching", ".policies", ".testing", ".typing"]
"""Modules that are imported: the parameters of their decorators are made at import."""
FROM_SOURCE = [ROOT / "faulttolerance" / "integrations", ROOT / "faulttolerance" / "web"]
"""Modules that need a framework, or may: their source is read."""


def imported(name: str) -> Iterator[str]:
    """Yield the lines of a module that can be imported."""
    module = import_module(name)
    for public in sorted(module.__all__):
        thing = getattr(module, public)
        if isinstance(thing, EnumType):
            yield from (f"{name}.{public}.{member}" for member in thing.__members__)
            continue
        yield f"{name}.{public}{_parameters(thing)}"
        for member, value in sorted(vars(thing).items() if isinstance(thing, type) else ()):
            if not member.startswith("_") and inspect.isfunction(value) and "._policy." not in value.__module__:
                yield f"{name}.{public}.{member}{_parameters(value)}"


def read() -> Iterator[str]:
    """Yield the lines of modules that are only read: one that begins with an underscore promises nothing."""
    for path in sorted(file for folder in FROM_SOURCE for file in folder.glob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if path.stem.startswith("_") and path.stem != "__init__":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        made = {node.name: node for node in tree.body if isinstance(node, _DEFINITIONS)}
        for public in sorted(_promised(tree)):
            yield from _described(f"{name}.{public}", made.get(public))


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


def _promised(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _described(name: str, node: ast.stmt | None) -> Iterator[str]:
    if not isinstance(node, ast.ClassDef):
        yield name + (_written(node) if isinstance(node, _FUNCTIONS) else "")
        return
    methods = {one.name: one for one in node.body if isinstance(one, _FUNCTIONS)}
    yield name + (_written(methods["__init__"]) if "__init__" in methods else "")
    yield from (f"{name}.{one}{_written(methods[one])}" for one in sorted(methods) if not one.startswith("_"))


def _written(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return f"({ast.unparse(function.args)})"


def _parameters(thing: Any) -> str:
    """Return the parameters of a *thing*, without those that Python adds to protocols and exceptions."""
    if isinstance(thing, type) and (issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False)):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return re.sub(r"<(?:class '(\w+)'|(\w+) object[^>]*)>", r"\1\2", str(inspect.Signature(bare)))


def lines() -> list[str]:
    """Return the whole record."""
    return [*(line for module in MODULES for line in imported(f"faulttolerance{module}")), *read()]


if __name__ == "__main__":
    RECORD.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
