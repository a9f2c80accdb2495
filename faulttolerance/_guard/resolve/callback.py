"""The callbacks of policies, run beside a call: fallbacks, and functions before a retry (rule R6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
    return context


def split_receiver(declaration: Declaration, args: tuple[Any, ...]) -> tuple[Callable[..., Any], Any, tuple[Any, ...]]:
    """Return the method, its object or class, and the other arguments, as the application sees them."""
    method = declaration.guard_ref() or declaration.template
    return (method, None, args) if declaration.binding == FUNCTION or not args else (method, args[0], args[1:])


def bind_callback(policy: Fallback | BeforeRetry, declaration: Declaration, owner: type | None = None) -> Callback:
    """Return the call of the callback of *policy*, which *owner* declares; by default the class of the function."""
    if policy.value is not None:
        return _Handler(policy.value, declaration)
    owner = owner or declaration.owner
    if isinstance(policy, Fallback):
        return _MethodFallback(policy.fallback_method, declaration, owner)
    return partial(_call_named_hook, _lookup(policy.method_name, declaration, owner))


class _Handler:
    __slots__ = ("_declaration", "_value")  # a partial object would take 160 bytes more, for each of many methods

    def __init__(self, value: Any, declaration: Declaration) -> None:
        self._value, self._declaration = value, declaration

    def __call__(self, *failed_call: Any) -> Any:
        value = self._value
        handle = value().handle if isinstance(value, type) and hasattr(value, "handle") else value
        try:
            return handle(context_of(self._declaration, *failed_call))
        finally:
            del failed_call  # the traceback of its failure may refer to this frame


def _call_named_hook(lookup: LateLookup, args: tuple[Any, ...], *_: object) -> Any:
    method = lookup.find(args)
    if method is None:
        raise AttributeError(f"@before_retry {lookup.missing()}")
    return method()


def _lookup(name: str, declaration: Declaration, owner: type | None) -> LateLookup:
    return LateLookup(name, declaration.template, owner, declaration.binding != FUNCTION)


class _MethodFallback:
    __slots__ = ("_adapter", "_declaration", "_lookup")

    def __init__(self, name: str, declaration: Declaration, owner: type | None) -> None:
        self._declaration = declaration
        self._lookup = _lookup(name, declaration, owner)
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
            function, takes_self = self._lookup.unbound(method, args)
            substitute = Callee(function, self._lookup.owner, takes_self=takes_self)
            adapter = self._adapter = _Adapter(method, substitute, self._declaration, self._lookup.owner)
        return method, adapter


def _no_fallback(declaration: Declaration, problem: str, got: Any, allowed: str) -> FaultToleranceDefinitionException:
    return definition_error(f"{declaration.where} @Fallback(fallback_method)", problem, got, allowed)


class _Adapter:
    """Passes the arguments of guarded calls, and their failures, to one method; created at its first use."""

    __slots__ = ("_accepted", "_classes", "_count", "_error", "_is_bound", "_is_wrapper", "_signature", "function")

    def __init__(
        self, method: Callable[..., Any], substitute: Callee, declaration: Declaration, owner: type | None
    ) -> None:
        self.function = weak_reference_to(getattr(method, "__func__", method))
        self._is_bound = declaration.binding != FUNCTION
        guarded = Callee(declaration.template, owner, takes_self=self._is_bound)
        extra = extra_parameters(guarded, substitute)
        if extra is None:
            name = getattr(method, "__qualname__", method)
            problem = f"leads to {name}, whose parameters {substitute.signature} are not those of the guarded function"
            raise _no_fallback(declaration, problem, method, allowed_parameters(guarded))
        self._error = extra[0] if extra else None
        self._accepted = resolve(extra[0].annotation, substitute.scope) if extra else ANYTHING
        heads = [member.head for member in members(self._accepted)]
        self._classes = tuple(head for head in heads if isinstance(head, type))
        self._signature = guarded.signature
        self._is_wrapper = hasattr(declaration.template, "__wrapped__")
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
                if not self._is_wrapper:  # a wrapper may provide arguments, and take others
                    return None  # the failure says that they are wrong
            else:
                bound.apply_defaults()
                args, kwargs = bound.args, bound.kwargs
        if self._is_bound:
            args = args[1:]
        if self._error is None:
            return args, kwargs
        if self._error.kind is Parameter.KEYWORD_ONLY:
            return args, {**kwargs, self._error.name: failure}
        return (*args, failure), kwargs
