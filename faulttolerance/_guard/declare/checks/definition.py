"""Checks of the policies of a function or a class, as far as possible when they are declared."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ...._call.core import is_detached
from ...._call.order import MODIFIED, ROWS
from ...._call.row import Row
from ...._config import Declared
from ...._parameters import accepts_arguments, signature_of
from ...._policy import (  # fmt: skip
    BeforeRetry,
    Bulkhead,
    ChronoUnit,
    CircuitBreaker,
    CircuitBreakerName,
    Fallback,
    Policy,
    Timeout,
    parameters,
    seconds,
)
from ...._shown import shown
from ...._signature.kind import is_coroutine_function
from ...._signature.naming import class_name
from ....exceptions import Fault, definition_error
from ..declaration import Declaration, class_level_at_home, declaration_of, declared_on, descriptors_of

_NO_ROW = Row()
"""The row of a policy that only configuration declares."""


def definition_faults(declaration: Declaration) -> list[Fault]:
    """Return the faults of a function, as far as they are known when its last policy is declared."""
    policies, where, owner = declaration.policies, declaration.where, declaration.owner
    asynchronous = declaration.is_asynchronous({**class_level_at_home(declaration), **policies})
    faults: list[Fault] = []
    if is_detached(policies):
        faults += _asynchronous_faults(declaration, where, owner)
    faults += [*exclusive_faults(policies, where), *value_faults(policies, where)]
    for policy in policies.values():
        faults += callback_faults(policy, declaration, where, asynchronous)
    return faults + _interceptor_faults(declaration.interceptors, declaration, where, owner)


def value_faults(policies: Mapping[type[Policy], Policy], where: str) -> Iterator[Fault]:
    """Yield the faults of values of *policies* that contradict the values of another one."""
    bulkhead, timeout = policies.get(Bulkhead), policies.get(Timeout)
    if isinstance(bulkhead, Bulkhead) and isinstance(timeout, Timeout):
        latency, limit = seconds(bulkhead.latency, ChronoUnit.MILLIS), seconds(timeout.value, timeout.unit)
        if 0.0 < limit <= latency:  # no attempt can exceed the target, because its time-out ends it (rule A3)
            problem = f"is {latency:g} s, and attempts end after {limit:g} s"
            allowed = "less than the time-out, or 0 for a limit that stays"
            yield Fault(f"{where} @Bulkhead(latency)", problem, bulkhead.latency, allowed)
    breaker, name = policies.get(CircuitBreaker), policies.get(CircuitBreakerName)
    own = breaker.name if isinstance(breaker, CircuitBreaker) else ""
    if isinstance(name, CircuitBreakerName) and own not in ("", name.value):
        problem = f"is {name.value!r}, and @CircuitBreaker(name) is {own!r}"
        yield Fault(f"{where} @CircuitBreakerName(value)", problem, name.value, "one name per circuit breaker")


def exclusive_faults(
    policies: Container[type[Policy]], where: str, rows: Mapping[type[Policy], Row] = ROWS
) -> list[Fault]:
    """Return the faults of *policies* that exclude one another."""
    present = {kind: row for kind, row in rows.items() if kind in policies}
    pairs = [(kind, row.excludes) for kind, row in present.items() if row.excludes in present]
    gates = [kind for kind, row in present.items() if row.is_gate]
    back_offs = [kind for kind, row in present.items() if row.is_back_off]
    pairs += [(kind, group[0]) for group in (gates, back_offs) for kind in group[1:]]
    return [
        Fault(f"{where} @{kind.annotation}", f"is combined with @{other.annotation}", None, "only one of them")
        for kind, other in pairs
        if other is not None
    ]


def class_level_faults(
    declaration: Declaration,
    cls: type,
    class_level: Mapping[type[Policy], tuple[Policy, type]],
    interceptors: Iterable[Any] = (),
) -> list[Fault]:
    """Return the faults of the class-level policies and interceptors of *cls* for one of its methods."""
    where = f"{class_name(cls)}.{declaration.name}"
    faults: list[Fault] = []
    if is_detached(class_level) and not declaration.is_coroutine:
        exemption = "; or @unguarded above the method, which exempts it"
        faults += _asynchronous_faults(declaration, where, cls, exemption)
    together = {**class_level, **declaration.policies}
    # Without the policies that make calls asynchronous: there a method may differ from its class.
    rows = {kind: row for kind, row in ROWS.items() if row.strategy_factory is not None}
    faults += exclusive_faults(together, where, rows)
    faults += value_faults({kind: policy for kind, (policy, _) in class_level.items()} | declaration.policies, where)
    asynchronous = declaration.is_asynchronous(together)
    for kind, (policy, home) in class_level.items():
        if kind not in declaration.policies:
            faults += callback_faults(policy, declaration, where, asynchronous, home)
    return faults + _interceptor_faults(interceptors, declaration, where, cls)


def descriptor_faults(target: object) -> list[Fault]:
    """Return the fault of a *target* that becomes another object when it is looked up."""
    if callable(target) or isinstance(target, classmethod) or not hasattr(type(target), "__get__"):
        return []
    allowed = "a function, a method, a class; guard the function in it"
    return [Fault(f"@{type(target).__name__}", "cannot be guarded", target, allowed)]


def _asynchronous_faults(
    declaration: Declaration, where: str, owner: type | None, also_allowed: str = ""
) -> list[Fault]:
    """Return the faults of ``@asynchronous`` on a function whose annotation excludes a result that comes later."""
    from ...._signature.annotation import display
    from ...._signature.return_kind import ReturnKind, return_kind

    function = declaration.template
    if return_kind(function, owner) is not ReturnKind.PLAIN:
        return []
    signature = signature_of(function)
    annotation = signature.return_annotation if signature is not None else None
    text = display(annotation)
    allowed = f"`async def`, or a result that comes later: `-> Future[{text}]` or `-> Awaitable[{text}]`"
    return [
        Fault(f"{where} @Asynchronous", f"is on a function that returns {text}", annotation, allowed + also_allowed)
    ]


def _interceptor_faults(
    interceptors: Iterable[Any], declaration: Declaration, where: str, owner: type | None
) -> list[Fault]:
    """Return the faults of *interceptors* that would turn a function into a coroutine function."""
    functions = [interceptor.function for interceptor in interceptors if is_coroutine_function(interceptor.function)]
    if not functions or declaration.is_coroutine:
        return []
    from ...._signature.return_kind import ReturnKind, return_kind

    if return_kind(declaration.template, owner) is ReturnKind.AWAITABLE:
        return []
    return [
        Fault(f"{where} @{getattr(function, '__name__', function)}", "is `async def`, and its callers await nothing",
              function, "a plain `def`; `async def` only around functions that are awaited, or annotated so")
        for function in functions
    ]  # fmt: skip


# Companions: policies that modify another policy


def companion_faults(declared: Sequence[Declared], where: str, cls: type | None) -> Iterator[Fault]:
    """Yield the faults of companions of a policy that the function does not have: they would silently have no effect.

    Decorators come in any order, and those of a class last. Therefore the faults are known only at the first use of the
    function. A policy that is switched off counts as present. A class-level companion is for the methods of the class
    that have the other policy. An abstract class has no objects: its subclasses may have the policies that its methods
    lack.
    """
    if getattr(cls, "__abstractmethods__", None):
        return
    kinds = {type(each.policy) for each in declared}
    for each in [each for each in declared if type(each.policy) in MODIFIED]:
        row = ROWS[type(each.policy)]
        mains = [main for main in (row.modifies, row.or_else) if main is not None]
        is_of_class = each.level == "class" and cls is not None
        if mains and not any(main in kinds or (is_of_class and _occurs(main, cls)) for main in mains):
            problem = f"is used without {' or '.join(f'@{main.annotation}' for main in mains)}"
            allowed = f"{' or '.join(f'@{decorator_name(main)}' for main in mains)} on the same method or its class"
            yield Fault(f"{where} @{each.policy.annotation}", problem, None, allowed)


def decorator_name(kind: type[Policy]) -> str:
    """Return the name of the decorator of *kind*, which is also that of the parameter of a ``Guard``."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in kind.annotation).removeprefix("_")


def _occurs(kind: type[Policy], cls: Any) -> bool:
    """Return whether a method of *cls* has a policy of *kind*, from any decorator."""
    guards = (declaration_of(value) for base in cls.__mro__ for _, value in descriptors_of(base))
    return any(kind in declared_on(base).policies for base in cls.__mro__) or any(
        declaration is not None and kind in declaration.policies for declaration in guards
    )


# Callbacks: functions of the application that a policy calls


def callback_faults(
    policy: Policy,
    declaration: Declaration,
    where: str,
    asynchronous: bool,
    owner: type | None = None,
    *,
    final: bool = False,
) -> list[Fault]:
    """Return the misfits between the callbacks of *policy* and the guarded function, as far as they are known now.

    A method is looked up after the creation of its class, a function of the module at the use of the guard.

    Args:
        policy: The policy.
        declaration: The guarded function.
        where: The name of the guarded function in the faults.
        asynchronous: Whether its calls are awaited, so that the callback may be asynchronous.
        owner: The class that declares the policy, in which methods are looked up; by default that of the function.
        final: Whether no further decorator can make the guarded function asynchronous. A handler that fitted, with all
            names known, is then not checked again.
    """
    if isinstance(policy, (Fallback, BeforeRetry)):
        from . import callback  # only the comparison of functions needs ``inspect``

        return callback.faults(policy, declaration, where, asynchronous, owner or declaration.owner, final)
    row = ROWS.get(type(policy), _NO_ROW)
    if row.needs_arguments:
        from . import callback

        return callback.key_faults(f"{where} @{policy.annotation}(key)", getattr(policy, "key", None), declaration)
    if row.faults is not None:
        return row.faults(policy, f"{where} @{policy.annotation}", declaration, asynchronous, owner, final)
    asked: list[tuple[str, Any]] = [
        (name, value.__call__ if isinstance(value, type) else value)
        for name in _callable_parameters(type(policy))  # type: ignore[arg-type]
        if callable(value := getattr(policy, name))
    ]
    if asked and any(is_coroutine_function(function) for _, function in asked):
        from .callback import is_awaited_in_the_end

        # The caller that awaits the call awaits the callback too; a decorator that makes it so may still follow.
        if is_awaited_in_the_end(declaration, asynchronous, final) is not False:
            return []
    return [
        fault
        for parameter, function in asked
        for fault in never_awaited_faults(f"{where} @{policy.annotation}({parameter})", function)
    ]


@cache
def _callable_parameters(kind: Any) -> list[str]:
    return [name for name, parameter in parameters(kind).items() if parameter.kind.name == "callable"]


def check_name(where: str, name: object, allowed: str) -> None:
    """Raise an error if *name* is no text."""
    if not isinstance(name, str):
        raise definition_error(where, f"is {shown(name)}", name, allowed)


def never_awaited_faults(where: str, function: Any, passed: str = "") -> list[Fault]:
    """Return the fault of an object that cannot be called, or of a coroutine function, which is never awaited.

    *passed* are the names of its arguments, if they are known.
    """
    allowed = f"a synchronous function of {passed}" if passed else "a synchronous function"
    if not callable(function):
        return [Fault(where, f"is {shown(function)}", function, allowed)]
    problem = f"is {getattr(function, '__qualname__', function)}"
    if is_coroutine_function(function):
        return [Fault(where, f"{problem}, a coroutine function, which nothing awaits", function, allowed)]
    if passed and not accepts_arguments(function, len(passed.split(", "))):
        return [Fault(where, f"{problem}, whose parameters are {signature_of(function)}", function, allowed)]
    return []
