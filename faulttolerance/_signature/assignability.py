"""The check whether values of one type may replace values of another type.

An unknown type fits every type, and every type fits it: ``Any``, an unresolved name, a type variable without a value. A
bare generic fits each of its parametrisations.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal, NewType, Union, is_typeddict

from .annotation import Type, ancestry, is_gradual

_PROMOTIONS: dict[object, tuple[object, ...]] = {int: (float, complex), bool: (float, complex), float: (complex,)}
"""The classes that type checkers accept for a class although they do not derive from it."""
_ELEMENTS: dict[object, type] = {str: str, bytes: int, bytearray: int, range: int}
"""The types of the elements of sequences that are not generic."""


def is_assignable(type_: Type, target: Type) -> bool:
    """Return whether each value of *type_* is a value of *target*, as far as is known.

    A subclass fits its base, a member its union, a literal its class. Type arguments must be equal.
    """
    if is_gradual(type_) or is_gradual(target) or target.head is object:
        return True
    alternatives = _alternatives(type_)
    if alternatives != (type_,):
        return all(is_assignable(alternative, target) for alternative in alternatives)
    if target.head is Union:
        return any(is_assignable(type_, alternative) for alternative in _alternatives(target))
    if isinstance(type_.head, NewType):
        return type_.head is target.head or any(is_assignable(base, target) for base in type_.args or ())
    if _is_literal(type_):
        [(cls, _)] = type_.head[1]
        return type_.head[1] <= target.head[1] if _is_literal(target) else is_assignable(Type(cls), target)
    return _is_head_assignable(type_, target)


def _is_head_assignable(type_: Type, target: Type) -> bool:
    if type_.head == target.head:
        return _are_equivalent(type_.args, target.args)
    if not isinstance(type_.head, type) or not isinstance(target.head, type):
        return False
    if target.head in _PROMOTIONS.get(type_.head, ()):
        return True
    try:
        is_subclass = issubclass(type_.head, target.head)
    except TypeError:  # structural types, which ``issubclass`` rejects
        return getattr(target.head, "_is_protocol", False) or is_typeddict(target.head)
    return is_subclass and (target.args is None or _are_equivalent(_arguments_as(type_, target), target.args))


def _arguments_as(type_: Type, base: Type) -> tuple[Type, ...] | None:
    """Return the type arguments of *type_* seen as *base*, as far as they are known."""
    if type_.head in _ELEMENTS:
        return (Type(_ELEMENTS[type_.head]),)
    args = ancestry(type_).get(base.head)
    if args is not None or type_.args is None or type_.head.__module__ not in ("builtins", "collections.abc"):
        return args
    # The built-in containers do not record the arguments of their abstract bases.
    if base.head is Awaitable:
        return type_.args[-1:]
    if type_.head is tuple:
        elements = tuple(dict.fromkeys(element for element in type_.args if element.head is not Ellipsis))
        return elements if len(elements) == 1 else (Type(Union, elements),)
    return type_.args[: len(base.args or ())]


def is_equivalent(a: Type, b: Type) -> bool:
    """Return whether two types are equal, as far as is known."""
    if is_gradual(a) or is_gradual(b):
        return True
    if a.head is not Union and b.head is not Union:
        return a.head == b.head and _are_equivalent(a.args, b.args)
    of_a, of_b = _alternatives(a), _alternatives(b)
    if any(map(is_gradual, (*of_a, *of_b))):
        return True
    return all(any(is_equivalent(x, y) for y in of_b) for x in of_a) and all(
        any(is_equivalent(x, y) for x in of_a) for y in of_b
    )


def _are_equivalent(a: tuple[Type, ...] | None, b: tuple[Type, ...] | None) -> bool:
    return a is None or b is None or (len(a) == len(b) and all(map(is_equivalent, a, b)))


def _alternatives(type_: Type) -> tuple[Type, ...]:
    """Return the types and the single literals that form *type_*."""
    if _is_literal(type_) and len(type_.head[1]) > 1:
        return tuple(Type((Literal, frozenset([value]))) for value in type_.head[1])
    return (type_.args or ()) if type_.head is Union else (type_,)


def _is_literal(type_: Type) -> bool:
    """Return whether *type_* is a ``Literal``: its head holds the values, each with its class."""
    return isinstance(type_.head, tuple) and type_.head[0] is Literal
