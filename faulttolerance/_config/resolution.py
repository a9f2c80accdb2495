"""Which values hold for one declared policy, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._policy import DEFAULT_PLACE, Fallback, check, parameters
from ..exceptions import Fault, FaultToleranceDefinitionException
from .declared import Declared, Effective
from .global_switches import Switches
from .key import ENABLED, enabled_keys, parameter_keys
from .snapshot import Snapshot
from .source import Entry, flag, parsed

INSTALL = "pip install pydantic-settings"


def resolved(declared: Declared, where: str, snapshot: Snapshot, switches: Switches) -> tuple[Effective, list[Fault]]:
    """Put the configured values in place of the declared ones, and tell all that is wrong with them."""
    policy, annotation, faults = declared.policy, declared.policy.annotation, list[Fault]()
    # Specification: "resilient functionalities disabled except fallback".
    enabled = switches.non_fallback_enabled or isinstance(policy, Fallback)
    configured: dict[str, str] = {}
    if snapshot.mentions(annotation, ENABLED) and (setting := snapshot.find(enabled_keys(declared))):
        configured[ENABLED] = _source(*setting)
        try:
            enabled = parsed(*setting, flag)
        except FaultToleranceDefinitionException as error:
            enabled, faults = False, [*error.faults]
    settings = {
        name: setting
        for name in parameters(policy)
        if snapshot.mentions(annotation, name) and (setting := snapshot.find(parameter_keys(declared, name)))
    }
    if settings:
        values, wrong_values = _values(declared, where, settings)
        if wrong_values:
            faults += wrong_values
        else:
            policy = type(policy)(**values)
            configured |= {name: _source(*setting) for name, setting in settings.items()}
    return Effective(policy, enabled, configured), faults


def _values(
    declared: Declared, where: str, settings: Mapping[str, tuple[str, Entry]]
) -> tuple[dict[str, Any], list[Fault]]:
    policy = declared.policy
    try:
        from .value import validated
    except ImportError as error:
        return {}, [
            Fault(key, f"needs {error.name}", entry.value, INSTALL, entry.place) for key, entry in settings.values()
        ]
    values, faults = validated(type(policy), settings)
    if faults:
        return {}, faults
    values = {name: getattr(policy, name) for name in parameters(policy)} | values

    def located(name: str) -> tuple[str, str]:
        if name in settings:
            key, entry = settings[name]
            return key, entry.place
        is_default = Effective(policy).sources[name] == "default"
        return f"{where} @{policy.annotation}({name})", DEFAULT_PLACE if is_default else "set by the decorator"

    return values, check(type(policy), values, where, located)


def _source(key: str, entry: Entry) -> str:
    return f"{key} in {entry.place}"
