"""The fingerprint of the configuration: two processes that show the same text are configured alike (rule Y4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import NoneType
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..._config import Switches, settings
from ..._config.formatting import formatted, plain
from ..._log import log_guard_error
from ..._policy import ChronoUnit, Policy, parameters, seconds
from ..declare.declaration import declared_on
from ..declare.registry import name_of, renew_memos
from .effective import EffectivePolicies

if TYPE_CHECKING:
    from ..declare.registry import AnyResolver


def fingerprint() -> str:
    """Return 16 hexadecimal digits that are the same in every process with the same code and configuration.

    They are the first digits of SHA-256 over every effective value and switch of every existing guard, by its name. The
    order does not depend on that of the declarations. Equal durations and sets are equal in any notation. Guards of one
    line count as one.
    """
    basis = settings.basis()

    def renewed(resolver: AnyResolver, memo: Any) -> tuple[object, object, set[str]]:
        """Return the digests of one guard, those of *memo* if neither classes nor declarations have changed since."""
        try:
            classes = list(resolver.classes())
            users = [NoneType if cls is None else cls for cls in classes]
            declared = [(ref(user), [*map(declared_on, user.__mro__)]) for user in users]
            if memo is not None and memo[0] is basis and memo[1] == declared:
                return memo  # type: ignore[no-any-return]
            found = [resolver.in_force(cls, basis) for cls in classes]
        except Exception as error:  # noqa: BLE001  # the others must still be found
            log_guard_error(name_of(resolver), "it is left out, because resolving its policies failed", error)
            return None, None, set()
        return basis, declared, {fingerprint_of(effective) for effective in found if effective.declared}

    return _digest(digest for *_, digests in renew_memos(renewed) for digest in digests)


def fingerprint_of(effective: EffectivePolicies) -> str:
    """Return the fingerprint of one guard."""
    return _digest([_canonical(effective)])


_is_shown = False
"""Whether the gauge was read: its next reading should not resolve the policies of every guard."""


def read_fingerprint() -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the sample of the gauge ``ft.config.info``."""
    global _is_shown
    if _switches().metrics_enabled:
        _is_shown = True
        yield (fingerprint(),), 1


def follow_configuration() -> None:
    """Compute the fingerprint after a change of the configuration, so that the reload pays for it, and no reader."""
    if _is_shown and settings.state.switches is not None:  # else it would read them, and fix them
        fingerprint()


def _switches() -> Switches:
    return settings.switches_under(settings.state)


def _digest(guards: Iterable[str]) -> str:
    from hashlib import sha256

    # A set: the guards of one line that exist already depend on earlier calls.
    content = {"guards": sorted(set(guards)), "switches": _switches()._asdict()}
    return sha256(_json(content).encode()).hexdigest()[:16]


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
            yield name, plain(value)
