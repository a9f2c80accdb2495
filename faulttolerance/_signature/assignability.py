"""The check whether values of one type may replace values of another type.

An unknown type fits every type, and every type fits it: ``Any``, an unresolved name, a type variable without a value. A
bare generic fits each of its parametrisations.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Union

from .annotation import Type, ancestry, is_gradual, union_of

_PROMOTIONS: dict[object, tuple[object, ...]] = {int: (float, complex), bool: (float, complex), float: (complex,)}
"""The classes that type checkers accept for a class although they do not derive from it."""
_ELEMENTS: dict[object, type] = {str: str, bytes: int, bytearray: int, range: int}
"""The types of the elements of sequences that are not generic."""


def is_assignable(type_: Type, target: Type) -> bool:
    """Return whether each value of *type_* is a value of *target*, as far as is known.

    A subclass fits its base, and a member its union. Type arguments must be equal.
    """
    if is_gradual(type_) or is_gradual(target) or target.head is object:
        return True
    if type_.head is Union:
        return all(is_assignable(member, target) for member in type_.args or ())
    if target.head is Union:
        return any(is_assignable(type_, member) for member in target.args or ())
    if type_.head == target.head:
        return _are_equivalent(type_.args, target.args)
    if not isinstance(type_.head, type) or not isinstance(target.head, type):
        return False
    if target.head in _PROMOTIONS.get(type_.head, ()):
        return True
    try:
        is_subclass = issubclass(type_.head, target.head)
    except Exception:  # noqa: BLE001  # structural types, and what metaclasses of the application refuse
        return True
    return is_subclass and _are_equivalent(_arguments_as(type_, target), target.args)


def _arguments_as(type_: Type, base: Type) -> tuple[Type, ...] | None:
    """Return the type arguments of *type_* seen as *base*, as far as they are known."""
    if type_.head in _ELEMENTS:
        return (Type(_ELEMENTS[type_.head]),)
    args = ancestry(type_).get(base.head)
    if args is not None or type_.args is None or type_.head.__module__ not in ("builtins", "collections.abc"):
        return args
    # The built-in containers do not record the arguments of their abstract bases.
    if type_.head is tuple:
        return (union_of(element for element in type_.args if element.head is not Ellipsis),)
    return type_.args[-1:] if base.head is Awaitable else type_.args[: len(base.args or ())]


def is_equivalent(a: Type, b: Type) -> bool:
    """Return whether two types are equal, as far as is known."""
    return is_assignable(a, b) and is_assignable(b, a)


def _are_equivalent(a: tuple[Type, ...] | None, b: tuple[Type, ...] | None) -> bool:
    return a is None or b is None or (len(a) == len(b) and all(map(is_equivalent, a, b)))
