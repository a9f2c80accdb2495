"""The check whether a function can replace a guarded function: kind, parameters and result (rule R6)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

from .._parameters import signature_of
from .annotation import ANYTHING, Scope, display, is_assignable, is_gradual, is_resolved, members, resolve
from .kind import is_coroutine_function, is_generator_function
from .lookup import defining_class_of
from .return_kind import ReturnKind, awaited_type, return_kind_of

Mismatch = tuple[str, str]
"""A fault of a function, as a clause that follows its name, and the allowed alternative."""

_PENDING = (ReturnKind.FUTURE, ReturnKind.AWAITABLE)


class Callee:
    """A function, described by its signature.

    Args:
        function: Any callable; the attribute ``signature`` is ``None`` if it has none.
        owner: The class from which it is seen.
        home: The class that defines it; by default the class in whose body it was written.
        takes_self: Whether its first parameter is its instance or class, which does not count as a parameter.
    """

    is_awaited: bool | None = None
    """Whether its calls are awaited, if it is guarded; ``None`` if that is not known yet."""

    def __init__(
        self, function: Callable[..., Any], owner: type | None = None, home: type | None = None, *, takes_self: bool
    ) -> None:
        if home is None and owner is not None:
            home = defining_class_of(function, owner)
        self.function = function
        self.scope = Scope.of(function, owner, home)
        self.signature = signature_of(function)
        self.parameters: dict[int | str, Parameter] | None = None
        """By position, by name, or by ``*`` and ``**``."""
        self.returned = ANYTHING
        self.returned_text = "another"
        if self.signature is not None:
            self.parameters = _parameters_of(self.signature, takes_self)
            self.returned = resolve(self.signature.return_annotation, self.scope)
            self.returned_text = display(self.signature.return_annotation)
        self.is_settled = is_resolved(self.returned)
        """Whether a later comparison of the result would give the same answer."""


def _parameters_of(signature: inspect.Signature, takes_self: bool) -> dict[int | str, Parameter]:
    parameters = list(signature.parameters.values())
    if takes_self and parameters and parameters[0].kind is not Parameter.VAR_POSITIONAL:
        del parameters[0]
    stars: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return {
        position if parameter.kind in by_position else stars.get(parameter.kind, parameter.name): parameter
        for position, parameter in enumerate(parameters)
    }


def mismatches(guarded: Callee, substitute: Callee, *, but_parameters: bool = False) -> Iterator[Mismatch]:
    """Yield the reasons why *substitute* cannot replace *guarded*; *but_parameters*: it gets other arguments."""
    yield from kind_mismatches(guarded, substitute.function)
    if not but_parameters:
        yield from _parameter_mismatches(guarded, substitute)
    yield from _result_mismatches(guarded, substitute)


def kind_mismatches(guarded: Callee, function: Callable[..., Any]) -> Iterator[Mismatch]:
    """Yield a mismatch for a generator function, and for a coroutine function whose result is never awaited."""
    if is_generator_function(function):
        yield "which is a generator function", "a function that returns"
    elif (
        guarded.is_awaited is False
        and is_coroutine_function(function)
        and return_kind_of(guarded.returned) is not ReturnKind.AWAITABLE
    ):
        yield "which is a coroutine function", "a plain function, as the guarded function is"


# Parameters


def _parameter_mismatches(guarded: Callee, substitute: Callee) -> Iterator[Mismatch]:
    passed, taken = guarded.parameters, substitute.parameters
    if extra_parameters(guarded, substitute) is None:
        problem = f"whose parameters {_display(substitute)} are not those of the guarded function"
        yield problem, allowed_parameters(guarded)
    elif passed is not None and taken is not None and not _is_open(taken):
        for key, mine in passed.items():
            yours = taken[key]
            if not is_assignable(resolve(mine.annotation, guarded.scope), resolve(yours.annotation, substitute.scope)):
                problem = f"whose parameter `{yours}` does not accept every value of `{mine}`"
                yield problem, "the same type, a base of it, or a union with it"


def allowed_parameters(guarded: Callee) -> str:
    """Return the parameters that a substitute may have, as text."""
    return f"{_display(guarded)}, and optionally a last parameter for the exception"


def _display(callee: Callee) -> str:
    return str(inspect.Signature([*(callee.parameters or {}).values()]))


def _is_open(parameters: dict[int | str, Parameter]) -> bool:
    """Return whether *parameters* are ``(*args, **kwargs)``, as of a wrapper, which accept everything."""
    return parameters.keys() == {"*", "**"}


def extra_parameters(guarded: Callee, substitute: Callee) -> list[Parameter] | None:
    """Return the parameters that only *substitute* has: none, or a single parameter for the exception.

    ``None`` if it does not accept the arguments of the guarded function.
    """
    passed, taken = guarded.parameters, substitute.parameters
    if passed is None or taken is None or _is_open(taken):
        return []
    extra = taken.keys() - passed.keys()
    if passed.keys() - taken.keys() or len(extra) > 1 or extra & {"*", "**"}:
        return None
    is_hidden = "*" in taken and any(isinstance(key, int) for key in extra)
    if is_hidden or not all(_takes_exceptions(taken[key], substitute.scope) for key in extra):
        return None
    return [taken[key] for key in extra]


def _takes_exceptions(parameter: Parameter, scope: Scope) -> bool:
    """Return whether the additional parameter *parameter* can only be the exception."""
    if parameter.annotation is Parameter.empty:
        return parameter.default is Parameter.empty or parameter.default is None
    types = [member for member in members(resolve(parameter.annotation, scope)) if member.head is not type(None)]
    return bool(types) and all(
        is_gradual(type_)
        or type_.head is object
        or (isinstance(type_.head, type) and issubclass(type_.head, BaseException))
        for type_ in types
    )


# Results


def _result_mismatches(guarded: Callee, substitute: Callee) -> Iterator[Mismatch]:
    """Yield a mismatch of the results or their kinds: ``async def -> T``, ``Awaitable[T]``, ``Future[T]``, ``T``."""
    fits = _returns_same if guarded.is_awaited is False else _leads_to_same
    if not fits(guarded, substitute):
        allowed = f"{guarded.returned_text}, as the guarded function returns, or a subtype"
        yield f"which returns {substitute.returned_text}", allowed


def _returns_same(guarded: Callee, substitute: Callee) -> bool:
    if not is_coroutine_function(substitute.function):
        return is_assignable(substitute.returned, guarded.returned)
    if return_kind_of(guarded.returned) is ReturnKind.AWAITABLE:
        return is_assignable(substitute.returned, awaited_type(guarded.returned))
    return True  # the wrong kind was reported already


def _leads_to_same(guarded: Callee, substitute: Callee) -> bool:
    wanted, given = guarded.returned, substitute.returned
    if not is_coroutine_function(guarded.function):
        wanted = awaited_type(wanted) if return_kind_of(wanted) in _PENDING else ANYTHING
    is_pending = not is_coroutine_function(substitute.function) and return_kind_of(given) in _PENDING
    return (is_pending and is_assignable(awaited_type(given), wanted)) or is_assignable(given, wanted)
