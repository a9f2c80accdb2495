"""What griffe cannot read from source: signatures that are made when the package is imported.

A decorator has the parameters of its policy, and a policy those of its fields, by their declarations; `help()` shows
both, and so does the site, from the same source.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

_DOCTEST = re.compile(r"^(?:>>> .*\n?)(?:(?:.+)\n?)*", re.MULTILINE)


class RuntimeSignatures(griffe.Extension):
    """Replace what decorators and policies show by what `inspect` says of them."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show a decorator as callers write it."""
        if func.module.path == "faulttolerance.policies" and any(
            "_decorator" in d.callable_path for d in func.decorators
        ):
            of = getattr(import_module("faulttolerance"), func.name)
            func.parameters = _parameters(of)
            func.returns = None
            func.decorators = []
            func.docstring = _docstring(inspect.getdoc(of), func)
        elif func.docstring:
            func.docstring.value = readable(func.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show the parameters of a class that describes them and leaves making them to its bases."""
        if not cls.docstring:
            return
        if "Args:\n" in cls.docstring.value and "__init__" not in cls.members:
            of = getattr(import_module(cls.module.path), cls.name)
            init = griffe.Function("__init__", parameters=_parameters(of), lineno=cls.lineno, endlineno=cls.lineno)
            cls.set_member("__init__", init)
        if cls.module.path.startswith("faulttolerance._policy.") or cls.module.path.endswith(".policy"):
            for name in [name for name, member in cls.members.items() if name != "__init__" and member.is_function]:
                cls.del_member(name)  # it is for the checks of definitions, not for who writes one
        cls.docstring.value = readable(cls.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Show examples as code."""
        if attr.docstring:
            attr.docstring.value = readable(attr.docstring.value)

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Show examples as code."""
        if mod.docstring:
            mod.docstring.value = readable(mod.docstring.value)


def readable(docstring: str) -> str:
    """Put examples of a *docstring*, which `>>>` begins, into fences, as Markdown wants them."""
    return _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", docstring)


def _docstring(text: str | None, parent: griffe.Object) -> griffe.Docstring | None:
    return griffe.Docstring(readable(text), parent=parent) if text else None


def _parameters(of: Any) -> griffe.Parameters:
    return griffe.Parameters(
        *(
            griffe.Parameter(
                one.name,
                annotation=None if one.annotation is one.empty else _annotation(one.annotation),
                kind=griffe.ParameterKind(one.kind.description),
                default=None if one.default is one.empty else _default(one.default),
            )
            for one in inspect.signature(of).parameters.values()
        )
    )


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: Any) -> str:
    """The *value* as it would be written."""
    if isinstance(value, tuple) and all(isinstance(one, type) for one in value):
        return value[0].__name__ if len(value) == 1 else f"({', '.join(one.__name__ for one in value)})"
    return str(value) if hasattr(value, "name") else repr(value)
