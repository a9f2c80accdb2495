"""What is declared: which policies a function or a class asks for, before any configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partialmethod, singledispatchmethod
from types import FrameType, FunctionType, MethodType
from typing import Any
from weakref import WeakSet, ref

from .._policy import Policy
from .._runtime.frames import module_of
from .._signature.kind import is_coroutine_function, own
from .._signature.naming import class_name, spelling_of
from ..exceptions import Fault, FaultToleranceDefinitionException

__all__ = [
    "CLASS_INTERCEPTORS",
    "CLASS_LEVEL",
    "Declaration",
    "Policies",
    "accessors",
    "binding_by_name",
    "class_level",
    "class_level_interceptors",
    "class_name",
    "covering",
    "declaration_of",
    "exempt",
    "exempted",
    "first_of_name",
    "unbound",
    "user_frames",
]

Policies = Mapping[type[Policy], Policy]

CLASS_LEVEL = "_abc_faulttolerance"
"""The attribute of a class that holds what is declared on it; ``dataclass(slots=True)`` copies it with the rest.

Its prefix is one that ``typing`` does not take for a member of a protocol, as Python 3.11 does with other names."""

CLASS_INTERCEPTORS = "_abc_faulttolerance_interceptors"
"""Likewise for the interceptors."""

_METHODS = (staticmethod, classmethod, property, partialmethod, singledispatchmethod)
_RESOLVER = "__faulttolerance_resolver__"
_exempt: WeakSet[Any] = WeakSet()

FUNCTION, INSTANCE, CLASS = "function", "instance", "class"
"""Whose state a call uses: the function's own (static methods too), that of ``type(self)``, that of ``cls``."""


class Declaration:
    """One guarded function: what runs, and the policies written on it.

    Args:
        function: What runs in the end. ``None`` for a method that a class-level decorator covers but a base class
            defines: what runs is then whatever follows in the method resolution order.
        policies: The method-level ones.
        binding: ``FUNCTION``, ``INSTANCE`` or ``CLASS``.
    """

    __slots__ = (
        "__weakref__",
        "_guard",
        "_policies",
        "binding",
        "fallback_fits",
        "function",
        "interceptors",
        "is_coroutine",
        "name",
        "owner",
        "template",
    )

    def __init__(
        self,
        function: Callable[..., Any] | None,
        policies: Policies,
        binding: str,
        *,
        interceptors: tuple[Any, ...] = (),
        template: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.template: Callable[..., Any] = function or template  # type: ignore[assignment]
        """The function whose signature and name the guard shows."""
        self._policies = tuple(policies.values())
        self.interceptors = interceptors
        """Those written on the function, the uppermost first."""
        self.binding = binding
        # Weak: a guard that another decorator superseded goes at once, not when garbage is collected.
        self._guard: ref[Any] | None = None
        self.owner: type | None = None
        """The class in whose namespace the guard was found when the class was created."""
        self.name: str = spelling_of(self.template).method.rpartition(".")[2]
        self.is_coroutine = is_coroutine_function(self.template)
        self.fallback_fits: bool | None = None
        """For which calls the handler of its own fallback fits, for good: asynchronous ones, others, or not known."""

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for what pickles functions by value, as cloudpickle does; it comes here from the guard."""
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in ("__weakref__", "_guard")}
        return {**kept, "guard": self.guard}

    def __setstate__(self, state: dict[str, Any]) -> None:
        guard = state.pop("guard")
        for name, value in state.items():
            setattr(self, name, value)
        self._guard = ref(guard) if guard is not None else None

    @property
    def policies(self) -> dict[type[Policy], Policy]:
        """Those that are written on the function, by kind."""
        return {type(one): one for one in self._policies}

    @property
    def where(self) -> str:
        """The guarded function's qualified name, as in messages."""
        if self.owner is not None:
            return f"{class_name(self.owner)}.{self.name}"
        return str(spelling_of(self.template))

    @property
    def guard(self) -> Any:
        """The function that stands where the guarded one stood."""
        return self._guard() if self._guard is not None else None

    @property
    def resolver(self) -> Any:
        """What finds the call path; the guard keeps it."""
        return getattr(self.guard, _RESOLVER, None)

    def mark(self, guard: Callable[..., Any], resolver: object) -> None:
        """Let *guard*, which keeps *resolver*, be known as the guard of this declaration."""
        self._guard = ref(guard)
        setattr(guard, _RESOLVER, resolver)


def declaration_of(candidate: object) -> Declaration | None:
    """The declaration behind a guard, or behind the static or class method that holds one.

    A guard knows itself by identity: ``functools.wraps`` copies attributes onto wrappers that are no guards.
    """
    candidate = unbound(candidate)
    resolver = getattr(candidate, _RESOLVER, None) if isinstance(candidate, FunctionType) else None
    found = getattr(resolver, "declaration", None)
    return found if isinstance(found, Declaration) and found.guard is candidate else None


def binding_by_name(function: Any) -> str:
    """Methods that are decorated outside a class body are known by their qualified name.

    What wraps a bound method has its name, too, and is called without the instance.
    """
    scope = own(function, "__qualname__", "").rpartition(".")[0]
    # No class is called <locals>, nor <genexpr> or <listcomp>, in which lambdas are made.
    is_class = bool(scope) and not scope.rpartition(".")[2].startswith("<")
    if not is_class or not isinstance(function, FunctionType):
        return FUNCTION
    wrapped = own(function, "__wrapped__")
    while isinstance(wrapped, FunctionType):
        wrapped = own(wrapped, "__wrapped__")
    return FUNCTION if isinstance(wrapped, MethodType) else INSTANCE


def unbound(candidate: object) -> Any:
    """The function in a static method, a class method or a bound method; else *candidate*."""
    return candidate.__func__ if isinstance(candidate, (staticmethod, classmethod, MethodType)) else candidate


def accessors(attribute: object) -> tuple[Any, ...]:
    """The functions of a property."""
    if isinstance(attribute, property):
        return (attribute.fget, attribute.fset, attribute.fdel)
    return (attribute.func,) if isinstance(attribute, cached_property) else ()


def class_level_interceptors(cls: type, name: str, function: object, owner: type) -> tuple[Any, ...]:
    """The interceptors written on *cls* and on its bases, as far as they hold for a method; see ``covering``."""
    if name.startswith("_") or exempted(function):
        return ()
    homes = [home for home in cls.__mro__ if _reaches(home, owner)]
    return tuple(dict.fromkeys(one for home in homes for one in vars(home).get(CLASS_INTERCEPTORS, ())))


def class_level(cls: type) -> dict[type[Policy], tuple[Policy, type]]:
    """The class-level policies that hold for *cls*: of each kind the nearest in the method resolution order."""
    found: dict[type[Policy], tuple[Policy, type]] = {}
    for base in cls.__mro__:
        for kind, policy in vars(base).get(CLASS_LEVEL, {}).items():
            found.setdefault(kind, (policy, base))
    return found


def covering(cls: type, name: str, function: object, owner: type) -> dict[type[Policy], tuple[Policy, type]]:
    """The class-level policies that hold for the method *name* of *cls*, which *owner* defines as *function*.

    Rules L2 and L7: public methods that are not exempt, which the decorated class, a subclass of it, or another
    class of its package defines.
    """
    if name.startswith("_") or exempted(function):
        return {}
    return {kind: found for kind, found in class_level(cls).items() if _reaches(found[1], owner)}


def _reaches(home: type, owner: type) -> bool:
    return home in owner.__mro__ or _package(home) == _package(owner)


def _package(cls: type) -> str:
    return str(cls.__module__).partition(".")[0]


def first_of_name(cls: type, name: str, *, after: object = None) -> tuple[type, Any] | None:
    """The class that defines *name* first in the method resolution order of *cls*, and what it defines.

    With *after*, the first one behind the class that defines exactly that object.
    """
    passed = after is None
    for base in cls.__mro__:
        if name in vars(base):
            value = vars(base)[name]
            if passed:
                return base, value
            passed = unbound(value) is after
    return None


def exempt(function: Any) -> None:
    """Take *function* out of what class-level decorators cover; behind a guard, what that guards."""
    if not callable(function) and not isinstance(function, _METHODS):
        raise FaultToleranceDefinitionException(Fault("@unguarded", "is on no method", function, "a method of a class"))
    declaration = declaration_of(function)
    try:
        _exempt.add(unbound(function) if declaration is None else declaration.template)
    except TypeError:
        pass  # what cannot be referred to weakly is no function, and is never covered


def exempted(function: Any) -> bool:
    """Whether *function* was taken out of what class-level decorators cover."""
    declaration = declaration_of(function)
    try:
        return (unbound(function) if declaration is None else declaration.template) in _exempt
    except TypeError:
        return False


def user_frames() -> Iterator[FrameType]:
    """The frames of the application that led here, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if module_of(frame).partition(".")[0] != "faulttolerance":
            yield frame
        frame = frame.f_back
