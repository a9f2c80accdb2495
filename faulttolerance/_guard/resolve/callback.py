"""The callbacks of policies, run beside a call: fallbacks, and functions before a retry (rule R6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from ..._execution.caller_thread import Callback
from ..._policy import BeforeRetry, Fallback
from ..._signature.annotation import ANYTHING, accepts, members, resolve
from ..._signature.compatibility import Callee, allowed_parameters, extra_parameters
from ..._signature.lookup import LateLookup, weak_reference_to
from ...exceptions import FaultToleranceDefinitionException, definition_error
from ...typing import ExecutionContext
from ..declare.declaration import FUNCTION, Declaration

_new = object.__new__


def context_of(
    declaration: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempt: int
) -> ExecutionContext:
    """Return the context of a call of the guard of *declaration*."""
    context = _new(ExecutionContext)  # filled in place: the constructor is one more file on the way of a failing call
    context.method, context.target, context.args = split_receiver(declaration, args)
    context.kwargs, context.failure, context.attempt = kwargs, failure, attempt
    context._parameters = None
    return context


def split_receiver(declaration: Declaration, args: tuple[Any, ...]) -> tuple[Callable[..., Any], Any, tuple[Any, ...]]:
    """Return the method, its object or class, and the other arguments, as the application sees them."""
    method = declaration.guard_ref() or declaration.template
    return (method, None, args) if declaration.binding == FUNCTION or not args else (method, args[0], args[1:])


class BoundCallback(ABC):
    """Code of the application beside a call."""

    __slots__ = ("_declaration",)

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration

    @abstractmethod
    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        """Run the code for the failed call with *args* and *kwargs*."""


def bind_callback(policy: Fallback | BeforeRetry, declaration: Declaration, owner: type | None = None) -> Callback:
    """Return the call of the callback of *policy*, which *owner* declares; by default the class of the function."""
    owner = owner or declaration.owner
    if isinstance(policy, BeforeRetry):
        return _BeforeRetry(policy, declaration, owner)
    if policy.value is not None:
        assert callable(policy.value)
        return _HandlerFallback(policy.value, declaration)
    return _MethodFallback(policy.fallback_method, declaration, owner)


class _HandlerFallback(BoundCallback):
    __slots__ = ("_value",)

    def __init__(self, value: Callable[[Any], Any], declaration: Declaration) -> None:
        super().__init__(declaration)
        self._value = value

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        value: Any = self._value
        handle = value().handle if isinstance(value, type) else value
        try:
            return handle(context_of(self._declaration, args, kwargs, failure, attempts))
        finally:
            del failure  # its traceback may refer to this frame


class _MethodFallback(BoundCallback):
    __slots__ = ("_adapter", "_lookup")

    def __init__(self, name: str, declaration: Declaration, owner: type | None) -> None:
        super().__init__(declaration)
        self._lookup = LateLookup(name, declaration.template, owner, declaration.binding != FUNCTION)
        self._adapter: _Adapter | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        passed = None
        try:
            method, adapter = self._find(args)
            passed = adapter.arguments(args, kwargs, failure)
            if passed is None:
                raise failure
            return method(*passed[0], **passed[1])
        finally:
            del failure, passed  # its traceback may refer to this frame

    def accepts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException) -> bool:
        """Return whether the method is called for *failure*, instead of raising *failure* again without a call."""
        return self._find(args)[1].arguments(args, kwargs, failure) is not None

    def _find(self, args: tuple[Any, ...]) -> tuple[Callable[..., Any], _Adapter]:
        method, adapter = self._lookup.find(args), self._adapter
        if method is None:
            lookup, allowed = self._lookup, "the name of a function there"
            raise _no_fallback(self._declaration, lookup.missing(), lookup.name, allowed)
        if adapter is None or adapter.function() is not getattr(method, "__func__", method):
            shows_self = self._lookup.shows_self(method, args)
            adapter = self._adapter = _Adapter(method, self._declaration, self._lookup.owner, shows_self)
        return method, adapter


def _no_fallback(declaration: Declaration, problem: str, got: Any, allowed: str) -> FaultToleranceDefinitionException:
    return definition_error(f"{declaration.where} @Fallback(fallback_method)", problem, got, allowed)


class _Adapter:
    """Passes the arguments of guarded calls, and their failures, to one method; created at its first use."""

    __slots__ = ("_accepted", "_classes", "_count", "_error", "_is_bound", "_signature", "function")

    def __init__(
        self, method: Callable[..., Any], declaration: Declaration, owner: type | None, shows_self: bool
    ) -> None:
        self.function = weak_reference_to(getattr(method, "__func__", method))
        self._is_bound = declaration.binding != FUNCTION
        guarded = Callee(declaration.template, owner, takes_self=self._is_bound)
        substitute = Callee(method, owner, takes_self=shows_self)
        extra = extra_parameters(guarded, substitute)
        if extra is None:
            name = getattr(method, "__qualname__", method)
            problem = f"leads to {name}, whose parameters {substitute.signature} are not those of the guarded function"
            raise _no_fallback(declaration, problem, method, allowed_parameters(guarded))
        self._error = extra[0] if extra else None
        self._accepted = resolve(extra[0].annotation, substitute.scope) if extra else ANYTHING
        heads = [member.head for member in members(self._accepted)]
        self._classes = tuple(head for head in heads if isinstance(head, type) and head is not Any)
        self._signature = guarded.signature
        # This number of positional arguments needs no defaults, and can be passed on unchanged.
        keys = (guarded.parameters or {}).keys() - {"**"}
        self._count = len(keys) + self._is_bound if all(isinstance(key, int) for key in keys) else -1

    def arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
        """Return the arguments for a failed call; ``None`` if the method does not accept them, or the failure."""
        if self._error and not isinstance(failure, self._classes) and not accepts(self._accepted, failure):
            return None
        if (kwargs or len(args) != self._count) and self._signature is not None:
            try:
                bound = self._signature.bind(*args, **kwargs)
            except TypeError:
                return None  # the failure says that they are wrong
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if self._is_bound:
            args = args[1:]
        if self._error is None:
            return args, kwargs
        if self._error.kind is Parameter.KEYWORD_ONLY:
            return args, {**kwargs, self._error.name: failure}
        return (*args, failure), kwargs


class _BeforeRetry(BoundCallback):
    __slots__ = ("_lookup", "_value")

    def __init__(self, policy: BeforeRetry, declaration: Declaration, owner: type | None) -> None:
        super().__init__(declaration)
        self._value = policy.value
        self._lookup = LateLookup(policy.method_name, declaration.template, owner, declaration.binding != FUNCTION)

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        if self._value is not None:
            return self._value(context_of(self._declaration, args, kwargs, failure, attempts))
        method = self._lookup.find(args)
        if method is None:
            raise AttributeError(f"@before_retry {self._lookup.missing()}")
        return method()
