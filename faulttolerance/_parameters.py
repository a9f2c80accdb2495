"""Signatures of functions, whose annotations are read and need not have a value."""

from __future__ import annotations

import sys
import types
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

LAZY_IMPORT: Any = getattr(types, "LazyImportType", None)
"""The type of what stands in a namespace, from Python 3.15 on, for a name that is imported at its first use."""


def signature_of(function: Any, *, follow_wrapped: bool = True) -> Signature | None:
    """Return the signature of *function* with its annotations as written; ``None`` if it has no signature.

    They are values, or all of them are text if one has no value, or would be imported for it. A wrapper has the
    signature of the function below it, unless *follow_wrapped* is false.
    """
    import inspect

    with suppress(Exception):
        shown = inspect.unwrap(function, stop=lambda call: hasattr(call, "__signature__"))
        if not shown.__code__.co_flags & inspect.CO_OPTIMIZED:
            return None  # no function has such code: mypyc invents it, without the parameters
    with suppress(Exception):
        if LAZY_IMPORT is None or not _names_lazy_import(_unevaluated(function, follow_wrapped)):
            return inspect.signature(function, follow_wrapped=follow_wrapped)
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        with suppress(Exception):
            shown = _unevaluated(function, follow_wrapped)
            return inspect.signature(shown, follow_wrapped=follow_wrapped, annotation_format=Format.STRING)
    return None


def accepts_arguments(function: Any, count: int) -> bool:
    """Return whether *function* takes *count* positional arguments, as far as is known: a wrapper may provide some."""
    try:
        if (signature := signature_of(function, follow_wrapped=False)) is not None:
            signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _unevaluated(call: Any, follow_wrapped: bool) -> Any:
    """Return a copy of *call* for its signature, with annotations that see no names; *call* if it has none to see."""
    if type(call) is MethodType:
        return MethodType(_unevaluated(call.__func__, follow_wrapped), call.__self__)
    if type(call) is partial:
        return partial(_unevaluated(call.func, follow_wrapped), *call.args, **call.keywords)
    if hasattr(call, "__signature__"):
        return call
    if hasattr(call, "__wrapped__") and follow_wrapped:
        return _unevaluated(call.__wrapped__, follow_wrapped)
    annotate = getattr(call, "__annotate__", None)
    if type(call) is not FunctionType or type(annotate) is not FunctionType:
        return call
    copy: Any = FunctionType(call.__code__, call.__globals__, call.__name__, call.__defaults__, call.__closure__)
    copy.__kwdefaults__ = call.__kwdefaults__
    copy.__annotate__ = FunctionType(annotate.__code__, {"__builtins__": {}}, closure=annotate.__closure__)
    return copy


def _names_lazy_import(call: Any) -> bool:
    while type(call) is partial:
        call = call.func
    names = getattr(getattr(getattr(call, "__annotate__", None), "__code__", None), "co_names", ())
    return any(type(call.__globals__.get(name)) is LAZY_IMPORT for name in names)
