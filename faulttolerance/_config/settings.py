"""Which value holds for a declared policy, and where it came from."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._policy import Fallback, check, parameters
from ..exceptions import Fault, FaultToleranceDefinitionException
from .effective import Effective
from .key import (
    INTERCEPTOR_PRIORITY,
    METRICS_ENABLED,
    NON_FALLBACK_ENABLED,
    Declared,
    enabled_keys,
    parameter_keys,
    switch_key,
)
from .snapshot import CONFIG_VARIABLE, Entry, Inputs, Snapshot, environment

__all__ = ["Settings", "Switches", "settings"]


class Switches(NamedTuple):
    """What the specification lets be set once for the whole application."""

    non_fallback_enabled: bool = True
    metrics_enabled: bool = True
    interceptor_priority: int = 4010


class _Unset:
    pass


_UNSET = _Unset()


class Settings:
    """The configuration in force.

    One reference to an immutable snapshot: whoever changes the configuration prepares a new one, resolves every guard
    against it, and installs it only if nothing is wrong.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._switches: Switches | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The keys in force; the environment is read when they are first asked for."""
        found = self._snapshot
        if found is None:
            prepared = self.prepare()
            with self._lock:
                found = self._snapshot = self._snapshot or prepared
        return found

    def prepare(
        self,
        *,
        properties: Mapping[str, Any] | _Unset = _UNSET,
        files: Iterable[str | os.PathLike[str]] | _Unset = _UNSET,
        sources: Iterable[Any] | _Unset = _UNSET,
    ) -> Snapshot:
        """Read all sources anew and change nothing.

        What is not given stays as it was given last.

        Args:
            properties: Keys and values, nested or not; the strongest source.
            files: Read in addition to those that ``FAULTTOLERANCE_CONFIG`` names; of equals the last wins.
            sources: Settings sources of pydantic-settings or other callables that give a mapping.

        Raises:
            FaultToleranceDefinitionException: If a source cannot be read.
        """
        last = self._snapshot.inputs if self._snapshot is not None else Inputs()
        inputs = Inputs(
            last.properties if isinstance(properties, _Unset) else dict(properties),
            last.files if isinstance(files, _Unset) else tuple(os.fspath(file) for file in files),
            last.sources if isinstance(sources, _Unset) else tuple(sources),
        )
        found = environment()
        named = [name for name in os.environ.get(CONFIG_VARIABLE, "").split(os.pathsep) if name]
        if not (inputs.properties or inputs.files or inputs.sources or named):
            return Snapshot([found] if found else [], inputs)
        from .reading import read

        return Snapshot([*([found] if found else []), *read(inputs, named)], inputs)

    def install(self, snapshot: Snapshot) -> None:
        """Let *snapshot* be in force for every guard that is resolved from now on."""
        with self._lock:
            self._snapshot = snapshot

    def reset(self) -> None:
        """Forget everything that was given and read, the switches included."""
        with self._lock:
            self._snapshot = self._switches = None

    @property
    def switches(self) -> Switches:
        """The global switches, read once at the first resolution.

        Specification: they "will only be read on application starting".

        Raises:
            FaultToleranceDefinitionException: If one has a wrong value.
        """
        if self._switches is None:
            switches, faults = read_switches(self.snapshot)
            if faults:
                raise FaultToleranceDefinitionException(*faults)
            with self._lock:
                self._switches = self._switches or switches
        return self._switches

    def resolve(
        self, declared: Sequence[Declared], where: str, snapshot: Snapshot | None = None
    ) -> tuple[list[Effective], list[Fault]]:
        """The effective policies of one guard, in the order of *declared*, and all that is wrong with them.

        Called once per guard and again when the configuration changes; it may import modules that a value names. With a
        *snapshot* that is not in force yet nothing is remembered.

        Args:
            declared: What the guarded function's annotations say.
            where: The guarded function in messages, as in ``acme.Client.charge``.
            snapshot: Where to look; by default the one in force.
        """
        try:
            if snapshot is None or snapshot is self._snapshot or self._switches is not None:
                snapshot, switches, faults = snapshot or self.snapshot, self.switches, list[Fault]()
            else:
                switches, faults = read_switches(snapshot)
        except FaultToleranceDefinitionException as error:
            return [Effective(one.policy) for one in declared], list(error.faults)
        if snapshot.is_empty:
            return [Effective(one.policy, _is_on(one, switches)) for one in declared], faults
        effective = []
        for one in declared:
            resolved, wrong = _resolved(one, where, snapshot, switches)
            effective.append(resolved)
            faults += wrong
        return effective, faults


def read_switches(snapshot: Snapshot) -> tuple[Switches, list[Fault]]:
    """The global switches of *snapshot*, and what is wrong with them."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for field, name in (
        ("non_fallback_enabled", NON_FALLBACK_ENABLED),
        ("metrics_enabled", METRICS_ENABLED),
        ("interceptor_priority", INTERCEPTOR_PRIORITY),
    ):
        if entry := snapshot.find(switch_key(name)):
            from .value import switch

            value, fault = switch(int if field == "interceptor_priority" else bool, name, entry)
            if fault:
                faults.append(fault)
            else:
                values[field] = value
    return Switches(**values), faults


def _is_on(declared: Declared, switches: Switches) -> bool:
    # Specification: "resilient functionalities disabled except fallback".
    return switches.non_fallback_enabled or isinstance(declared.policy, Fallback)


def _resolved(declared: Declared, where: str, snapshot: Snapshot, switches: Switches) -> tuple[Effective, list[Fault]]:
    policy, faults = declared.policy, list[Fault]()
    found: dict[str, tuple[str, Entry]] = {}
    for name in parameters(type(policy)):
        for key in parameter_keys(declared, name):
            if entry := snapshot.find(key):
                found[name] = key.name, entry
                break
    enabled, configured = _is_on(declared, switches), {}
    for key in enabled_keys(declared):
        if entry := snapshot.find(key):
            from .value import switch

            value, fault = switch(bool, key.name, entry)
            enabled, configured["enabled"] = bool(value), _words(key.name, entry)
            faults += [fault] if fault else []
            break
    if found:
        from .value import validated

        values, wrong = validated(type(policy), found)
        faults += wrong
        if not faults:
            values = {name: getattr(policy, name) for name in parameters(type(policy))} | values

            def located(name: str) -> tuple[str, str]:
                if name not in found:
                    return f"{where} @{policy.annotation}({name})", "set by the decorator"
                return found[name][0], found[name][1].place

            faults += check(type(policy), values, where, located)
        if not faults:
            policy = type(policy)(**values)
            configured |= {name: _words(key, entry) for name, (key, entry) in found.items()}
    return Effective(policy, enabled, configured), faults


def _words(key: str, entry: Entry) -> str:
    return f"{key} in {entry.place}"


settings = Settings()
