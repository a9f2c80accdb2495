"""What ``@fallback`` names: whether it fits the guarded function, and how it is called (rule R6)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from typing import Any

from .._call.side_call import SideCall
from .._policy import Fallback
from .._runtime.blocking import Aside
from .._shown import shown
from .._signature.annotation import (
    ANYTHING,
    Scope,
    Type,
    ancestry,
    displayed,
    is_known,
    members,
    resolved,
    says_nothing,
    signature,
    takes,
)
from .._signature.compatibility import Guarded, Problem, can_bind, fitted, is_asynchronous, shape_of
from .._signature.lookup import (
    NamedFunction,
    attribute_of,
    found_in_class,
    found_in_module,
    home_of,
    mangled,
    missing,
    named,
    weakly,
)
from ..exceptions import Fault, FaultToleranceDefinitionException
from ..typing import FallbackHandler
from .declaration import FUNCTION, INSTANCE, Declaration
from .invocation import context_of

__all__ = ["aside", "faults"]


def faults(
    policy: Fallback,
    declaration: Declaration,
    where: str,
    asynchronous: bool,
    owner: type | None = None,
    *,
    final: bool = False,
) -> list[Fault]:
    """What is wrong with a fallback, as far as can be told now.

    A method is looked up once its class is created, a function of the module once the guard is used. *where* names the
    guarded function. *asynchronous* tells that it is asynchronous, so that the fallback may be. *owner* is the class
    that declares the fallback, from which the method is looked up; by default that of the guarded function. *final*
    tells that no further decorator can make the guarded function asynchronous; a handler that was found to fit, all
    names being known, is then not looked at again.
    """
    owner = owner or declaration.owner
    is_its_own = policy is declaration.policies.get(Fallback) and owner is declaration.owner
    if final and is_its_own and declaration.fallback_fits is asynchronous:
        return []
    function, takes_itself = declaration.template, declaration.binding != FUNCTION
    waited_for = is_asynchronous(function, declaration.owner, asynchronous, final)
    guarded = Guarded(function, takes_itself, owner, waited_for)
    name, got = ("value", policy.value) if policy.value is not None else ("fallback_method", policy.fallback_method)
    if policy.value is not None:
        problems = _problems_of_handler(policy.value, guarded)
    elif owner is not None or (final and declaration.binding == FUNCTION):
        problems = _problems_of_method(policy.fallback_method, declaration, owner, guarded)
    else:
        return []
    found = [Fault(f"{where} @Fallback({name})", problem, got, allowed) for problem, allowed in problems]
    if is_its_own and policy.value is not None:
        declaration.fallback_fits = guarded.asynchronous if guarded.is_certain and not found else None
    return found


def aside(policy: Fallback, declaration: Declaration, asynchronous: bool, owner: type | None = None) -> Aside:
    """Call the fallback for a failed call; the parameters are those of ``faults``.

    An error of the fallback comes out, and tells of the failure that it was called for as its context.
    """
    if policy.value is not None:
        return _Handler(policy.value, declaration, asynchronous)
    return _Method(policy.fallback_method, declaration, asynchronous, owner or declaration.owner)


def _remember(error: BaseException, failure: BaseException) -> None:
    """Let *error* tell what it happened in the handling of, unless it knows already or is part of that."""
    if error.__context__ is None:
        seen: list[BaseException] = []
        waiting = [failure]
        while waiting:
            one = waiting.pop()
            if one is error:
                return
            if not any(one is other for other in seen):
                seen.append(one)
                waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        error.__context__ = failure


class _Watched(SideCall):
    __slots__ = ("_declaration",)

    def __init__(self, declaration: Declaration, asynchronous: bool) -> None:
        super().__init__(asynchronous)
        self._declaration = declaration

    def _ends_here(self, error: BaseException, failure: BaseException) -> bool:
        _remember(error, failure)
        return False


# Handlers


class _Handler(_Watched):
    __slots__ = ("_value",)

    def __init__(self, value: Callable[[Any], Any], declaration: Declaration, asynchronous: bool) -> None:
        super().__init__(declaration, asynchronous)
        self._value = value

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        value: Any = self._value
        handle = value().handle if isinstance(value, type) else value
        try:
            return handle(context_of(self._declaration, args, kwargs, failure, attempts))
        finally:
            del failure  # its traceback may hold this frame


def _problems_of_handler(value: Callable[[Any], Any], guarded: Guarded) -> Iterator[Problem]:
    if not isinstance(value, type):
        yield from _problems_of_handling(value, value, None, guarded)
        return
    name = value.__qualname__
    handle = found_in_class("handle", value)
    is_abstract = inspect.isabstract(value) or getattr(value, "_is_protocol", False)
    if handle is None or handle.home is FallbackHandler or is_abstract:
        yield f"is the class {name}, which is abstract or does not define handle", "a class that defines handle"
        return
    constructor = signature(value)
    if not can_bind(constructor, 0):
        yield (
            f"is the class {name}, whose constructor needs arguments: {constructor}",
            "a class that is made without arguments; or a callable, as the bound method handle of an object of it",
        )
    yield from _problems_of_handling(value, handle.function, handle, guarded)


def _problems_of_handling(
    value: Any, function: Callable[..., Any], handle: NamedFunction | None, guarded: Guarded
) -> Iterator[Problem]:
    """What is wrong with *function*, which is *value* itself or the method *handle* of that class."""
    subject = f"is {getattr(value, '__qualname__', None) or shown(value)}" + (".handle" if handle else "")
    found = signature(function)
    if not can_bind(found, 2 if handle and handle.takes_itself else 1):
        yield f"{subject}, which does not take one argument: {found}", "a handler that takes an ExecutionContext"
    yield from guarded.problems_of_kind(subject, function)
    if found is None:
        return
    scope = Scope.of(function, value if handle else None, handle.home if handle else None)
    gives, text = resolved(found.return_annotation, scope), displayed(found.return_annotation)
    guarded.is_certain = guarded.is_certain and is_known(gives)
    if handle is not None and says_nothing(gives):
        gives = (ancestry(Type(value)).get(FallbackHandler) or (ANYTHING,))[0]
        text = str(gives)
    yield from guarded.problems_of_result(subject, function, gives, text)


# Methods


def _problems_of_method(name: str, declaration: Declaration, owner: type | None, guarded: Guarded) -> Iterator[Problem]:
    found = found_in_class(name, owner) if owner else found_in_module(name, declaration.template)
    if found is None:
        yield (
            missing(name, declaration.template, owner),
            "the name of a function there, in a class also of one in its bases",
        )
        return
    subject = f"names {shown(name)}"
    if found.function is declaration.guard or (owner is not None and mangled(name, owner) == declaration.name):
        yield (
            f"{subject}, which is the guarded function itself",
            "another, exempt from the class's by @unguarded",
        )
        return
    if found.needs_instance and declaration.binding != INSTANCE:
        yield f"{subject}, which needs an instance", "a class method or static method, as the guarded one is"
    yield from guarded.problems_of_kind(subject, found.function)
    scope = Scope.of(found.function, owner, found.home)
    yield from guarded.problems_of_parameters(subject, shape_of(found.function, found.takes_itself), scope)
    result = signature(found.function)
    if result is not None:
        gives, text = resolved(result.return_annotation, scope), displayed(result.return_annotation)
        yield from guarded.problems_of_result(subject, found.function, gives, text)


class _Method(_Watched):
    __slots__ = ("_attribute", "_home", "_last", "_name")

    def __init__(self, name: str, declaration: Declaration, asynchronous: bool, owner: type | None) -> None:
        super().__init__(declaration, asynchronous)
        self._name = name
        self._attribute = attribute_of(name, declaration.template, owner)
        self._home = weakly(owner)
        self._last: _Passing | None = None

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        try:
            method, passing = self._found(args)
            return passing(method, args, kwargs, failure)
        finally:
            del failure  # its traceback may hold this frame

    def accepts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException) -> bool:
        """Whether the method is called for *failure*, and not only raises it again."""
        return self._found(args)[1].accepts(args, kwargs, failure)

    def _found(self, args: tuple[Any, ...]) -> tuple[Callable[..., Any], _Passing]:
        declaration, owner, last = self._declaration, self._home(), self._last
        method = named(self._attribute, declaration.template, declaration.binding != FUNCTION, owner, args)
        if method is None:
            raise FaultToleranceDefinitionException(
                Fault(_where(declaration), missing(self._name, declaration.template, owner), self._name,
                      "the name of a function there")
            )  # fmt: skip
        if last is None or last.function() is not getattr(method, "__func__", method):
            last = self._last = _Passing(method, declaration, owner)
        return method, last


def _where(declaration: Declaration) -> str:
    return f"{declaration.where} @Fallback(fallback_method)"


class _Passing:
    """How one function is called as the fallback; made at its first use, since an override may be another each time."""

    __slots__ = ("_accepts", "_bound", "_classes", "_count", "_error", "_signature", "function")

    def __init__(self, method: Callable[..., Any], declaration: Declaration, owner: type | None) -> None:
        self.function = weakly(getattr(method, "__func__", method))
        self._bound = declaration.binding != FUNCTION
        guarded = Guarded(declaration.template, self._bound, owner, asynchronous=None)
        scope = Scope.of(method, owner, home_of(method, owner) if owner is not None else None)
        fit = fitted(guarded.shape, shape_of(method, takes_itself=False), scope)
        if fit is None:
            name = getattr(method, "__qualname__", method)
            problem = f"leads to {name}, whose parameters {signature(method)} are not those of the guarded function"
            raise FaultToleranceDefinitionException(Fault(_where(declaration), problem, method, guarded.allowed))
        self._error = fit.error
        self._accepts = ANYTHING if fit.error is None else resolved(fit.error.annotation, scope)
        heads = [one.head for one in members(self._accepts)]
        self._classes = tuple(head for head in heads if isinstance(head, type) and head is not Any)
        self._signature = signature(declaration.template)
        # So many positional arguments need no defaults, and can be passed on as they are.
        shape = guarded.shape
        self._count = -1 if shape is None or shape.rest or shape.named else len(shape.positional) + self._bound

    def __call__(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException
    ) -> Any:
        """Call *method* for the call with *args* and *kwargs*; raise *failure* again where that is not for it."""
        try:
            if not self._takes(failure):
                raise failure
            if (kwargs or len(args) != self._count) and self._signature is not None:
                found = self._bind(args, kwargs)
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
            del failure  # its traceback may hold this frame

    def accepts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException) -> bool:
        """Whether the method is called for such a call that failed so."""
        return self._takes(failure) and (self._signature is None or self._bind(args, kwargs) is not None)

    def _takes(self, failure: BaseException) -> bool:
        return self._error is None or isinstance(failure, self._classes) or takes(self._accepts, failure)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments | None:
        assert self._signature is not None
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError:
            return None
