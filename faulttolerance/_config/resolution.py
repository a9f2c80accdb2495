"""The effective values and their sources: the switches of the whole application, and one declared policy.

The switches are read without pydantic: a service mesh can switch everything off.
"""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from .._log import log_guard_error
from .._policy import Fallback, Policy, parameters
from .._shown import install, shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from .key import ENABLED, MODE, SWITCHES, TRACING_VARIABLE, UNDECLARED, Declared, parameter_keys, switch_key
from .snapshot import Snapshot
from .source import FLAG, OBSERVED, Entry, parsed


class Switches(NamedTuple):
    """The specification's switches, which are read once, in the order of ``SWITCHES``."""

    non_fallback_enabled: bool = True
    metrics_enabled: bool = True
    interceptor_priority: int = 4010


def read_switches(snapshot: Snapshot) -> tuple[Switches, list[Fault]]:
    """Read the global switches; a wrong switch has its default, and the faults report it."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, field, default in zip(SWITCHES, Switches._fields, Switches(), strict=True):
        if setting := snapshot.find([switch_key(name)]):
            try:
                values[field] = parsed(*setting, FLAG if isinstance(default, bool) else None)
            except FaultToleranceDefinitionException as error:
                faults += error.faults
    return Switches(**values), faults


# The switch for tracing, which this library adds to the specification


EVENTS, SPANS, OFF = "events", "spans", "off"
TRACING = {"": EVENTS, "true": EVENTS, "false": OFF, EVENTS: EVENTS, SPANS: SPANS, OFF: OFF}
"""The tracing modes by the text of values, in lower case."""


def tracing_mode() -> str:
    """Return the tracing mode of the environment; ``EVENTS`` if the variable is unset or invalid."""
    return TRACING.get(variable(TRACING_VARIABLE).lower(), EVENTS)


def tracing_faults(where: str, value: object, place: str = "") -> list[Fault]:
    """Return the faults of a tracing mode: the *value* of an argument, or of the variable."""
    allowed = ""
    if (mode := TRACING.get(str(value).lower())) is None:
        allowed = "events, spans or off"
    elif mode == SPANS:
        try:
            import_module("opentelemetry.trace")
        except ImportError:
            allowed = f"'spans' only with opentelemetry-api: {install('opentelemetry')}"
    return [Fault(where, f"is {shown(value)}", value, allowed, place)] if allowed else []


def variable(name: str) -> str:
    """Return the value of the environment variable *name* without surrounding spaces; empty if it is unset."""
    return os.environ.get(name, "").strip()


class Effective(NamedTuple):
    """A policy with the configured values in place of the declared values.

    Args:
        policy: The policy with the values in force; the declared object itself if no parameter is configured.
        enabled: Whether the policy takes part in calls.
        configured: The key and the source of each configured parameter (and of ``enabled`` and ``mode``), as in
            ``Retry/maxRetries in environment variable FAULTTOLERANCE_RETRY_MAXRETRIES``.
        observed: Whether the policy is only observed, so that its decisions have no effect (rule X7).
    """

    policy: Policy
    enabled: bool = True
    configured: Mapping[str, str] = MappingProxyType({})
    observed: bool = False

    @property
    def mode(self) -> str:
        """The value of the key ``mode``."""
        return "observe" if self.observed else "enforce"

    @property
    def sources(self) -> Mapping[str, str]:
        """The origin of each parameter: ``default``, ``decorator``, or the words of *configured*."""
        declared = {
            name: "default" if getattr(self.policy, name) == parameter.default else "decorator"
            for name, parameter in parameters(self.policy).items()
        }
        return {**declared, **self.configured}

    def with_source(self, fault: Fault) -> Fault:
        """Return *fault* with the source of the configured value, if its parameter is configured."""
        name = fault.where.rpartition("(")[2].removesuffix(")")
        return fault._replace(source=self.configured[name]) if name in self.configured else fault


def resolved(declared: Declared, where: str, snapshot: Snapshot, switches: Switches) -> tuple[Effective, list[Fault]]:
    """Replace the declared values by the configured values; return the effective policy and the faults."""
    policy, annotation = declared.policy, declared.policy.annotation
    # Specification: "resilient functionalities disabled except fallback".
    enabled = switches.non_fallback_enabled or isinstance(policy, Fallback)
    if not snapshot.concerns(annotation):
        return Effective(policy, enabled), []
    configured, faults = dict[str, str](), list[Fault]()

    def find(name: str) -> tuple[str, Entry] | None:
        return snapshot.find(parameter_keys(declared, name)) if snapshot.mentions(annotation, name) else None

    def switch(name: str, words: Mapping[str, bool]) -> bool | None:
        if (setting := find(name)) is None:
            return None
        configured[name] = _source(*setting)
        try:
            return bool(parsed(*setting, words))
        except FaultToleranceDefinitionException as error:
            faults.extend(error.faults)
            return False

    if (is_on := switch(ENABLED, FLAG)) is not None:
        enabled = is_on
    observed = bool(switch(MODE, OBSERVED))
    settings = {name: setting for name in parameters(policy) if (setting := find(name))}
    if settings:
        from .value import validated

        values, wrong_values = validated(policy, where, settings, Effective(policy).sources)
        if wrong_values:
            faults += wrong_values
        else:
            policy = type(policy)._of(values)
            configured |= {name: _source(*setting) for name, setting in settings.items()}
    if policy.permission and enabled and policy.is_active and variable(policy.permission).lower() != "true":
        # A variable set for all processes of a machine must not fail the calls of a process that allows no chaos.
        enabled = False
        words = f"{annotation.lower()} is switched off, unless the environment variable {policy.permission} is true"
        log_guard_error("; ".join(configured.values()), words, PermissionError("calls would fail on purpose"))
    return Effective(policy, enabled, configured, observed), faults


def with_configured_policies(declared: Sequence[Declared], snapshot: Snapshot | None) -> Sequence[Declared]:
    """Return *declared* and, innermost, the policies that keys alone add to the guard."""
    if not declared or snapshot is None:
        return declared
    nearest, added = max(declared, key=lambda one: len(one.enabled_owners)), []
    for kind in UNDECLARED:
        if snapshot.concerns(kind.annotation):
            own = nearest._replace(policy=kind(), level="configuration")
            if any(snapshot.find(parameter_keys(own, name)) for name in parameters(kind)):
                added.append(own)
    return [*declared, *added] if added else declared


def _source(key: str, entry: Entry) -> str:
    return f"{key} in {entry.place}"
