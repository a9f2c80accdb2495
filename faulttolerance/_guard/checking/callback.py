"""Whether the callbacks of a policy fit the guarded function: fallbacks, and what runs before a retry (rule R6)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..._policy import BeforeRetry, Fallback
from ..._shown import shown
from ..._signature.annotation import ANYTHING, Type, ancestry, is_gradual, is_resolved, signature_of
from ..._signature.compatibility import (
    Callee,
    Mismatch,
    accepts_arguments,
    kind_mismatches,
    mismatches,
    result_mismatches,
)
from ..._signature.lookup import found_in_class, found_in_module, mangled, missing
from ..._signature.outcome import Outcome, outcome
from ...exceptions import Fault
from ...typing import FallbackHandler
from ..declaration import FUNCTION, INSTANCE, Declaration


def faults(
    policy: Fallback | BeforeRetry,
    declaration: Declaration,
    where: str,
    asynchronous: bool,
    owner: type | None = None,
    *,
    final: bool = False,
) -> list[Fault]:
    """List what is wrong with the callback of *policy*, as far as can be told now.

    A method is looked up once its class is created, a function of the module once the guard is used.

    Args:
        policy: What names or holds the callback.
        declaration: The guarded function.
        where: Its name, as in messages.
        asynchronous: Whether its calls are awaited, so that the callback may be asynchronous.
        owner: The class that declares the policy, from which a method is looked up; by default that of the function.
        final: Whether no further decorator can make the guarded function asynchronous. A handler that was found to
            fit, all names being known, is then not looked at again.
    """
    owner = owner or declaration.owner
    is_own_fallback = policy is declaration.policies.get(Fallback) and owner is declaration.owner
    if final and is_own_fallback and declaration.fallback_fits is asynchronous:
        return []
    is_awaited = is_awaited_in_the_end(declaration, asynchronous, final)
    guarded = Callee(declaration.template, owner, takes_itself=declaration.binding != FUNCTION)
    parameter, got = "value", policy.value
    if policy.value is None:
        if owner is None and not (final and declaration.binding == FUNCTION):
            return []
        parameter = "fallback_method" if isinstance(policy, Fallback) else "method_name"
        got = getattr(policy, parameter)
        problems = list(_problems_of_named(policy, got, declaration, owner, guarded, is_awaited))
    elif isinstance(policy, BeforeRetry):
        problems = list(_problems_before_retry(f"is {shown(got)}", policy.value, 1, guarded, is_awaited))
    else:
        handler = _handler_of(policy.value)
        problems = list(_problems_of_handler(policy.value, handler, guarded, is_awaited))
        if is_own_fallback:
            is_certain = not problems and guarded.is_settled and handler is not None and handler.signature.is_settled
            declaration.fallback_fits = is_awaited if is_certain else None
    where = f"{where} @{policy.annotation}({parameter})"
    return [Fault(where, problem, got, allowed) for problem, allowed in problems]


def is_awaited_in_the_end(declaration: Declaration, asynchronous: bool, final: bool) -> bool | None:
    """Tell whether calls are awaited; ``None`` where a further decorator could still make them *asynchronous*.

    On a class a decorator may follow too; where nothing is annotated, calls are not awaited.
    """
    if asynchronous or final:
        return asynchronous
    kind = outcome(declaration.template, declaration.owner)
    is_certain = kind is Outcome.FOREIGN or (kind is Outcome.OBJECT and declaration.owner is not None)
    return False if is_certain else None


# Functions by their names


def _problems_of_named(
    policy: Fallback | BeforeRetry,
    name: str,
    declaration: Declaration,
    owner: type | None,
    guarded: Callee,
    is_awaited: bool | None,
) -> Iterator[Mismatch]:
    is_fallback = isinstance(policy, Fallback)
    named = found_in_class(name, owner) if owner else found_in_module(name, declaration.template)
    if named is None:
        allowed = ", in a class also of one in its bases" if is_fallback else " that has no parameters"
        yield missing(name, declaration.template, owner), f"the name of a function there{allowed}"
        return
    subject = f"names {shown(name)}"
    is_itself = named.function is declaration.guard or (owner is not None and mangled(name, owner) == declaration.name)
    if is_fallback and is_itself:
        yield f"{subject}, which is the guarded function itself", "another, exempt from the class's by @unguarded"
        return
    if named.needs_instance and declaration.binding != INSTANCE:
        yield f"{subject}, which needs an instance", "a class method or static method, as the guarded one is"
    if not is_fallback:
        yield from _problems_before_retry(subject, named.function, int(named.takes_itself), guarded, is_awaited)
        return
    substitute = Callee(named.function, owner, named.home, takes_itself=named.takes_itself)
    for problem, allowed in mismatches(guarded, substitute, is_awaited):
        yield f"{subject}, {problem}", allowed


def _problems_before_retry(
    subject: str, function: Callable[..., Any], arguments: int, guarded: Callee, is_awaited: bool | None
) -> Iterator[Mismatch]:
    signature = signature_of(function)
    if not accepts_arguments(signature, arguments):
        is_named = subject.startswith("names")
        allowed = "a function without parameters" if is_named else "one that takes an ExecutionContext"
        yield f"{subject}, whose parameters are {signature}", allowed
    for problem, allowed in kind_mismatches(guarded, function, is_awaited):
        yield f"{subject}, {problem}", allowed


# Handlers


class _Handler(NamedTuple):
    """What is called with the execution context: a callable, or the method ``handle`` of a class."""

    subject: str
    signature: Callee
    arguments: int


def _handler_of(value: Callable[[Any], Any]) -> _Handler | None:
    """Describe the handler *value*; ``None`` for a class that has none."""
    subject = f"is {getattr(value, '__qualname__', None) or shown(value)}"
    if not isinstance(value, type):
        return _Handler(subject, Callee(value, takes_itself=False), 1)
    handle = found_in_class("handle", value)
    is_abstract = inspect.isabstract(value) or getattr(value, "_is_protocol", False)
    if handle is None or handle.home is FallbackHandler or is_abstract:
        return None
    signature = Callee(handle.function, value, handle.home, takes_itself=handle.takes_itself)
    if signature.written is not None and is_gradual(signature.returned):
        signature.returned = (ancestry(Type(value)).get(FallbackHandler) or (ANYTHING,))[0]
        signature.returned_text = str(signature.returned)
        signature.is_settled = signature.is_settled and is_resolved(signature.returned)
    return _Handler(f"{subject}.handle", signature, 2 if handle.takes_itself else 1)


def _problems_of_handler(
    value: Callable[[Any], Any], handler: _Handler | None, guarded: Callee, is_awaited: bool | None
) -> Iterator[Mismatch]:
    name = getattr(value, "__qualname__", "")
    if handler is None:
        yield f"is the class {name}, which is abstract or does not define handle", "a class that defines handle"
        return
    constructor = signature_of(value) if isinstance(value, type) else None
    if not accepts_arguments(constructor, 0):
        yield (
            f"is the class {name}, whose constructor needs arguments: {constructor}",
            "a class that is made without arguments; or a callable, as the bound method handle of an object of it",
        )
    subject, signature, arguments = handler
    if not accepts_arguments(signature.written, arguments):
        problem = f"{subject}, which does not take one argument: {signature.written}"
        yield problem, "a handler that takes an ExecutionContext"
    for problem, allowed in (
        *kind_mismatches(guarded, signature.function, is_awaited),
        *result_mismatches(guarded, signature, is_awaited),
    ):
        yield f"{subject}, {problem}", allowed
