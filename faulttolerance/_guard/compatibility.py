"""Whether a value of one type may stand where one of another is expected (contract R6).

What is not known fits everything, and everything fits it: ``Any``, unresolved names, type variables that nothing fills
in. A bare generic fits each of its parametrisations.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal, NewType, Union, is_typeddict

from .._signature.annotation import Type, ancestry, says_nothing

__all__ = ["fits", "same"]

_TOWER: dict[object, tuple[object, ...]] = {int: (float, complex), bool: (float, complex), float: (complex,)}
"""What type checkers take for one another though no class derives from the other."""
_ELEMENTS: dict[object, type] = {str: str, bytes: int, bytearray: int, range: int}
"""Of what sequences are that are not generic."""


def fits(one: Type, other: Type) -> bool:
    """Whether each value of the type *one* is one of the type *other*, as far as is known.

    A subclass fits its base, a member its union, a literal its class. Type arguments have to be the same.
    """
    if says_nothing(one) or says_nothing(other) or other.head is object:
        return True
    mine = _alternatives(one)
    if mine != (one,):
        return all(fits(member, other) for member in mine)
    if other.head is Union:
        return any(fits(one, member) for member in _alternatives(other))
    if isinstance(one.head, NewType):
        return one.head is other.head or any(fits(base, other) for base in one.args or ())
    if _is_literal(one):
        [(cls, _)] = one.head[1]
        return one.head[1] <= other.head[1] if _is_literal(other) else fits(Type(cls), other)
    return _head_fits(one, other)


def _head_fits(one: Type, other: Type) -> bool:
    if one.head == other.head:
        return _same_arguments(one.args, other.args)
    if not isinstance(one.head, type) or not isinstance(other.head, type):
        return False
    if other.head in _TOWER.get(one.head, ()):
        return True
    try:
        is_subclass = issubclass(one.head, other.head)
    except TypeError:  # structural types, which cannot be asked
        return getattr(other.head, "_is_protocol", False) or is_typeddict(other.head)
    return is_subclass and (other.args is None or _same_arguments(_arguments_as(one, other), other.args))


def _arguments_as(one: Type, other: Type) -> tuple[Type, ...] | None:
    """The type arguments of *one* seen as what *other* is of, as far as they are known."""
    if one.head in _ELEMENTS:
        return (Type(_ELEMENTS[one.head]),)
    found = ancestry(one).get(other.head)
    if found is not None or one.args is None or one.head.__module__ not in ("builtins", "collections.abc"):
        return found
    # The built-in containers say nowhere what they pass on to their abstract bases.
    if other.head is Awaitable:
        return one.args[-1:]
    if one.head is tuple:
        elements = tuple(dict.fromkeys(element for element in one.args if element.head is not Ellipsis))
        return elements if len(elements) == 1 else (Type(Union, elements),)
    return one.args[: len(other.args or ())]


def same(one: Type, other: Type) -> bool:
    """Whether two types are the same as far as is known."""
    if says_nothing(one) or says_nothing(other):
        return True
    if one.head is Union or other.head is Union:
        return _same_union(one, other)
    return one.head == other.head and _same_arguments(one.args, other.args)


def _same_arguments(mine: tuple[Type, ...] | None, yours: tuple[Type, ...] | None) -> bool:
    return mine is None or yours is None or (len(mine) == len(yours) and all(map(same, mine, yours)))


def _same_union(one: Type, other: Type) -> bool:
    mine, yours = _alternatives(one), _alternatives(other)
    if any(map(says_nothing, (*mine, *yours))):
        return True
    return all(any(same(a, b) for b in yours) for a in mine) and all(any(same(a, b) for a in mine) for b in yours)


def _alternatives(one: Type) -> tuple[Type, ...]:
    """The types and the single literals of which *one* is made up."""
    if _is_literal(one) and len(one.head[1]) > 1:
        return tuple(Type((Literal, frozenset([value]))) for value in one.head[1])
    return (one.args or ()) if one.head is Union else (one,)


def _is_literal(one: Type) -> bool:
    """Whether *one* is a ``Literal``: its head has the values, each with its class."""
    return isinstance(one.head, tuple) and one.head[0] is Literal
