"""Whether values of one type may stand where another is expected.

What is not known fits everything, and everything fits it: ``Any``, unresolved names, type variables that nothing fills
in. A bare generic fits each of its parametrisations.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal, NewType, Union, is_typeddict

from .annotation import Type, ancestry, is_gradual

_PROMOTIONS: dict[object, tuple[object, ...]] = {int: (float, complex), bool: (float, complex), float: (complex,)}
"""What type checkers take for one another though no class derives from the other."""
_ELEMENTS: dict[object, type] = {str: str, bytes: int, bytearray: int, range: int}
"""The types of the elements of sequences that are not generic."""


def is_assignable(type_: Type, target: Type) -> bool:
    """Tell whether each value of *type_* is one of *target*, as far as is known.

    A subclass fits its base, a member its union, a literal its class. Type arguments have to be the same.
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
    except TypeError:  # structural types, which cannot be asked
        return getattr(target.head, "_is_protocol", False) or is_typeddict(target.head)
    return is_subclass and (target.args is None or _are_equivalent(_arguments_as(type_, target), target.args))


def _arguments_as(type_: Type, base: Type) -> tuple[Type, ...] | None:
    """Give the type arguments of *type_* seen as *base*, as far as they are known."""
    if type_.head in _ELEMENTS:
        return (Type(_ELEMENTS[type_.head]),)
    args = ancestry(type_).get(base.head)
    if args is not None or type_.args is None or type_.head.__module__ not in ("builtins", "collections.abc"):
        return args
    # The built-in containers say nowhere what they pass on to their abstract bases.
    if base.head is Awaitable:
        return type_.args[-1:]
    if type_.head is tuple:
        elements = tuple(dict.fromkeys(element for element in type_.args if element.head is not Ellipsis))
        return elements if len(elements) == 1 else (Type(Union, elements),)
    return type_.args[: len(base.args or ())]


def is_equivalent(a: Type, b: Type) -> bool:
    """Tell whether two types are the same, as far as is known."""
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
    """List the types and the single literals of which *type_* is made up."""
    if _is_literal(type_) and len(type_.head[1]) > 1:
        return tuple(Type((Literal, frozenset([value]))) for value in type_.head[1])
    return (type_.args or ()) if type_.head is Union else (type_,)


def _is_literal(type_: Type) -> bool:
    """Tell whether *type_* is a ``Literal``: its head has the values, each with its class."""
    return isinstance(type_.head, tuple) and type_.head[0] is Literal
