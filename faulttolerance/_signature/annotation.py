"""Annotations: their types, type arguments and type variables.

An annotation is read, and never causes an import. A name that exists only for type checkers or inside a function, or
that is not defined yet, is kept as an unresolved name: its text may still decide, and it matches every type.
"""

from __future__ import annotations

import builtins
import inspect
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

from .._parameters import LAZY_IMPORT
from .kind import function_behind


class Type(NamedTuple):
    """A resolved annotation: without strings, aliases and ``Annotated``, and with values for type variables.

    *head* is a class, ``Union``, or another object, which is unknown: a type variable without a value, an unresolved
    name, a special form such as ``NoReturn``, any other value. *args* are the type arguments, ``None`` for a bare
    generic, a ``Callable`` or a plain class. A ``NewType`` is its base, and a ``Literal`` the classes of its values, as
    at run time.
    """

    head: Any
    args: tuple[Type, ...] | None = None


ANYTHING = Type(...)

# Reading


class UnresolvedName:
    """A name without a meaning at run time; every operation of an annotation on it yields an annotation."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> UnresolvedName:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return UnresolvedName(f"{self.name}.{attribute}")

    def __getitem__(self, args: Any) -> UnresolvedName:
        return self

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007  # made of objects that are no types

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __call__(self) -> None:
        """Do nothing; being callable makes it a type for ``typing``, which requires callables as type arguments."""

    def ends_in(self, *names: str) -> bool:
        return self.name.rpartition(".")[2] in names


class _Names(ChainMap[str, Any]):
    """The names that the text of an annotation can use; those that are imported lazily are known by name only."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return UnresolvedName(str(value).split("'")[1]) if type(value) is LAZY_IMPORT else value

    def __missing__(self, name: str) -> Any:
        return UnresolvedName(name)


class Scope(NamedTuple):
    """The place where annotations were written: the names that they can use, and the values of type variables.

    Args:
        namespaces: The namespaces, from the innermost outwards.
        variables: The types of type variables, as far as they are known.
        owner: The class that ``Self`` means.
        expanding: The texts and aliases that are being expanded; a reference to itself is not expanded again.
    """

    namespaces: Sequence[Mapping[str, Any]]
    variables: Mapping[Any, Type]
    owner: type | None
    expanding: frozenset[object] = frozenset()

    @classmethod
    def of(cls, function: Callable[..., Any], owner: type | None = None, defined_in: type | None = None) -> Scope:
        """Return the scope of *function*, defined in class *defined_in*, as seen from its subclass *owner*."""
        behind = function_behind(function)
        namespaces: list[Mapping[str, Any]] = [getattr(behind, "__globals__", {}), vars(builtins)]
        variables: Mapping[Any, Type] = {}
        home = defined_in or owner
        if owner is not None and home is not None and home is not owner:
            variables = _type_arguments(home, ancestry(Type(owner)).get(home))
        if home is not None:
            # A class is not bound to its name while it is being created.
            namespaces += [{home.__name__: home}, vars(home)]
        return cls(namespaces, variables, owner or home)

    def within(self, expanded: object, variables: Mapping[Any, Type] | None = None) -> Scope:
        """Return a copy of the scope for the inside of *expanded*, with the type variables *variables*."""
        variables = {**self.variables, **(variables or {})}
        return self._replace(variables=variables, expanding=self.expanding | {expanded})

    def evaluate(self, text: str) -> Any:
        """Return the value of the text of an annotation; an unresolved name if the evaluation fails."""
        try:
            return eval(text.strip(), {"__builtins__": builtins}, _Names(*self.namespaces))  # type: ignore[arg-type]  # only read
        except Exception:  # noqa: BLE001  # the text and its failures are the application's
            return UnresolvedName(text.partition("[")[0].strip(" '\""))


def _type_arguments(cls: type, args: tuple[Type, ...] | None) -> dict[Any, Type]:
    """Return *args* by type parameter of *cls*, as far as it has those that ``typing`` records."""
    own = vars(cls).get("__parameters__")
    return dict(zip(own, args, strict=False)) if args is not None and isinstance(own, tuple) else {}


def display(annotation: Any) -> str:
    """Return an annotation as program text."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


# Resolving


def resolve(annotation: Any, scope: Scope) -> Type:
    """Return the type that *annotation* means in *scope*."""
    if annotation is inspect.Signature.empty or annotation is Any:
        return ANYTHING
    if isinstance(annotation, (str, typing.ForwardRef)):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        return ANYTHING if text in scope.expanding else resolve(scope.evaluate(text), scope.within(text))
    if annotation is None:
        return Type(types.NoneType)
    if isinstance(annotation, UnresolvedName):
        return Type(annotation)
    if isinstance(annotation, TypeVar):
        return scope.variables.get(annotation) or Type(annotation)
    if annotation is typing.Self:
        return ANYTHING if scope.owner is None else Type(scope.owner)
    if isinstance(annotation, NewType):
        return resolve(annotation.__supertype__, scope)
    return _resolve_generic(annotation, scope)


def _resolve_all(annotations: Iterable[Any], scope: Scope) -> tuple[Type, ...]:
    return tuple(resolve(annotation, scope) for annotation in annotations)


def _resolve_generic(annotation: Any, scope: Scope) -> Type:
    origin, args = get_origin(annotation), get_args(annotation)
    head = annotation if origin is None else origin
    if type(head).__name__ == "TypeAliasType":  # of a ``type`` statement, or of its backport to older versions
        return _resolve_alias(head, args, scope)
    if origin is typing.Annotated:
        return resolve(args[0], scope)
    if origin is Union or origin is types.UnionType:
        return union_of(_resolve_all(args, scope))
    if origin is Literal:
        return union_of(Type(type(value)) for value in args)
    if origin is Callable:
        return Type(head)
    return Type(head, _resolve_all(args, scope) or None)


def _resolve_alias(alias: Any, args: tuple[Any, ...], scope: Scope) -> Type:
    if alias in scope.expanding:
        return Type(alias)
    variables = dict(zip(alias.__type_params__, _resolve_all(args, scope), strict=False))
    try:
        value = alias.__value__
    except Exception:  # noqa: BLE001  # evaluated here, from names of the application
        return Type(UnresolvedName(alias.__name__))
    return resolve(value, scope.within(alias, variables))


def ancestry(generic: Type) -> dict[type, tuple[Type, ...] | None]:
    """Return the class *generic* and its bases, nearest first, with their type arguments as far as they are known."""
    arguments: dict[type, tuple[Type, ...] | None] = {}

    def walk(cls: type, args: tuple[Type, ...] | None) -> None:
        if arguments.get(cls) is not None or (cls in arguments and args is None):
            return
        arguments[cls] = args
        scope = Scope((), _type_arguments(cls, args), cls)
        for base in vars(cls).get("__orig_bases__", cls.__bases__):
            origin = get_origin(base) or base
            if isinstance(origin, type) and origin not in (typing.Generic, typing.Protocol, object):
                walk(origin, _resolve_all(get_args(base), scope) or None)

    if isinstance(generic.head, type):
        walk(generic.head, generic.args)
    return arguments


# Testing


def union_of(types_: Iterable[Type]) -> Type:
    """Return the union of *types_*."""
    distinct = tuple(dict.fromkeys(member for type_ in types_ for member in members(type_)))
    return distinct[0] if len(distinct) == 1 else Type(Union, distinct)


def is_gradual(type_: Type) -> bool:
    """Return whether *type_*, or a member of it, is unknown, and so matches every type."""
    return any(not isinstance(member.head, type) for member in members(type_))


def is_resolved(type_: Type) -> bool:
    """Return whether *type_* contains no unresolved name."""
    return not isinstance(type_.head, UnresolvedName) and all(map(is_resolved, type_.args or ()))


def members(type_: Type) -> tuple[Type, ...]:
    """Return the members of a union; of another type the type itself."""
    return (type_.args or ()) if type_.head is Union else (type_,)


def accepts(type_: Type, value: object) -> bool:
    """Return whether *value* is an instance of *type_*; an unresolved name is compared with its classes' names."""
    head = type_.head
    if head is Union:
        return any(accepts(member, value) for member in type_.args or ())
    if isinstance(head, UnresolvedName):
        return head.ends_in(*(cls.__name__ for cls in type(value).__mro__))
    return is_gradual(type_) or isinstance(value, head)


# Comparing


_PROMOTIONS: dict[object, tuple[object, ...]] = {int: (float, complex), bool: (float, complex), float: (complex,)}
"""The classes that type checkers accept for a class although they do not derive from it."""


def is_assignable(type_: Type, target: Type) -> bool:
    """Return whether each value of *type_* is a value of *target*, as far as is known.

    A subclass fits its base, and a member its union. Type arguments must be equal. An unknown type fits every type, and
    every type fits it: ``Any``, an unresolved name, a type variable without a value. A bare generic fits each of its
    parametrisations, and so does a built-in container, which does not record the arguments of its abstract bases.
    """
    if is_gradual(type_) or is_gradual(target) or target.head is object:
        return True
    if type_.head is Union:
        return all(is_assignable(member, target) for member in type_.args or ())
    if target.head is Union:
        return any(is_assignable(type_, member) for member in target.args or ())
    if target.head in _PROMOTIONS.get(type_.head, ()):
        return True
    try:
        is_subclass = issubclass(type_.head, target.head)
    except Exception:  # noqa: BLE001  # structural types, and what metaclasses of the application refuse
        return True
    return is_subclass and _are_equivalent(ancestry(type_).get(target.head), target.args)


def is_equivalent(a: Type, b: Type) -> bool:
    """Return whether two types are equal, as far as is known."""
    return is_assignable(a, b) and is_assignable(b, a)


def _are_equivalent(a: tuple[Type, ...] | None, b: tuple[Type, ...] | None) -> bool:
    return a is None or b is None or (len(a) == len(b) and all(map(is_equivalent, a, b)))
