"""The names of functions and classes in metrics, configuration keys and messages."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from functools import WRAPPER_ASSIGNMENTS, partial, update_wrapper
from typing import Any, NamedTuple

from .._shown import PROMPTS
from .kind import own_attribute

_ABSENT = object()
_CACHED = ("cache_clear", "cache_info")
"""The attributes that ``functools.lru_cache`` adds to a function."""


def class_name(cls: type) -> str:
    """Return the name of a class for messages, metrics and keys; in a program run with ``-m``, with its real module."""
    return f"{module_name(cls.__module__)}.{cls.__qualname__}".lstrip(".")


def module_name(name: object) -> str:
    """Return *name*, or the import name of ``__main__``; empty if it is not a string, as under ``exec``."""
    if not isinstance(name, str):
        return ""
    if name == "__main__":
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        if spec is not None and spec.name and spec.name not in PROMPTS:
            return str(spec.name).removesuffix(".__main__")
    return name


class QualifiedName(NamedTuple):
    """The name of a function that no class body guards: ``<class>`` and ``<method>`` of its keys."""

    owner: str
    """Module, dot and ``__qualname__`` of the class; only the module if there is no class."""
    method: str
    """The method's name; the ``__qualname__`` of a plain function."""

    def __str__(self) -> str:
        return f"{self.owner}.{self.method}".lstrip(".")


def qualified_name_of(call: Any) -> QualifiedName:
    """Return the name of *call*; a bound method takes the class of its object, a partial object its callee."""
    named = _named_by(call)
    owner, name = _owner(named), own_attribute(named, "__name__", "")
    if owner is not None:
        return QualifiedName(class_name(owner), name)
    return QualifiedName(module_name(own_attribute(named, "__module__")), own_attribute(named, "__qualname__", name))


def copy_names(wrapper: Any, call: Any) -> Any:
    """Copy the names and the documentation of *call* to *wrapper*, and return it."""
    present = [name for name in WRAPPER_ASSIGNMENTS if own_attribute(call, name, _ABSENT) is not _ABSENT]
    update_wrapper(wrapper, call, present)
    if type(call) is not types.FunctionType:
        for name in _CACHED:
            if (value := own_attribute(call, name)) is not None:
                setattr(wrapper, name, value)
    named = _named_by(call)
    if named is not call or "__module__" not in present:
        wrapper.__name__ = own_attribute(named, "__name__", "")
        wrapper.__qualname__ = own_attribute(named, "__qualname__", wrapper.__name__)
        wrapper.__module__ = own_attribute(named, "__module__") or own_attribute(_owner(named), "__module__") or ""
    return wrapper


def _named_by(call: Any) -> Any:
    """Return the object that names *call*: itself, the final callee of a partial object, or the class of an object."""
    if type(call) is types.FunctionType:
        return call
    while isinstance(call, partial) and not _has_name(call):
        call = call.func
    if isinstance(call, types.MethodType) and not _has_name(call):
        return types.MethodType(_named_by(call.__func__), call.__self__)
    return call if _has_name(call) else type(call)


def _has_name(call: Any) -> bool:
    return isinstance(own_attribute(call, "__name__"), str)


_BOUND = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _owner(call: Callable[..., Any]) -> type | None:
    """Return the class of the object to which a method is bound, or the class that defines a method written in C."""
    if isinstance(call, _UNBOUND):
        return call.__objclass__
    target = call.__self__ if isinstance(call, _BOUND) else None
    if target is None or isinstance(target, types.ModuleType):
        return None
    return target if isinstance(target, type) else type(target)
