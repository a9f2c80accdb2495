"""Whether a function can stand in for a guarded one: its parameters, its result, and when that comes (rule R6).

What is not known fits everything, and everything fits it: ``Any``, unresolved names, type variables that nothing fills
in. A bare generic fits each of its parametrisations.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from inspect import Parameter
from typing import Any, Literal, NamedTuple, NewType, Union, is_typeddict

from .annotation import (
    ANYTHING,
    Outcome,
    Scope,
    Type,
    ancestry,
    awaited,
    displayed,
    is_known,
    members,
    outcome,
    outcome_of,
    resolved,
    says_nothing,
    signature,
)
from .kind import is_coroutine_function, is_generator_function
from .lookup import home_of

__all__ = ["Guarded", "Problem", "Shape", "can_bind", "fits", "fitted", "is_asynchronous", "same", "shape_of"]

Problem = tuple[str, str]
"""What is wrong, as in ``Fault.problem``, and what is allowed."""

_PENDING = (Outcome.FUTURE, Outcome.AWAITABLE)

_TOWER: dict[object, tuple[object, ...]] = {int: (float, complex), bool: (float, complex), float: (complex,)}
"""What type checkers take for one another though no class derives from the other."""
_ELEMENTS: dict[object, type] = {str: str, bytes: int, bytearray: int, range: int}
"""Of what sequences are that are not generic."""


# Types


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


# Parameters


def can_bind(found: inspect.Signature | None, arguments: int) -> bool:
    """Whether a function takes so many positional arguments, as far as its signature is known."""
    try:
        if found is not None:
            found.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


class Shape(NamedTuple):
    """The parameters of a function by kind, without itself or its class."""

    positional: list[Parameter]
    rest: Parameter | None
    named: dict[str, Parameter]
    more: Parameter | None

    @property
    def is_open(self) -> bool:
        """Whether it is ``(*args, **kwargs)``, as of a wrapper, which tells nothing and takes everything."""
        return self.rest is not None and self.more is not None and not self.positional and not self.named

    @property
    def all(self) -> list[Parameter]:
        """Every parameter, in order."""
        every = [*self.positional, self.rest, *self.named.values(), self.more]
        return [one for one in every if one is not None]

    def __str__(self) -> str:
        return str(inspect.Signature(self.all))


def shape_of(function: Callable[..., Any], takes_itself: bool) -> Shape | None:
    """The parameters of *function*, without the first where that is its instance or class."""
    found = signature(function)
    if found is None:
        return None
    every = list(found.parameters.values())
    if takes_itself and every and every[0].kind is not Parameter.VAR_POSITIONAL:
        del every[0]
    return Shape(
        [one for one in every if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)],
        next((one for one in every if one.kind is Parameter.VAR_POSITIONAL), None),
        {one.name: one for one in every if one.kind is Parameter.KEYWORD_ONLY},
        next((one for one in every if one.kind is Parameter.VAR_KEYWORD), None),
    )


class Fit(NamedTuple):
    """How a function takes what another takes: the same, and then the exception where *error* is there."""

    error: Parameter | None = None


def fitted(guarded: Shape | None, substitute: Shape | None, scope: Scope) -> Fit | None:
    """How *substitute*, written in *scope*, takes what *guarded* takes; ``None`` where it does not."""
    if guarded is None or substitute is None or substitute.is_open:
        return Fit()
    if (guarded.rest is None) != (substitute.rest is None) or (guarded.more is None) != (substitute.more is None):
        return None
    extra = substitute.positional[len(guarded.positional) :]
    if len(extra) != len(substitute.positional) - len(guarded.positional) or (extra and substitute.rest is not None):
        return None
    if guarded.named.keys() - substitute.named.keys():
        return None
    extra += [one for name, one in substitute.named.items() if name not in guarded.named]
    if not extra:
        return Fit()
    return Fit(extra[0]) if len(extra) == 1 and _takes_exceptions(extra[0], scope) else None


def _takes_exceptions(parameter: Parameter, scope: Scope) -> bool:
    """Whether a parameter more than the guarded function has can only be the exception."""
    if parameter.annotation is Parameter.empty:
        return parameter.default is Parameter.empty or parameter.default is None
    found = [one for one in members(resolved(parameter.annotation, scope)) if one.head is not type(None)]
    return bool(found) and all(
        says_nothing(one) or one.head is object or (isinstance(one.head, type) and issubclass(one.head, BaseException))
        for one in found
    )


# Now or later


def is_asynchronous(function: Callable[..., Any], owner: type | None, asynchronous: bool, final: bool) -> bool | None:
    """Whether calls of *function* are waited for; ``None`` where a further decorator could still make it so.

    *asynchronous* is what is known now. On a class a decorator may follow too; where nothing is annotated it is not
    waited for.
    """
    if asynchronous or final:
        return asynchronous
    kind = outcome(function, owner)
    certain = kind is Outcome.FOREIGN or (kind is Outcome.OBJECT and owner is not None)
    return False if certain else None


# The whole of it


class Guarded:
    """The guarded function, as what is to stand in for it is compared with it.

    Args:
        function: The guarded function.
        takes_itself: Whether its first parameter is its instance or class.
        owner: The class from which it is seen.
        asynchronous: See ``is_asynchronous``.
    """

    __slots__ = ("_function", "_scope", "_signature", "asynchronous", "is_certain", "result", "shape")

    def __init__(
        self, function: Callable[..., Any], takes_itself: bool, owner: type | None, asynchronous: bool | None
    ) -> None:
        self._function = function
        self.asynchronous = asynchronous
        home = home_of(function, owner) if owner is not None else None
        self._scope = Scope.of(function, owner, home)
        self._signature = signature(function)
        self.shape = shape_of(function, takes_itself)
        self.result = ANYTHING
        if self._signature is not None:
            self.result = resolved(self._signature.return_annotation, self._scope)
        self.is_certain = asynchronous is not None and is_known(self.result)
        """Whether comparing results again later would say the same."""

    def problems_of_kind(self, subject: str, function: Callable[..., Any]) -> Iterator[Problem]:
        """What is wrong with the sort of *function*, which *subject* tells of, as in ``names 'charge_later'``."""
        if is_generator_function(function):
            yield f"{subject}, which is a generator function", "a function that returns"
        elif (
            self.asynchronous is False
            and is_coroutine_function(function)
            and outcome_of(self.result) is not Outcome.AWAITABLE
        ):
            yield f"{subject}, which is a coroutine function", "a plain function, as the guarded one is"

    def problems_of_parameters(self, subject: str, substitute: Shape | None, scope: Scope) -> Iterator[Problem]:
        """What is wrong with the parameters of a function that was written in *scope*."""
        guarded = self.shape
        if fitted(guarded, substitute, scope) is None:
            yield f"{subject}, whose parameters {substitute} are not those of the guarded function", self.allowed
        elif guarded is not None and substitute is not None and not substitute.is_open:
            for mine, yours in _pairs(guarded, substitute):
                if not fits(resolved(mine.annotation, self._scope), resolved(yours.annotation, scope)):
                    yield (
                        f"{subject}, whose parameter `{yours}` does not take what `{mine}` takes",
                        "the same type, a base of it, or a union with it",
                    )

    @property
    def allowed(self) -> str:
        """Which parameters would be right."""
        return f"{self.shape}, and at will one more at the end, which takes the exception"

    def problems_of_result(
        self, subject: str, function: Callable[..., Any], gives: Type, text: str
    ) -> Iterator[Problem]:
        """What is wrong with the result of *function*: it *gives* a type, which is written as *text*."""
        self.is_certain = self.is_certain and is_known(gives)
        is_coroutine = is_coroutine_function(function)
        now = self.asynchronous is not True and self._is_result_now(gives, is_coroutine)
        later = self.asynchronous is not False and self._is_result_later(gives, is_coroutine)
        if not now and not later:
            expected = displayed(self._signature.return_annotation) if self._signature is not None else "another"
            yield f"{subject}, which returns {text}", f"{expected}, as the guarded function returns, or a subtype"

    def _is_result_now(self, gives: Type, is_coroutine: bool) -> bool:
        """Whether what is returned is of the type that is expected."""
        if not is_coroutine:
            return fits(gives, self.result)
        if outcome_of(self.result) is Outcome.AWAITABLE:
            return fits(gives, awaited(self.result))
        return self.asynchronous is False  # of the wrong kind, which was told already

    def _is_result_later(self, gives: Type, is_coroutine: bool) -> bool:
        """The same for what both come to: ``async def -> T``, ``Awaitable[T]``, ``Future[T]`` and plain ``T``."""
        wanted = self.result
        if not is_coroutine_function(self._function):
            wanted = awaited(wanted) if outcome_of(wanted) in _PENDING else ANYTHING
        if not is_coroutine and outcome_of(gives) in _PENDING and fits(awaited(gives), wanted):
            return True
        return fits(gives, wanted)


def _pairs(guarded: Shape, substitute: Shape) -> Iterator[tuple[Parameter, Parameter]]:
    yield from zip(guarded.positional, substitute.positional, strict=False)
    for mine, yours in ((guarded.rest, substitute.rest), (guarded.more, substitute.more)):
        if mine is not None and yours is not None:
            yield mine, yours
    for name, mine in guarded.named.items():
        yield mine, substitute.named[name]
