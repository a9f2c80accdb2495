"""One short text for all that holds: two processes that show the same one are configured alike (rule Y4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from .._cause import CausedBy
from .._config import Switches, settings
from .._config.formatting import formatted
from .._policy import ChronoUnit, Policy, parameters, seconds
from .effective import EffectivePolicies
from .registry import every_effective, resolvers


def fingerprint() -> str:
    """Give 16 hexadecimal digits that are the same in every process with the same code and configuration.

    They are the first of SHA-256 over every effective value and switch of every guard that exists, by its name, in an
    order that does not depend on that of declarations; equal durations and sets are equal however they are written.
    Guards that one line makes count as one.
    """
    return _digest(_canonical(effective) for effective in _every_effective())


def fingerprint_of(effective: EffectivePolicies) -> str:
    """Give the fingerprint of one guard."""
    return _digest([_canonical(effective)])


_read: tuple[object, str] = (None, "")


def read_fingerprint() -> Iterator[tuple[tuple[str, ...], float]]:
    """Give what the gauge ``ft.config.info`` shows; found anew when the configuration changes, or a guard is made."""
    global _read
    if not _switches().metrics_enabled:
        return
    basis = settings.state, sum(1 for _ in resolvers())
    if _read[0] != basis:
        _read = basis, fingerprint()
    yield (_read[1],), 1


def _every_effective() -> Iterator[EffectivePolicies]:
    for _, _, effective in every_effective():
        if effective.declared:
            yield effective


def _switches() -> Switches:
    return settings.switches_under(settings.state)


def _digest(guards: Iterable[str]) -> str:
    from hashlib import sha256

    # A set: which of the guards of one line were made already depends on what was called.
    told = {"guards": sorted(set(guards)), "switches": _switches()._asdict()}
    return sha256(_json(told).encode()).hexdigest()[:16]


def _canonical(effective: EffectivePolicies) -> str:
    policies = {
        value.policy.annotation: {"enabled": value.enabled, "observed": value.observed, **dict(_values(value.policy))}
        for value in effective.values
    }
    return _json([effective.line or effective.name, policies])


def _json(value: object) -> str:
    import json

    return json.dumps(value, sort_keys=True)


def _values(policy: Policy) -> Iterator[tuple[str, Any]]:
    kinds = {name: parameter.kind for name, parameter in parameters(policy).items()}
    units = {kind.unit for kind in kinds.values()}
    for name, kind in kinds.items():
        value = getattr(policy, name)
        if kind.name == "duration":
            unit = getattr(policy, kind.unit) if kind.unit else ChronoUnit.MILLIS
            yield name, round(seconds(value, unit), 9)
        elif kind.name == "exceptions":
            yield name, sorted(map(formatted, value))
        elif name not in units:
            yield name, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(member) for member in value]
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)):
        return value
    # What has no name of its own shows an address, which the next process does not have.
    is_named = isinstance(value, (Enum, CausedBy)) or hasattr(value, "__qualname__")
    return formatted(value if is_named else type(value))
