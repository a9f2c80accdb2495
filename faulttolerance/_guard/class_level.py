"""What is declared on classes, and which of their methods it covers (rules L2, L7)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partialmethod, singledispatchmethod
from typing import Any, NamedTuple
from weakref import WeakSet

from .._policy import Policy
from ..exceptions import Fault, FaultToleranceDefinitionException
from .declaration import Declaration, declaration_of, unbound

CLASS_LEVEL = "_abc_faulttolerance"
"""The attribute of a class that holds what is declared on it; ``dataclass(slots=True)`` copies it with the rest.

Its prefix is one that ``typing`` does not take for a member of a protocol, as Python 3.11 does with other names."""

_METHODS = (staticmethod, classmethod, property, partialmethod, singledispatchmethod)
_exempt: WeakSet[Any] = WeakSet()


class ClassLevel(NamedTuple):
    """The declarations on one class: policies by kind, and interceptors, the uppermost first."""

    policies: Mapping[type[Policy], Policy]
    interceptors: tuple[Any, ...]


_NOTHING = ClassLevel({}, ())


def declared_on(cls: type) -> ClassLevel:
    """Give what is written on *cls* itself."""
    return vars(cls).get(CLASS_LEVEL, _NOTHING)  # type: ignore[no-any-return]


def covering(
    cls: type, name: str, function: object, owner: type
) -> tuple[dict[type[Policy], tuple[Policy, type]], tuple[Any, ...]]:
    """List the class-level policies and interceptors that hold for a method of *cls*, which *owner* defines.

    They hold for public methods that are not exempt, which the decorated class, a subclass of it, or another class of
    its package defines. Of each kind of policy the nearest holds; it comes with the class that declares it.
    """
    if name.startswith("_") or is_exempt(function):
        return {}, ()
    nearest: dict[type[Policy], tuple[Policy, type]] = {}
    for home in cls.__mro__:
        for kind, policy in declared_on(home).policies.items():
            nearest.setdefault(kind, (policy, home))
    policies = {kind: (policy, home) for kind, (policy, home) in nearest.items() if _reaches(home, owner)}
    reaching = [base for base in cls.__mro__ if _reaches(base, owner)]
    return policies, tuple(dict.fromkeys(each for base in reaching for each in declared_on(base).interceptors))


def covering_at_home(declaration: Declaration) -> dict[type[Policy], tuple[Policy, type]]:
    """List the class-level policies that hold for a method in the class that defines it."""
    owner = declaration.owner
    return covering(owner, declaration.name, declaration.template, owner)[0] if owner is not None else {}


def _reaches(home: type, owner: type) -> bool:
    return home in owner.__mro__ or _package(home) == _package(owner)


def _package(cls: type) -> str:
    return str(cls.__module__).partition(".")[0]


def first_definition(cls: type, name: str, *, after: object = None) -> tuple[type, Any] | None:
    """Find the class that defines *name* first in the method resolution order of *cls*, and what it defines.

    With *after*, the first one behind the class that defines exactly that object.
    """
    is_behind = after is None
    for base in cls.__mro__:
        if name in vars(base):
            value = vars(base)[name]
            if is_behind:
                return base, value
            is_behind = unbound(value) is after
    return None


def accessors(attribute: object) -> tuple[Any, ...]:
    """List the functions of a property."""
    if isinstance(attribute, property):
        return (attribute.fget, attribute.fset, attribute.fdel)
    return (attribute.func,) if isinstance(attribute, cached_property) else ()


def exempt(function: Any) -> None:
    """Take *function* out of what class-level decorators cover; behind a guard, what that guards."""
    if not callable(function) and not isinstance(function, _METHODS):
        raise FaultToleranceDefinitionException(Fault("@unguarded", "is on no method", function, "a method of a class"))
    try:
        _exempt.add(_exemptible(function))
    except TypeError:
        pass  # what cannot be referred to weakly is no function, and is never covered


def is_exempt(function: Any) -> bool:
    """Tell whether *function* was taken out of what class-level decorators cover."""
    try:
        return _exemptible(function) in _exempt
    except TypeError:
        return False


def _exemptible(function: Any) -> Any:
    declaration = declaration_of(function)
    return unbound(function) if declaration is None else declaration.template
