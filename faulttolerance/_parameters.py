"""Signatures of functions, whose annotations are read and need not have a value."""

from __future__ import annotations

import sys
import types
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

LAZY_IMPORT: Any = getattr(types, "LazyImportType", None)
"""The type of what stands in a namespace, from Python 3.15 on, for a name that is imported at its first use."""


def signature_of(function: Any) -> Signature | None:
    """Return the signature of *function* with its annotations as written; ``None`` if it has no signature."""
    import inspect

    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(_without_imports(function), annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except Exception:  # noqa: BLE001  # annotations are code of the application
        return None


def _without_imports(call: Any) -> Any:
    """Return *call*, or a copy whose annotations see no names, where names that are imported lazily are among them."""
    if LAZY_IMPORT is None:
        return call
    if type(call) is MethodType:
        return MethodType(_without_imports(call.__func__), call.__self__)
    if hasattr(call, "__wrapped__") and not hasattr(call, "__signature__"):
        return _without_imports(call.__wrapped__)
    annotate = getattr(call, "__annotate__", None)
    if type(call) is not FunctionType or type(annotate) is not FunctionType:
        return call
    if not any(type(call.__globals__.get(name)) is LAZY_IMPORT for name in annotate.__code__.co_names):
        return call
    copy: Any = FunctionType(call.__code__, call.__globals__, call.__name__, call.__defaults__, call.__closure__)
    copy.__dict__.update(call.__dict__)
    copy.__kwdefaults__ = call.__kwdefaults__
    copy.__annotate__ = FunctionType(annotate.__code__, {"__builtins__": {}}, closure=annotate.__closure__)
    return copy
