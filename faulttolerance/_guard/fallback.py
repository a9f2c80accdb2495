"""What ``@fallback`` names: whether it fits the guarded function, and how it is called (contract R6)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from typing import Any, NamedTuple

from .._policy import Fallback
from .._runtime.blocking import Aside
from .._runtime.kinds import is_coroutine_function, is_generator_function
from ..exceptions import Fault, FaultToleranceDefinitionException
from ..typing import FallbackHandler
from .annotations import (
    ANYTHING,
    Outcome,
    Scope,
    Type,
    ancestry,
    awaited,
    displayed,
    members,
    outcome_of,
    resolved,
    same,
    says_nothing,
    signature,
    takes,
)
from .aside import context_of, watched
from .declaration import FUNCTION, INSTANCE, Declaration
from .sibling import Sibling, attribute_of, found_in_class, found_in_module, home_of, mangled, missing, named

__all__ = ["aside", "faults"]

_PENDING = (Outcome.FUTURE, Outcome.AWAITABLE)


def faults(
    policy: Fallback, declaration: Declaration, where: str, asynchronous: bool, owner: type | None = None
) -> list[Fault]:
    """What is wrong with a fallback, as far as can be told now.

    A method is looked up once its class is created, a function of the module once the guard is used. *where* names the
    guarded function. *asynchronous* tells that it is asynchronous, so that the fallback may be. *owner* is the class
    that declares the fallback, from which the method is looked up; by default that of the guarded function.
    """
    if policy.value is not None:
        return [
            Fault(f"{where} @Fallback(value)", problem, policy.value, allowed)
            for problem, allowed in _problems_of_handler(policy.value, declaration, asynchronous)
        ]
    owner = owner or declaration.owner
    if owner is None and (declaration.guard is None or declaration.binding != FUNCTION):
        return []
    return [
        Fault(f"{where} @Fallback(fallback_method)", problem, policy.fallback_method, allowed)
        for problem, allowed in _problems_of_method(policy.fallback_method, declaration, owner, asynchronous)
    ]


def aside(policy: Fallback, declaration: Declaration, asynchronous: bool, owner: type | None = None) -> Aside:
    """Call the fallback for a failed call; the parameters are those of ``faults``.

    An error of the fallback comes out, and tells of the failure that it was called for as its context.
    """
    if policy.value is not None:
        call = _by_handler(policy.value, declaration)
    else:
        call = _by_method(policy.fallback_method, declaration, owner or declaration.owner)
    return watched(call, _remember, asynchronous)


def _remember(error: BaseException, failure: BaseException) -> bool:
    """Let *error* tell what it happened in the handling of, unless it knows already or is part of that."""
    if error.__context__ is None:
        seen: list[BaseException] = []
        waiting = [failure]
        while waiting:
            one = waiting.pop()
            if one is error:
                return False
            if not any(one is other for other in seen):
                seen.append(one)
                waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        error.__context__ = failure
    return False


# Handlers


def _by_handler(value: Callable[[Any], Any], declaration: Declaration) -> Aside:
    is_class = isinstance(value, type)

    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        handle = value().handle if is_class else value  # type: ignore[call-arg]
        try:
            return handle(context_of(declaration, args, kwargs, failure, attempts))
        finally:
            del failure

    return call


def _problems_of_handler(
    value: Callable[[Any], Any], declaration: Declaration, asynchronous: bool
) -> Iterator[tuple[str, str]]:
    if not isinstance(value, type):
        yield from _problems_of_handling(value, value, None, declaration, asynchronous)
        return
    name = value.__qualname__
    handle = found_in_class("handle", value)
    is_abstract = inspect.isabstract(value) or getattr(value, "_is_protocol", False)
    if handle is None or handle.home is FallbackHandler or is_abstract:
        yield f"is the class {name}, which is abstract or does not define handle", "a class that defines handle"
        return
    constructor = signature(value)
    if constructor is not None and not _can_bind(constructor):
        yield (
            f"is the class {name}, whose constructor needs arguments: {constructor}",
            "a class that is made without arguments; or a callable, as the bound method handle of an object of it",
        )
    yield from _problems_of_handling(value, handle.function, handle, declaration, asynchronous)


def _problems_of_handling(
    value: Any, function: Callable[..., Any], handle: Sibling | None, declaration: Declaration, asynchronous: bool
) -> Iterator[tuple[str, str]]:
    """What is wrong with *function*, which is *value* itself or the method *handle* of that class."""
    subject = f"is {getattr(value, '__qualname__', None) or repr(value)}" + (".handle" if handle else "")
    found = signature(function)
    if found is not None and not _can_bind(found, *[None] * (2 if handle and handle.takes_itself else 1)):
        yield f"{subject}, which does not take one argument: {found}", "a handler that takes an ExecutionContext"
    yield from _problems_of_kind(subject, function, declaration, asynchronous)
    if found is None:
        return
    scope = Scope.of(function, value if handle else None, handle.home if handle else None)
    gives = resolved(found.return_annotation, scope)
    text = displayed(found.return_annotation)
    if handle is not None and says_nothing(gives):
        gives = (ancestry(Type(value)).get(FallbackHandler) or (ANYTHING,))[0]
        text = str(gives)
    yield from _problems_of_result(subject, gives, text, function, declaration, declaration.owner, asynchronous)


def _can_bind(found: inspect.Signature, *args: object) -> bool:
    try:
        found.bind(*args)
    except TypeError:
        return False
    return True


# Methods


class _Shape(NamedTuple):
    """The parameters of a function by kind, without itself or its class."""

    positional: list[Parameter]
    rest: Parameter | None
    named: dict[str, Parameter]
    more: Parameter | None

    @property
    def is_open(self) -> bool:
        """Whether it is ``(*args, **kwargs)``, as of a wrapper, which tells nothing and takes everything."""
        return self.rest is not None and self.more is not None and not self.positional and not self.named

    def __str__(self) -> str:
        every = [*self.positional, self.rest, *self.named.values(), self.more]
        return str(inspect.Signature([one for one in every if one is not None]))


def _shape(function: Callable[..., Any], takes_itself: bool) -> _Shape | None:
    found = signature(function)
    if found is None:
        return None
    every = list(found.parameters.values())
    if takes_itself and every and every[0].kind is not Parameter.VAR_POSITIONAL:
        del every[0]
    return _Shape(
        [one for one in every if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)],
        next((one for one in every if one.kind is Parameter.VAR_POSITIONAL), None),
        {one.name: one for one in every if one.kind is Parameter.KEYWORD_ONLY},
        next((one for one in every if one.kind is Parameter.VAR_KEYWORD), None),
    )


class _Fit(NamedTuple):
    """How a fallback takes what the guarded function takes: the same, and then the exception where *error* is there."""

    error: Parameter | None = None


def _fitted(guarded: _Shape | None, substitute: _Shape | None) -> _Fit | None:
    """How *substitute* takes what *guarded* takes; ``None`` where it does not."""
    if guarded is None or substitute is None or substitute.is_open:
        return _Fit()
    if (guarded.rest is None) != (substitute.rest is None) or (guarded.more is None) != (substitute.more is None):
        return None
    if guarded.named.keys() - substitute.named.keys():
        return None
    extra = [*substitute.positional[len(guarded.positional) :]]
    if len(extra) != len(substitute.positional) - len(guarded.positional) or (extra and substitute.rest is not None):
        return None
    extra += [one for name, one in substitute.named.items() if name not in guarded.named]
    if len(extra) > 1:
        return None
    return _Fit(extra[0]) if extra else _Fit()


def _takes_exceptions(parameter: Parameter, scope: Scope) -> bool:
    """Whether a parameter more than the guarded function has can only be the exception."""
    if parameter.annotation is Parameter.empty:
        return parameter.default in (Parameter.empty, None)
    found = members(resolved(parameter.annotation, scope))
    heads = [one.head for one in found if one.head is not type(None)]
    return bool(heads) and all(
        says_nothing(one) or one.head is object or (isinstance(one.head, type) and issubclass(one.head, BaseException))
        for one in found
        if one.head is not type(None)
    )


def _problems_of_method(
    name: str, declaration: Declaration, owner: type | None, asynchronous: bool
) -> Iterator[tuple[str, str]]:
    found = found_in_class(name, owner) if owner else found_in_module(name, declaration.template)
    if found is None:
        yield missing(name, declaration, owner), "the name of a function there, in a class also of one in its bases"
        return
    if found.function is declaration.guard or (owner is not None and mangled(name, owner) == declaration.name):
        yield (
            f"names {name!r}, which is the guarded function itself",
            "another one, exempt from the class's by @unguarded",
        )
        return
    if found.needs_instance and declaration.binding != INSTANCE:
        yield f"names {name!r}, which needs an instance", "a class method or static method, as the guarded one is"
    yield from _problems_of_kind(f"names {name!r}", found.function, declaration, asynchronous)
    yield from _problems_of_signature(name, found, declaration, owner, asynchronous)


def _problems_of_kind(
    subject: str, function: Callable[..., Any], declaration: Declaration, asynchronous: bool
) -> Iterator[tuple[str, str]]:
    if is_generator_function(function):
        yield f"{subject}, which is a generator function", "a function that returns"
    elif asynchronous or not is_coroutine_function(function):
        return
    elif outcome_of(_guarded_result(declaration, declaration.owner)) is not Outcome.AWAITABLE:
        yield f"{subject}, which is a coroutine function", "a plain function, as the guarded one is"


def _problems_of_signature(
    name: str, found: Sibling, declaration: Declaration, owner: type | None, asynchronous: bool
) -> Iterator[tuple[str, str]]:
    guarded = _shape(declaration.template, declaration.binding != FUNCTION)
    substitute = _shape(found.function, found.takes_itself)
    scope = Scope.of(found.function, owner, found.home)
    fit = _fitted(guarded, substitute)
    if fit is None or (fit.error is not None and not _takes_exceptions(fit.error, scope)):
        yield (
            f"names {name!r}, whose parameters {substitute} are not those of the guarded function",
            _allowed(guarded),
        )
        return
    if guarded is not None and substitute is not None and not substitute.is_open:
        home = _scope_of_guarded(declaration, owner)
        for mine, yours in _pairs(guarded, substitute):
            if not same(resolved(mine.annotation, home), resolved(yours.annotation, scope)):
                yield f"names {name!r}, whose parameter `{yours}` is of another type", f"the type of `{mine}`"
    result = signature(found.function)
    if result is not None:
        gives = resolved(result.return_annotation, scope)
        text = displayed(result.return_annotation)
        yield from _problems_of_result(f"names {name!r}", gives, text, found.function, declaration, owner, asynchronous)


def _allowed(guarded: _Shape | None) -> str:
    return f"{guarded}, and at will one more at the end, which takes the exception"


def _pairs(guarded: _Shape, substitute: _Shape) -> Iterator[tuple[Parameter, Parameter]]:
    yield from zip(guarded.positional, substitute.positional, strict=False)
    for mine, yours in ((guarded.rest, substitute.rest), (guarded.more, substitute.more)):
        if mine is not None and yours is not None:
            yield mine, yours
    for name, mine in guarded.named.items():
        yield mine, substitute.named[name]


def _scope_of_guarded(declaration: Declaration, owner: type | None) -> Scope:
    home = home_of(declaration.template, owner) if owner is not None else None
    return Scope.of(declaration.template, owner, home)


def _guarded_result(declaration: Declaration, owner: type | None) -> Type:
    found = signature(declaration.template)
    return ANYTHING if found is None else resolved(found.return_annotation, _scope_of_guarded(declaration, owner))


def _problems_of_result(
    subject: str,
    gives: Type,
    text: str,
    function: Callable[..., Any],
    declaration: Declaration,
    owner: type | None,
    asynchronous: bool,
) -> Iterator[tuple[str, str]]:
    wanted = _guarded_result(declaration, owner)
    if not _is_same_result(wanted, gives, declaration.is_coroutine, is_coroutine_function(function), asynchronous):
        guarded = signature(declaration.template)
        expected = displayed(guarded.return_annotation) if guarded is not None else ""
        yield f"{subject}, which returns {text}", f"{expected}, as the guarded function returns"


def _is_same_result(wanted: Type, gives: Type, is_coroutine: bool, gives_coroutine: bool, asynchronous: bool) -> bool:
    """Whether both come to the same type, of a result that comes later what it comes to."""
    if not is_coroutine:
        kind = outcome_of(wanted)
        if asynchronous or (gives_coroutine and kind is Outcome.AWAITABLE):
            wanted = awaited(wanted) if kind in _PENDING else ANYTHING
        else:
            return gives_coroutine or same(wanted, gives)
    if not gives_coroutine and outcome_of(gives) in _PENDING and same(wanted, awaited(gives)):
        return True
    return same(wanted, gives)


# Calling a method


class _Passing:
    """How one function is called as the fallback; made at its first use, since an override may be another each time."""

    __slots__ = ("_accepts", "_bound", "_count", "_error", "_signature", "function")

    def __init__(self, method: Callable[..., Any], declaration: Declaration, where: str) -> None:
        self.function = getattr(method, "__func__", method)
        self._bound = bound = declaration.binding != FUNCTION
        guarded, substitute = _shape(declaration.template, bound), _shape(method, False)
        scope = Scope.of(method, declaration.owner)
        fit = _fitted(guarded, substitute)
        if fit is None or (fit.error is not None and not _takes_exceptions(fit.error, scope)):
            name = getattr(method, "__qualname__", method)
            problem = f"leads to {name}, whose parameters {substitute} are not those of the guarded function"
            raise FaultToleranceDefinitionException(Fault(where, problem, method, _allowed(guarded)))
        self._error = fit.error
        self._accepts = ANYTHING if fit.error is None else resolved(fit.error.annotation, scope)
        self._signature = signature(declaration.template)
        # So many positional arguments need no defaults, and can be passed on as they are.
        self._count = -1 if guarded is None or guarded.rest or guarded.named else len(guarded.positional) + bound

    def __call__(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException
    ) -> Any:
        """Call *method* for the call with *args* and *kwargs*; raise *failure* again where that is not for it."""
        try:
            if self._error is not None and not takes(self._accepts, failure):
                raise failure
            if (kwargs or len(args) != self._count) and self._signature is not None:
                try:
                    found = self._signature.bind(*args, **kwargs)
                except TypeError:
                    found = None
                if found is None:
                    raise failure  # which says that the arguments are wrong
                found.apply_defaults()
                args, kwargs = found.args, found.kwargs
            if self._bound:
                args = args[1:]
            if self._error is None:
                return method(*args, **kwargs)
            if self._error.kind is Parameter.KEYWORD_ONLY:
                return method(*args, **kwargs, **{self._error.name: failure})
            return method(*args, failure, **kwargs)
        finally:
            del failure


def _by_method(name: str, declaration: Declaration, owner: type | None) -> Aside:
    where = f"{declaration.where} @Fallback(fallback_method)"
    attribute = attribute_of(name, declaration, owner)
    last: _Passing | None = None

    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        nonlocal last
        try:
            method = named(attribute, declaration, owner, args)
            if method is None:
                raise FaultToleranceDefinitionException(
                    Fault(where, missing(name, declaration, owner), name, "the name of a function there")
                )
            if last is None or last.function is not getattr(method, "__func__", method):
                last = _Passing(method, declaration, where)
            return last(method, args, kwargs, failure)
        finally:
            del failure

    return call
