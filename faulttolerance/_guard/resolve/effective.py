"""The policies in force for one guard and one concrete class: the declared policies, after configuration."""

# Without annotations from __future__: those of a named tuple would be compiled at every import.

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._call.order import RANK
from ..._config import Configuration, Declared, Effective, Switches, settings, with_configured_policies
from ..._policy import Bulkhead, Policy, Timeout
from ..._signature.lookup import defining_class_of
from ..._signature.method import as_method, bind_at_each_call
from ..._signature.naming import class_name, qualified_name_of
from ...exceptions import Fault
from ..declare.checks.definition import callback_faults, companion_faults, value_faults
from ..declare.declaration import (
    INSTANCE,
    Declaration,
    class_level_of,
    declaration_of,
    first_definition,
    holds,
    is_attribute,
    unbound,
)

if TYPE_CHECKING:
    from ..declare.registry import AnyResolver


def call_wrappers_of(basis: Configuration, subject: object) -> list[Any]:
    """Return the call wrappers among the overrides of *basis* that apply to *subject*, the innermost first.

    A call wrapper is no policy, and changes no value: it wraps the attempts and calls of a test, as ``TargetWrapper``.
    """
    found: list[Any] = [override for override in basis.overrides if hasattr(override, "applies_to_calls_of")]
    return sorted((one for one in found if one.applies_to_calls_of(subject)), key=lambda one: not one.is_innermost)


class _EffectiveFields(NamedTuple):
    name: str
    function: Callable[..., Any]
    declared: Sequence[Declared] = ()
    values: Sequence[Effective] = ()
    interceptors: tuple[Any, ...] = ()
    declared_by: Mapping[type[Policy], type] = {}
    switches: Switches = Switches()
    line: str = ""
    call_wrappers: Sequence[Any] = ()


class EffectivePolicies(_EffectiveFields):
    """The policies in force for one guard and one concrete class, resolved again at each request.

    Args:
        name: The name of the method in metrics and messages: ``module.Class.method`` with the concrete class.
        function: The function that runs, alone if nothing guards it.
        declared: The declared policies; empty if the method runs unguarded.
        values: The same policies after configuration, in the same order.
        interceptors: The interceptors around the method, the outermost first.
        declared_by: The class that declares each policy; empty for a function.
        switches: The switches of the whole application.
        line: The name in metrics if it differs: the line that several guards share.
        call_wrappers: The call wrappers of tests around its calls, the innermost first.
    """

    @cached_property
    def policies(self) -> dict[type[Policy], Policy]:
        """The policies in force, outermost first."""
        return {type(value.policy): value.policy for value in self.values if value.enabled}

    @property
    def observed(self) -> frozenset[type[Policy]]:
        """The policies in force that are only observed."""
        return frozenset(type(value.policy) for value in self.values if value.enabled and value.observed)


def effective_policies(
    resolver: "AnyResolver", cls: type | None, basis: Configuration, *, is_checked: bool = True
) -> tuple[EffectivePolicies, list[Fault]]:
    """Return the policies in force for a guarded function used by *cls*, and, if *is_checked*, their faults."""
    declaration: Declaration = resolver.declaration
    name = resolver.name_for(cls)
    if cls is None:
        function, interceptors = declaration.template, declaration.interceptors
        where = qualified_name_of(function)
        declared = [Declared(policy, "method", *where) for policy in declaration.policies.values()]
        declared_by: dict[type[Policy], type] = {}
    else:
        function, policies, owner = _function_for(declaration, cls)
        declared, declared_by, interceptors = [], {}, ()
        # Rule L3: a method that is called through super(), or by the name of a base class, runs unguarded.
        if is_first(declaration, cls):
            class_level, class_level_interceptors = class_level_of(declaration, cls, function, owner)
            declared = list(_declared(declaration.name, cls, owner, policies, class_level))
            home = owner if declaration.owner is not None else defining_class_of(declaration.template, cls)
            declared_by = {kind: base for kind, (_, base) in class_level.items()} | dict.fromkeys(policies, home)
            interceptors = (*class_level_interceptors, *declaration.interceptors)
    if declaration.binding == INSTANCE and type(function) is not FunctionType:
        function = bind_at_each_call(function)
    if not declared and not interceptors:
        return EffectivePolicies(name, function), []
    declared.sort(key=lambda entry: RANK[type(entry.policy)])
    unconfigured = EffectivePolicies(name, function, declared, (), interceptors, declared_by)
    effective, faults = configured(unconfigured, (resolver, cls), basis)
    return effective, faults or (_faults(declaration, effective, cls) if is_checked else [])


def configured(
    policies: EffectivePolicies, subject: tuple[Any, type | None], basis: Configuration
) -> tuple[EffectivePolicies, list[Fault]]:
    """Return *policies*, which *subject* declares, with their values under *basis*, and the faults of these."""
    declared = with_configured_policies(policies.declared, basis.snapshot)
    values, faults = settings.resolve(declared, policies.name, basis, subject)
    switches, call_wrappers = settings.switches_under(basis), call_wrappers_of(basis, subject)
    return policies._replace(declared=declared, values=values, switches=switches, call_wrappers=call_wrappers), faults


def plain_function(declaration: Declaration, cls: type | None) -> Callable[..., Any]:
    """Return the function that runs, without its guard, if *cls* uses it."""
    function = declaration.template if cls is None else _function_for(declaration, cls)[0]
    return bind_at_each_call(function) if declaration.binding == INSTANCE else function


def is_first(declaration: Declaration, cls: type) -> bool:
    """Return whether no attribute of the same name hides the guard from objects of *cls* (rule L3)."""
    definition = first_definition(cls, declaration.name)
    return definition is None or holds(definition[1], declaration) or not is_attribute(declaration, cls)


def _declared(
    name: str,
    cls: type,
    owner: type,
    policies: Mapping[type[Policy], Policy],
    class_level: Mapping[type[Policy], tuple[Policy, type]],
) -> Iterator[Declared]:
    """Yield the policies on the method *name*, and those of classes that cover it, with the places for keys."""
    where = class_name(owner)
    owners = (where,) if cls is owner else tuple(dict.fromkeys((class_name(cls), where)))
    for policy in policies.values():
        yield Declared(policy, "method", where, name, owners)
    for kind, (policy, base) in class_level.items():
        if kind not in policies:
            yield Declared(policy, "class", class_name(base), name, tuple(dict.fromkeys((*owners, class_name(base)))))


def _function_for(
    declaration: Declaration, cls: type
) -> tuple[Callable[..., Any], Mapping[type[Policy], Policy], type]:
    """Return the function that runs for *cls*, its method-level policies, and the class that defines it."""
    if declaration.function is not None:
        return declaration.function, declaration.policies, declaration.owner or cls
    definition = first_definition(cls, declaration.name, after=declaration)
    if definition is None:
        return declaration.template, declaration.policies, declaration.owner or cls
    base, attribute = definition
    value = as_method(attribute, base, declaration.name)
    function = unbound(value) if isinstance(value, (staticmethod, classmethod)) else value
    inherited = declaration_of(function)
    if inherited is None:
        return function, declaration.policies, base
    behind, policies, owner = _function_for(inherited, cls)
    return behind if type(function) is FunctionType else function, policies, owner  # a wrapper of wrapt stays


def _faults(declaration: Declaration, effective: EffectivePolicies, cls: type | None) -> list[Fault]:
    """Return the faults that can be checked only when everything is known."""
    faults = [*companion_faults(effective.declared, effective.name, cls)]
    asynchronous = declaration.is_asynchronous(effective.policies)
    for value in effective.values:
        if value.enabled:
            home = effective.declared_by.get(type(value.policy))
            problems = callback_faults(value.policy, declaration, effective.name, asynchronous, home, final=True)
            faults += map(value.with_source, problems)
    return [*faults, *mismatches(effective)]


def mismatches(effective: EffectivePolicies) -> Iterator[Fault]:
    """Yield the faults of contradictory values in force, with the source of the first configured value."""
    for fault in value_faults(effective.policies, effective.name):
        configured = {type(value.policy): value.configured for value in effective.values}
        source = configured.get(Bulkhead, {}).get("latency") or configured.get(Timeout, {}).get("value")
        yield fault._replace(source=source or fault.source)
