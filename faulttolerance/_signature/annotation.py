"""What annotations say: types, return types, type variables.

An annotation is read, never imported for. A name that exists for type checkers only, or that is not defined yet, is
kept as an unresolved name: its text may still decide, and it matches every type.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import (
    Any,
    ForwardRef,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from ..exceptions import Fault
from .kind import function_behind, is_coroutine_function

__all__ = [
    "ANYTHING",
    "Outcome",
    "Scope",
    "Type",
    "ancestry",
    "asynchronous_faults",
    "awaited",
    "displayed",
    "is_known",
    "members",
    "outcome",
    "outcome_of",
    "resolved",
    "says_nothing",
    "signature",
    "takes",
]


class Outcome(Enum):
    """What a function returns, as far as its return annotation tells."""

    FUTURE = "future"
    """A future of ``concurrent.futures``, ours, or another that is not awaitable."""
    AWAITABLE = "awaitable"
    OBJECT = "object"
    """Not told: the object that is returned decides."""
    FOREIGN = "foreign"
    """Something that is neither a future nor awaitable."""


class Type(NamedTuple):
    """A resolved annotation: without strings, aliases and ``Annotated``, and with type variables filled in.

    *head* is a class, ``Union``, ``Any``, a type variable that nothing fills in, an unresolved name, or a value that
    only equality can compare. *args* are the type arguments, ``None`` for a bare generic or a plain class; for a type
    variable and a ``NewType`` they are its bounds.
    """

    head: Any
    args: tuple[Type, ...] | None = None

    def __str__(self) -> str:
        """The type as it might be written in a program."""
        args = [] if self.args is None or isinstance(self.head, (TypeVar, NewType)) else [str(one) for one in self.args]
        if self.head is Union:
            return " | ".join(args)
        if self.head is types.NoneType:
            return "None"
        name = getattr(self.head, "__name__", None) or getattr(self.head, "name", None) or str(self.head)
        return f"{name}[{', '.join(args)}]" if args else str(name)


ANYTHING = Type(Any)
_CALLABLE_PARAMETERS = "the parameters of a Callable"

# Reading


class _Unresolved:
    """A name that means nothing at run time; whatever is done with it in an annotation gives an annotation."""

    def __init__(self, name: str, args: tuple[Any, ...] | None = None) -> None:
        self.name = name
        self.args = args

    def __getattr__(self, attribute: str) -> _Unresolved:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _Unresolved(f"{self.name}.{attribute}")

    def __getitem__(self, args: Any) -> _Unresolved:
        return _Unresolved(self.name, args if isinstance(args, tuple) else (args,))

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007  # made of what is no type

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __call__(self) -> None:
        """Pass for a type: ``typing`` takes only callables as type arguments."""

    def means(self, *names: str) -> bool:
        """Whether the last part of the name is one of *names*."""
        return self.name.rpartition(".")[2] in names


class _Names(dict[str, Any]):
    """The names that an annotation's text sees."""

    def __init__(self, outer: Iterable[Mapping[str, Any]]) -> None:
        super().__init__()
        self._outer = outer

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)  # asked by a debugger, not by an annotation
        for names in self._outer:
            if name in names:
                return names[name]
        return _Unresolved(name)


class Scope:
    """Where annotations were written: the names they see, and what type variables stand for.

    Args:
        names: From the innermost outward.
        variables: What is known of type variables.
        owner: What ``Self`` means.
    """

    __slots__ = ("_names", "_open", "_owner", "_variables")

    def __init__(
        self,
        names: Iterable[Mapping[str, Any]] = (),
        variables: Mapping[Any, Type] | None = None,
        owner: type | None = None,
        _open: frozenset[object] = frozenset(),
    ) -> None:
        self._names = tuple(names)
        self._variables = variables or {}
        self._owner = owner
        self._open = _open  # what is being expanded: what refers to itself is not expanded twice

    @classmethod
    def of(cls, function: Callable[..., Any], owner: type | None = None, defined_in: type | None = None) -> Scope:
        """The scope of *function*, defined in class *defined_in*, as seen from its subclass *owner*."""
        behind = function_behind(function)
        names: list[Mapping[str, Any]] = []
        code, closure = getattr(behind, "__code__", None), getattr(behind, "__closure__", None)
        if code is not None and closure:
            names.append(dict(_filled(zip(code.co_freevars, closure, strict=True))))
        names.append({one.__name__: one for one in getattr(behind, "__type_params__", ())})
        variables: Mapping[Any, Type] = {}
        home = defined_in or owner
        if home is not None:
            names.append({one.__name__: one for one in getattr(home, "__type_params__", ())})
            if owner is not None and home is not owner:
                variables = _filled_in(home, ancestry(Type(owner)).get(home))
        names += [getattr(behind, "__globals__", {}), vars(builtins)]
        if home is not None:
            # A class is not bound to its name while it is being created.
            names += [{home.__name__: home}, vars(home)]
        return cls(names, variables, owner or home)

    @classmethod
    def _of_class(cls, owner: type, variables: Mapping[Any, Type]) -> Scope:
        module = sys.modules.get(owner.__module__)
        names: list[Mapping[str, Any]] = [vars(module)] if module is not None else []
        return cls([*names, vars(builtins), {owner.__name__: owner}, vars(owner)], variables, owner)

    def within(self, opened: object, variables: Mapping[Any, Type] | None = None) -> Scope:
        """This scope while *opened* is being expanded: a text, an alias, a type variable with bounds."""
        return Scope(self._names, {**self._variables, **(variables or {})}, self._owner, self._open | {opened})

    def is_open(self, opened: object) -> bool:
        """Whether *opened* is being expanded."""
        return opened in self._open

    def variable(self, variable: TypeVar) -> Type | None:
        """What *variable* stands for, if that is known."""
        return self._variables.get(variable)

    @property
    def owner(self) -> type | None:
        """What ``Self`` means."""
        return self._owner

    def evaluated(self, text: str) -> Any:
        """The object for which the text of an annotation stands; an unresolved name where there is none."""
        try:
            return eval(text.strip(), {"__builtins__": builtins}, _Names(self._names))
        except Exception:  # noqa: BLE001  # the text is the application's, and so is what fails in it
            head = re.match(r"[\s'\"]*([A-Za-z_][\w.]*)", text)
            return _Unresolved(head[1]) if head else Any


def _filled(cells: Iterable[tuple[str, types.CellType]]) -> Iterable[tuple[str, Any]]:
    for name, cell in cells:
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _filled_in(cls: type, args: tuple[Type, ...] | None) -> dict[Any, Type]:
    return dict(zip(_parameters(cls), args, strict=False)) if args is not None else {}


def _parameters(cls: type) -> tuple[Any, ...]:
    """The type parameters of *cls*; of one whose bases are generic but not ``Generic``, in the order of their use."""
    own = vars(cls).get("__parameters__")
    if own is None:
        bases = vars(cls).get("__orig_bases__", ())
        own = tuple(dict.fromkeys(one for base in bases for one in getattr(base, "__parameters__", ())))
    return own if isinstance(own, tuple) else ()


def signature(function: Any) -> inspect.Signature | None:
    """The signature of *function*, its annotations as they were written; ``None`` where there is none to be had."""
    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def displayed(annotation: Any) -> str:
    """An annotation as it is written in a program."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


# Resolving


def resolved(annotation: Any, scope: Scope) -> Type:
    """What *annotation* means in *scope*."""
    if annotation is inspect.Signature.empty or annotation is Any:
        return ANYTHING
    if isinstance(annotation, (str, ForwardRef)):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        return ANYTHING if scope.is_open(text) else resolved(scope.evaluated(text), scope.within(text))
    if annotation is None:
        return Type(types.NoneType)
    if isinstance(annotation, _Unresolved):
        return Type(annotation, _resolved_all(annotation.args, scope) if annotation.args is not None else None)
    if isinstance(annotation, TypeVar):
        return scope.variable(annotation) or Type(annotation, _bounds(annotation, scope))
    if annotation is typing.Self:
        return ANYTHING if scope.owner is None else Type(scope.owner)
    if annotation is typing.Never or annotation is typing.NoReturn:
        return ANYTHING
    if isinstance(annotation, NewType):
        return Type(annotation, (resolved(annotation.__supertype__, scope),))
    if isinstance(annotation, list):
        return Type(_CALLABLE_PARAMETERS, _resolved_all(annotation, scope))
    return _resolved_generic(annotation, scope)


def _bounds(variable: TypeVar, scope: Scope) -> tuple[Type, ...]:
    if scope.is_open(variable):
        return ()
    bounds = variable.__constraints__ or ((variable.__bound__,) if variable.__bound__ is not None else ())
    return _resolved_all(bounds, scope.within(variable))


def _resolved_all(annotations: Iterable[Any], scope: Scope) -> tuple[Type, ...]:
    return tuple(resolved(one, scope) for one in annotations)


def _resolved_generic(annotation: Any, scope: Scope) -> Type:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None:
        return _resolved_alias(annotation, (), scope) if _is_alias(annotation) else Type(annotation)
    if _is_alias(origin):
        return _resolved_alias(origin, args, scope)
    if origin is typing.Annotated:
        return resolved(args[0], scope)
    if origin is Union or origin is types.UnionType:
        return Type(Union, tuple(dict.fromkeys(_resolved_all(args, scope))))
    if origin is Literal:
        return Type((Literal, frozenset((type(value), repr(value)) for value in args)))
    if origin is Callable and len(args) == 2:
        parameters = resolved(args[0], scope) if isinstance(args[0], list) else ANYTHING
        return Type(origin, (parameters, resolved(args[1], scope)))
    return Type(origin, _resolved_all(args, scope) or None)


def _is_alias(annotation: Any) -> bool:
    """Whether *annotation* was made by a ``type`` statement, or by the class that older versions have for it."""
    return type(annotation).__name__ == "TypeAliasType"


def _resolved_alias(alias: Any, args: tuple[Any, ...], scope: Scope) -> Type:
    if scope.is_open(alias):
        return Type(alias)
    variables = dict(zip(alias.__type_params__, _resolved_all(args, scope), strict=False))
    try:
        value = alias.__value__
    except Exception:  # noqa: BLE001  # computed now, from names of the application
        return Type(_Unresolved(alias.__name__))
    return resolved(value, scope.within(alias, variables))


def ancestry(generic: Type) -> dict[type, tuple[Type, ...] | None]:
    """The class *generic* and its bases, nearest first, each with its type arguments as far as they are known."""
    found: dict[type, tuple[Type, ...] | None] = {}

    def walk(cls: type, args: tuple[Type, ...] | None) -> None:
        if found.get(cls) is not None or (cls in found and args is None):
            return
        found[cls] = args
        scope = Scope._of_class(cls, _filled_in(cls, args))
        for base in vars(cls).get("__orig_bases__", cls.__bases__):
            origin = get_origin(base) or base
            if isinstance(origin, type) and origin not in (Generic, Protocol, object):
                walk(origin, _resolved_all(get_args(base), scope) or None)

    if isinstance(generic.head, type):
        walk(generic.head, generic.args)
    return found


# Knowing


def says_nothing(one: Type) -> bool:
    """Whether *one* is not known, and so matches everything."""
    return one.head is Any or isinstance(one.head, (_Unresolved, TypeVar))


def is_known(one: Type) -> bool:
    """Whether no name in *one* waits to be defined."""
    return not isinstance(one.head, _Unresolved) and all(map(is_known, one.args or ()))


def members(one: Type) -> tuple[Type, ...]:
    """The types of which *one* is the union; a bounded type variable counts as its bounds."""
    if isinstance(one.head, TypeVar) and one.args:
        return tuple(inner for bound in one.args for inner in members(bound))
    return (one.args or ()) if one.head is Union else (one,)


def takes(one: Type, value: object) -> bool:
    """Whether *value* is of a type whose classes are known, or have a name that a class of *value* has."""
    return any(_takes(member.head, value) for member in members(one))


def _takes(head: Any, value: object) -> bool:
    if isinstance(head, _Unresolved):
        return head.means(*(cls.__name__ for cls in type(value).__mro__))
    return head is Any or (isinstance(head, type) and isinstance(value, head))


# Asynchronous or not (rule R7)


def outcome(function: Callable[..., Any], owner: type | None = None) -> Outcome:
    """What calling *function* gives: a future, something awaitable, or neither; only its return annotation is read."""
    if is_coroutine_function(function):
        return Outcome.AWAITABLE
    return outcome_of(_returned(function, owner))


def _returned(function: Callable[..., Any], owner: type | None) -> Type:
    found = signature(function)
    return ANYTHING if found is None else resolved(found.return_annotation, Scope.of(function, owner))


def outcome_of(returned: Type) -> Outcome:
    """What a function whose return type is *returned* gives."""
    head = returned.head
    if isinstance(head, _Unresolved):
        return _outcome_by_name(head)
    if head is Union or isinstance(head, TypeVar):
        members = {outcome_of(one) for one in returned.args or ()}
        return members.pop() if len(members) == 1 else Outcome.OBJECT
    if isinstance(head, NewType):
        return outcome_of(returned.args[0]) if returned.args else Outcome.OBJECT
    if isinstance(head, type) and head is not object and head is not Any:
        return _outcome_by_class(head)
    return Outcome.FOREIGN if isinstance(head, tuple) and head[0] is Literal else Outcome.OBJECT


def _outcome_by_name(name: _Unresolved) -> Outcome:
    if name.means("Future"):
        return Outcome.AWAITABLE if name.name.startswith("asyncio.") else Outcome.FUTURE
    return Outcome.AWAITABLE if name.means("Task", "Awaitable", "Coroutine") else Outcome.OBJECT


def _outcome_by_class(cls: type) -> Outcome:
    future = _loaded("concurrent.futures", "Future")
    if future is not None and issubclass(cls, future):
        return Outcome.FUTURE
    if getattr(cls, "__await__", None) is not None:
        return Outcome.AWAITABLE
    if hasattr(cls, "add_done_callback") and hasattr(cls, "result"):
        return Outcome.FUTURE
    return Outcome.FOREIGN


def _loaded(module: str, name: str) -> type | None:
    """A class of the standard library, if it is loaded; no class can derive from it before that."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def awaited(returned: Type) -> Type:
    """What comes of awaiting *returned*, or of waiting for it."""
    head = returned.head
    if isinstance(head, _Unresolved):
        return returned.args[-1] if returned.args else ANYTHING
    if head is Union:
        members = tuple(awaited(one) for one in returned.args or ())
        return members[0] if len(members) == 1 else Type(Union, members)
    if isinstance(head, NewType):
        return awaited(returned.args[0]) if returned.args else ANYTHING
    future, own_future = _loaded("asyncio", "Future"), _loaded("concurrent.futures", "Future")
    waited_for = {Awaitable, future, own_future, _loaded("asyncio", "Task")}
    for base, args in ancestry(returned).items():
        if args is None:
            continue
        if base is Coroutine:
            return args[-1]
        if base in waited_for or (base is head and len(args) == 1 and not _parameters(base)):
            return args[0]
    return ANYTHING


def asynchronous_faults(
    function: Callable[..., Any], where: str, owner: type | None = None, class_level: bool = False
) -> list[Fault]:
    """What is wrong with the return annotation of *function* for ``@asynchronous``.

    *class_level*: the decorator is on the class, and the method may be exempted.
    """
    if outcome(function, owner) is not Outcome.FOREIGN:
        return []
    found = signature(function)
    annotation = found.return_annotation if found is not None else None
    text = displayed(annotation)
    allowed = f"`async def`, or a result that comes later: `-> Future[{text}]` or `-> Awaitable[{text}]`"
    if class_level:
        allowed += "; or @unguarded above the method, which exempts it"
    return [Fault(f"{where} @Asynchronous", f"is on a function that returns {text}", annotation, allowed)]
