"""Functions that a decorator names by a string: methods of the same class, functions of the same module."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from .._parameters import LAZY_IMPORT
from .._shown import nearest, shown
from .kind import function_behind
from .method import BOUND_BY_NOTHING
from .naming import class_name

T = TypeVar("T")


class NamedFunction(NamedTuple):
    """A function that was found by its name.

    Args:
        function: The function itself, not bound.
        home: The class that defines it.
        takes_self: Whether its first parameter is the instance or the class.
        needs_instance: Whether it can only be called on an instance.
    """

    function: Callable[..., Any]
    home: type | None
    takes_self: bool
    needs_instance: bool


class LateLookup:
    """A function that is looked up by its name at each call, because objects may have different overrides.

    Args:
        name: The name in the decorator.
        function: The guarded function.
        owner: The class that declares the policy; ``None`` for a function of a module.
        takes_self: Whether the first argument of calls of *function* is its instance or class.
    """

    __slots__ = ("_attribute", "_function", "_home", "_takes_self", "name")

    def __init__(self, name: str, function: Callable[..., Any], owner: type | None, takes_self: bool) -> None:
        # The qualified name identifies a method that was guarded after the creation of its class.
        scope = getattr(function, "__qualname__", "").rpartition(".")[0].rpartition(".")[2]
        self.name = name
        self._attribute = mangle(name, owner or scope)
        self._function = function
        self._home = weak_reference_to(owner)
        self._takes_self = takes_self

    @property
    def owner(self) -> type | None:
        return self._home()

    def find(self, args: tuple[Any, ...]) -> Callable[..., Any] | None:
        """Return the function for a call with *args*: the override of the object's own class, if there is an object."""
        owner = self.owner
        if self._takes_self:
            function = getattr(args[0], self._attribute, None)
        elif owner is not None:
            function = getattr(owner, self._attribute, None)
        else:
            return getattr(find_in_module(self._attribute, self._function), "function", None)
        return function if callable(function) else None

    def unbound(self, method: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], bool]:
        """Return the function with the parameters of *method*, found for *args*, and whether it has one for its object.

        A descriptor may bind *method* by an object that shows the parameters of the function that it wraps.
        """
        named = find_in_class(self._attribute, type(args[0])) if self._takes_self else None
        if named is None or self._attribute in getattr(args[0], "__dict__", ()):
            return method, False
        return named.function, named.takes_self

    def missing(self) -> str:
        """Return the message that there is no such function."""
        return missing(self.name, self._function, self.owner)


def mangle(name: str, owner: type | str | None) -> str:
    """Return *name* as Python spells it in the body of *owner*: ``__name`` is private to its class."""
    if owner is None or not name.startswith("__") or name.endswith("__"):
        return name
    stripped = (owner if isinstance(owner, str) else owner.__name__).lstrip("_")
    return f"_{stripped}{name}" if stripped else name


def find_in_class(name: str, owner: type) -> NamedFunction | None:
    """Return the method *name* of *owner* or its bases, not of subclasses; ``None`` if there is none."""
    name = mangle(name, owner)
    for base in owner.__mro__:
        if name in vars(base):
            return _in_class(vars(base)[name], name, base, owner)
    return None


def _in_class(value: Any, name: str, base: type, owner: type) -> NamedFunction | None:
    if isinstance(value, (staticmethod, classmethod)):
        return NamedFunction(value.__func__, base, isinstance(value, classmethod), False)
    is_bound = hasattr(type(value), "__get__") and not isinstance(value, BOUND_BY_NOTHING)
    if not callable(value):
        # Properties are not methods; an object whose look-up returns a method (partialmethod) is.
        value = getattr(owner, name, None) if is_bound else None
    return NamedFunction(value, base, is_bound, is_bound) if callable(value) else None


def find_in_module(name: str, function: Callable[..., Any]) -> NamedFunction | None:
    """Return the function *name* of the module that defines *function*, or ``None``."""
    behind = function_behind(function)
    names = getattr(behind, "__globals__", None)
    if names is None:
        names = vars(sys.modules.get(getattr(behind, "__module__", None) or "", object))
    value: Any = names.get(name)
    if type(value) is LAZY_IMPORT:
        value = value.resolve()
    return NamedFunction(value, None, False, False) if callable(value) else None


def defining_class_of(function: Callable[..., Any], owner: type) -> type:
    """Return the class among *owner* and its bases in whose body *function* was written; by default *owner*."""
    behind = function_behind(function)
    written_in = (getattr(behind, "__qualname__", "").rpartition(".")[0], getattr(behind, "__module__", None))
    return next((base for base in owner.__mro__ if (base.__qualname__, base.__module__) == written_in), owner)


def missing(name: str, function: Callable[..., Any], owner: type | None) -> str:
    """Return the message that neither *owner* nor the module of *function* has the function *name*; with a hint."""
    behind = function_behind(function)
    place = class_name(owner) if owner is not None else getattr(behind, "__module__", None) or "the module"
    names = dir(owner) if owner is not None else getattr(behind, "__globals__", ())
    near = nearest(name, (known for known in names if known != name and not known.startswith("__")))
    hint = f" (did you mean {near!r}?)" if near else ""
    return f"names {shown(name)}, which {place} does not define{hint}"


def weak_reference_to(target: T | None) -> Callable[[], T | None]:
    """Return a weak reference to *target*: a guard outlives the classes that inherit it, and must not keep them."""
    try:
        return ref(target) if target is not None else lambda: None
    except TypeError:  # no weak reference is possible: the caller computes the target again each time
        return lambda: None
