"""Functions that a decorator names by a string: methods of the same class, functions of the same module."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from .._shown import shown
from .kind import function_behind
from .naming import class_name

__all__ = [
    "NamedFunction",
    "attribute_of",
    "found_in_class",
    "found_in_module",
    "home_of",
    "mangled",
    "missing",
    "named",
    "weakly",
]

T = TypeVar("T")


class NamedFunction(NamedTuple):
    """A function that was found by its name.

    Args:
        function: The function itself, not bound.
        home: The class that defines it.
        takes_itself: Whether its first parameter is the instance or the class.
        needs_instance: Whether it can only be called on an instance.
    """

    function: Callable[..., Any]
    home: type | None
    takes_itself: bool
    needs_instance: bool


def mangled(name: str, owner: type | str | None) -> str:
    """*name* as Python spells it in the body of *owner*: ``__name`` is private to its class."""
    if owner is None or not name.startswith("__") or name.endswith("__"):
        return name
    stripped = (owner if isinstance(owner, str) else owner.__name__).lstrip("_")
    return f"_{stripped}{name}" if stripped else name


def found_in_class(name: str, owner: type) -> NamedFunction | None:
    """The method *name* of *owner* or its bases, not of subclasses; ``None`` where there is none of this name."""
    name = mangled(name, owner)
    for base in owner.__mro__:
        if name in vars(base):
            return _in_class(vars(base)[name], name, base, owner)
    return None


def _in_class(value: Any, name: str, base: type, owner: type) -> NamedFunction | None:
    if isinstance(value, (staticmethod, classmethod)):
        return NamedFunction(value.__func__, base, isinstance(value, classmethod), False)
    is_bound = hasattr(type(value), "__get__") and not isinstance(value, type)
    if not callable(value):
        # Properties are no methods; what becomes one when it is looked up (partialmethod) is.
        value = getattr(owner, name, None) if is_bound else None
    return NamedFunction(value, base, is_bound, is_bound) if callable(value) else None


def found_in_module(name: str, function: Callable[..., Any]) -> NamedFunction | None:
    """The function *name* of the module that defines *function*."""
    behind = function_behind(function)
    names = getattr(behind, "__globals__", None)
    if names is None:
        names = vars(sys.modules.get(getattr(behind, "__module__", None) or "", object))
    found = names.get(name)
    return NamedFunction(found, None, False, False) if callable(found) else None


def home_of(function: Callable[..., Any], owner: type) -> type:
    """The class in the method resolution order of *owner* in whose body *function* was written; *owner* if none was."""
    behind = function_behind(function)
    scope = getattr(behind, "__qualname__", "").rpartition(".")[0]
    module = getattr(behind, "__module__", None)
    return next((one for one in owner.__mro__ if (one.__qualname__, one.__module__) == (scope, module)), owner)


def attribute_of(name: str, function: Callable[..., Any], owner: type | None) -> str:
    """*name* as it is spelled where it is looked up; a method that was guarded late is known by its qualified name."""
    scope = getattr(function, "__qualname__", "").rpartition(".")[0].rpartition(".")[2]
    return mangled(name, owner or scope)


def named(
    attribute: str, function: Callable[..., Any], takes_itself: bool, owner: type | None, args: tuple[Any, ...]
) -> Callable[..., Any] | None:
    """The function that *attribute* names for a call of *function* with *args*.

    Where the call *takes_itself*, its instance or class, that is the override of the object's own class.
    """
    if takes_itself:
        found = getattr(args[0], attribute, None)
    elif owner is not None:
        found = getattr(owner, attribute, None)
    else:
        in_module = found_in_module(attribute, function)
        found = in_module.function if in_module is not None else None
    return found if callable(found) else None


def missing(name: str, function: Callable[..., Any], owner: type | None) -> str:
    """Say that there is no such function, as a fault does; with the name that was probably meant."""
    import difflib

    behind = function_behind(function)
    place = class_name(owner) if owner is not None else getattr(behind, "__module__", None) or "the module"
    names = dir(owner) if owner is not None else getattr(behind, "__globals__", ())
    close = difflib.get_close_matches(name, [one for one in names if not one.startswith("__")], 1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"names {shown(name)}, which {place} does not define{hint}"


def weakly(thing: T | None) -> Callable[[], T | None]:
    """Gives *thing* while it lives: a guard outlives the classes that inherit it, and must not keep them."""
    try:
        return ref(thing) if thing is not None else lambda: None
    except TypeError:  # of no use for keeping, and so found anew each time
        return lambda: None
