"""The names of functions and classes in metrics, configuration keys and messages."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from functools import WRAPPER_ASSIGNMENTS, partial, update_wrapper
from typing import Any, NamedTuple

from .kind import function_behind, own_attribute

_ABSENT = object()
_MAIN = ("__main__", "__mp_main__")
"""The program that is run, and the same in a worker that multiprocessing has spawned."""
_PROMPTS = ("_pyrepl.__main__", "asyncio.__main__")
"""The prompts of Python 3.13 and of asyncio: they run as by ``python -m``, but the code typed there is not theirs."""
_METHODS = (types.FunctionType, staticmethod, classmethod)
_CACHED = ("cache_clear", "cache_info")
"""The attributes that ``functools.lru_cache`` adds to a function."""


def class_name(cls: type) -> str:
    """Return the name of a class for messages, metrics and keys; in a program run with ``-m``, with its real module."""
    return f"{_module_name(cls, getattr(cls, '__module__', None))}.{cls.__qualname__}".lstrip(".")


def _module_name(named: Any, name: Any) -> str:
    """Return the name of the module of a function or class; its own attribute says *name*."""
    return import_name(name, _namespace(named, name) if name in _MAIN else {})


def import_name(name: object, namespace: Mapping[str, Any]) -> str:
    """Return *name*, of a program the name in the spec of its *namespace*; empty if it is no text, as in ``exec``."""
    if name not in _MAIN:
        return name if isinstance(name, str) else ""
    imported: str = getattr(namespace.get("__spec__"), "name", None) or "__main__"
    return "__main__" if imported in _PROMPTS else imported.removesuffix(".__main__")


def _namespace(named: Any, module: str) -> Mapping[str, Any]:
    """Return the globals of a function or class in *module*: a profiler's ``__main__`` is not that of its program."""
    namespace: Mapping[str, Any] = getattr(sys.modules.get(module), "__dict__", {})
    if namespace.get(named.__name__) is named:
        return namespace
    bases = named.__mro__ if isinstance(named, type) else ()
    methods = [value for base in bases for value in list(vars(base).values()) if type(value) in _METHODS]
    for function in map(function_behind, methods or [named]):
        if isinstance(function, types.FunctionType) and function.__globals__.get("__name__") == module:
            return function.__globals__
    return namespace


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
    module = _module_name(named, own_attribute(named, "__module__"))
    return QualifiedName(module, own_attribute(named, "__qualname__", name))


def copy_names(wrapper: Any, call: Any) -> Any:
    """Copy the names and the documentation of *call* to *wrapper*, and return it."""
    present = [name for name in WRAPPER_ASSIGNMENTS if own_attribute(call, name, _ABSENT) is not _ABSENT]
    update_wrapper(wrapper, call, present)
    if type(call) is types.FunctionType:
        if getattr(call, "__annotate__", call) is None and call.__annotations__:
            wrapper.__annotations__ = call.__annotations__  # assigned ones; ``__annotate__`` gives others
    else:
        for name in _CACHED:
            if (value := own_attribute(call, name)) is not None:
                setattr(wrapper, name, value)
    named = _named_by(call)
    if named is not call or "__module__" not in present or "__qualname__" not in present:
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
