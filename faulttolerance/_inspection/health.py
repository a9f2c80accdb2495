"""Whether calls get through, read from the state of the guards, for readiness probes (rule Y5)."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Literal, TypeAlias

from .._call.order import ORDER
from .._call.state import alias_in
from .._guard.declare.registry import every_state, resolve_remote_circuits, resolvers
from .._log import WARNING, log
from .._record import Record
from .._shown import one_or_several, shown
from ..exceptions import definition_error

Status: TypeAlias = Literal["up", "degraded", "down"]

_compared_patterns: set[str] = set()
"""Patterns that were compared with the names of all guards."""


class LastReload:
    """The time and the outcome of the last reload of the configuration."""

    def __init__(self) -> None:
        self.outcome = ("", "")
        """The outcome, as in ``succeeded at 2026-11-24T01:00:00+00:00``, and the problem; empty before any reload."""

    def record(self, problem: str = "") -> None:
        """Record that a reload ended now; *problem* is the reason if it failed."""
        from datetime import UTC, datetime

        words = f"{'failed' if problem else 'succeeded'} at {datetime.now(UTC).isoformat(timespec='seconds')}"
        impairment = (
            f"the last reload {words}, because of {problem}; the old configuration stays in force" if problem else ""
        )
        self.outcome = (words, impairment)

    forget = __init__


last_reload = LastReload()


class Health(Record):
    """The result of ``health``.

    Args:
        status: ``"up"``, ``"degraded"`` or ``"down"``.
        reasons: The problems, one sentence for each strategy that refuses calls or makes them wait.
        reload: The outcome and the time of the last ``reload``, as ``"succeeded at 2026-11-24T01:00:00+00:00"``; empty
            if there was none.
    """

    status: Status
    reasons: tuple[str, ...] = ()
    reload: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the values that an end point can answer as JSON; ``reload`` appears after the first reload."""
        reload = {"reload": self.reload} if self.reload else {}
        return {"status": self.status, "reasons": list(self.reasons), **reload}


def health(critical: Iterable[str] | str = ()) -> Health:
    """Return whether the services that this process calls can be reached, as far as its guards know.

    It reads counts and states: it calls no service, and holds no lock for long.

    Args:
        critical: Patterns of names, as in ``"acme.payments.*"``, of guards without which the service cannot do its
            work.

    Returns:
        ``status`` is ``"down"`` if the circuit of a guard that matches *critical* is open; ``"degraded"`` if a circuit
        is open, half-open or forced, a throttle refuses, a bulkhead is full, a rate limit is used up, a retry budget is
        spent, a fleet is lost or missing, or the last reload failed; else ``"up"``. A policy that is only observed does
        not count. ``reasons`` names the causes. A readiness probe should answer ``status != "down"``. A liveness probe
        should not use it: restarting a process that waits for another service helps nobody.

    Raises:
        FaultToleranceDefinitionException: If *critical* is not made of texts.
    """
    patterns = one_or_several(critical)
    if wrong := [pattern for pattern in patterns if not isinstance(pattern, str) or not pattern]:
        allowed = "names of guards, or patterns such as 'acme.payments.*'"
        raise definition_error("health(critical)", f"is {shown(wrong[0])}", wrong[0], allowed)
    _log_unmatched(patterns)
    reasons: dict[str, bool] = {}
    resolve_remote_circuits()
    for state in every_state():
        is_critical = any(fnmatchcase(name, pattern) for name in (state.name, state.alias) for pattern in patterns)
        for policy, condition in state.conditions().items():
            if condition.is_impaired:
                reason = f"{state.name}: {policy.annotation} is {condition.words}"
                reasons[reason] = condition.is_down and is_critical
    reload, complaint = last_reload.outcome
    complaints = [complaint, *(row.problem() for row in ORDER if row.problem is not None)]
    reasons |= dict.fromkeys(filter(None, complaints), False)
    status: Status = "down" if any(reasons.values()) else "degraded" if reasons else "up"
    return Health(status, tuple(sorted(reasons)), reload)


def _log_unmatched(patterns: tuple[str, ...]) -> None:
    """Log once each pattern that no guard matches: it is misspelt, or its guard does not exist yet."""
    for pattern in set(patterns) - _compared_patterns:
        _compared_patterns.add(pattern)
        names = (resolver.name_for(cls) for resolver in resolvers() for cls in resolver.classes())
        names_of_circuits = (alias_in(resolver.declared_at_home()) for resolver in resolvers())
        if not any(fnmatchcase(name, pattern) for name in chain(names, names_of_circuits)):
            log(WARNING, "health(critical=%r): no guard has such a name", pattern)
