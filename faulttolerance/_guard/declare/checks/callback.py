"""Checks of callbacks of a policy against the guarded function: fallbacks, and functions before a retry (rule R6)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, cast

from ...._parameters import accepts_arguments, signature_of
from ...._policy import BeforeRetry, Fallback, RecallingHandler
from ...._shown import shown
from ...._signature.annotation import ANYTHING, Type, ancestry, display, is_gradual, is_resolved
from ...._signature.compatibility import Callee, Mismatch, kind_mismatches, mismatches
from ...._signature.lookup import NamedFunction, find_in_class, find_in_module, mangle, missing
from ...._signature.return_kind import ReturnKind, return_kind
from ....exceptions import Fault
from ....typing import FallbackHandler
from ..declaration import FUNCTION, INSTANCE, Declaration


def faults(
    policy: Fallback | BeforeRetry,
    declaration: Declaration,
    where: str,
    asynchronous: bool,
    owner: type | None,
    final: bool,
) -> list[Fault]:
    """Return the faults of the callback of *policy*; see ``definition.callback_faults``."""
    if isinstance(policy, Fallback) and isinstance(policy.value, tuple):
        place = f"{where} @{policy.annotation}(value)"
        found = [faults(link, declaration, where, asynchronous, owner, final) for link in policy.links]
        return [fault._replace(where=place) for faults_of_one in found for fault in faults_of_one]
    if isinstance(policy, Fallback) and isinstance(policy.value, RecallingHandler):
        return key_faults(f"{where} @{policy.annotation}(value)", getattr(policy.value, "key", None), declaration)
    is_own_fallback = policy is declaration.policies.get(Fallback) and owner is declaration.owner
    if final and is_own_fallback and declaration.fallback_fits is asynchronous:
        return []
    guarded = Callee(declaration.template, owner, takes_self=declaration.binding != FUNCTION)
    guarded.is_awaited = is_awaited_in_the_end(declaration, asynchronous, final)
    parameter, got = "value", cast(Any, policy.value)
    problems: list[Mismatch]
    if got is None:
        if owner is None and not (final and declaration.binding == FUNCTION):
            return []
        parameter = "fallback_method" if isinstance(policy, Fallback) else "method_name"
        got = getattr(policy, parameter)
        problems = [*_problems_of_named(got, isinstance(policy, Fallback), guarded, declaration, owner)]
    elif isinstance(policy, BeforeRetry):
        problems = [*_of(f"is {shown(got)}", kind_mismatches(guarded, got))]
    else:
        problems = [*_problems_of_handler(got, guarded)]
        if is_own_fallback:
            declaration.fallback_fits = guarded.is_awaited if guarded.is_settled and not problems else None
    where = f"{where} @{policy.annotation}({parameter})"
    return [Fault(where, problem, got, allowed) for problem, allowed in problems]


def key_faults(where: str, key: Any, declaration: Declaration) -> list[Fault]:
    """Return the faults of a *key* of calls, declared as *where*, that does not fit the guarded function."""
    if key is None:
        return []
    from ...._signature.call_key import mismatches

    found = mismatches(key, declaration.template, takes_self=declaration.binding != FUNCTION)
    return [Fault(where, problem, key, allowed) for problem, allowed in found]


def is_awaited_in_the_end(declaration: Declaration, asynchronous: bool, final: bool) -> bool | None:
    """Return whether calls are awaited; ``None`` if a further decorator could still make them *asynchronous*.

    On a class, too, a decorator may follow. Without an annotation, calls are not awaited.
    """
    if asynchronous or final:
        return asynchronous
    kind = return_kind(declaration.template, declaration.owner)
    is_certain = kind is ReturnKind.PLAIN or (kind is ReturnKind.UNKNOWN and declaration.owner is not None)
    return False if is_certain else None


def _problems_of_named(
    name: str, is_fallback: bool, guarded: Callee, declaration: Declaration, owner: type | None
) -> Iterator[Mismatch]:
    named = find_in_class(name, owner) if owner else find_in_module(name, declaration.template)
    if named is None:
        allowed = "; in a class, also of a function in its bases" if is_fallback else " that has no parameters"
        yield missing(name, declaration.template, owner), f"the name of a function there{allowed}"
        return
    subject, function = f"names {shown(name)}", named.function
    is_itself = function is declaration.guard or (owner is not None and mangle(name, owner) == declaration.name)
    if is_fallback and is_itself:
        allowed = "another function; if the class is guarded, exempt it by @unguarded"
        yield f"{subject}, which is the guarded function itself", allowed
        return
    if named.needs_instance and declaration.binding != INSTANCE:
        yield f"{subject}, which needs an instance", "a class method or static method, as the guarded method is"
    if is_fallback:
        substitute = Callee(function, owner, named.home, takes_self=named.takes_self)
        yield from _of(subject, mismatches(guarded, substitute))
    else:
        if not accepts_arguments(function, int(named.takes_self)):
            yield f"{subject}, whose parameters are {signature_of(function)}", "a function without parameters"
        yield from _of(subject, kind_mismatches(guarded, function))


def _problems_of_handler(value: Any, guarded: Callee) -> Iterator[Mismatch]:
    subject, arguments = f"is {getattr(value, '__qualname__', None) or shown(value)}", 1
    if isinstance(value, type):
        handle = find_in_class("handle", value)
        is_abstract = inspect.isabstract(value) or getattr(value, "_is_protocol", False)
        subject = f"is the class {value.__qualname__}"
        if handle is None or handle.home is FallbackHandler or is_abstract:
            yield f"{subject}, which is abstract or does not define handle", "a class that defines handle"
            return
        if not accepts_arguments(value, 0):
            allowed = "or a callable, such as the bound method handle of an instance"
            problem = f"{subject}, whose constructor needs arguments: {signature_of(value)}"
            yield problem, f"a class whose constructor needs no arguments; {allowed}"
        subject, arguments = f"is {value.__qualname__}.handle", 1 + handle.takes_self
        callee = _callee_of(value, handle)
    else:
        callee = Callee(value, takes_self=False)
    guarded.is_settled = guarded.is_settled and callee.is_settled
    if not accepts_arguments(callee.function, arguments):
        problem = f"{subject}, which does not take one argument: {callee.signature}"
        by_name = "a function with the parameters of the guarded function is passed as fallback_method, by its name"
        yield problem, f"a handler that takes an ExecutionContext; {by_name}"
    yield from _of(subject, mismatches(guarded, callee, but_parameters=True))


def _callee_of(handler: type, handle: NamedFunction) -> Callee:
    """Return the method *handle* of a class; types that it does not annotate may come from a generic class."""
    callee = Callee(handle.function, handler, handle.home, takes_self=handle.takes_self)
    if callee.signature is not None and is_gradual(callee.returned):
        callee.returned = (ancestry(Type(handler)).get(FallbackHandler) or (ANYTHING,))[0]
        callee.returned_text = display(callee.returned.head)
        callee.is_settled = callee.is_settled and is_resolved(callee.returned)
    return callee


def _of(subject: str, clauses: Iterable[Mismatch]) -> Iterator[Mismatch]:
    return ((f"{subject}, {problem}", allowed) for problem, allowed in clauses)
