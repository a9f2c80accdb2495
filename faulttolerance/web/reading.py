"""What the page shows, as values that JSON takes; read from what every application can ask for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import circuit_breakers, fingerprint, guards, health
from .recent import Recent

if TYPE_CHECKING:
    from .._control.configure import GuardedMethod

Told = dict[str, Any]

ANY = ("", "")
"""Stands for whatever tags a series has."""

_FIGURES = {
    ("ft.invocations.total", ANY): "calls",
    ("ft.invocations.total", ("result", "exceptionThrown")): "failed",
    ("ft.invocations.total", ("fallback", "applied")): "fallbacks",
    ("ft.retry.retries.total", ANY): "retries",
    ("ft.timeout.calls.total", ("timedOut", "true")): "timed_out",
    ("ft.circuitbreaker.calls.total", ("circuitBreakerResult", "circuitBreakerOpen")): "refused",
    ("ft.bulkhead.calls.total", ("bulkheadResult", "rejected")): "refused",
    ("ft.ratelimit.calls.total", ("rateLimitResult", "rejected")): "refused",
    ("ft.throttle.calls.total", ("result", "refused")): "refused",
    ("ft.retry.budget.total", ("result", "exhausted")): "refused",
}
"""Which series, by one of its tags, goes into which figure of the table of guards."""

_started = datetime.now(UTC)
_recent = Recent()


def _moment() -> float:
    return datetime.now(UTC).timestamp()


def _begin() -> None:
    global _started, _recent
    _started, _recent = datetime.now(UTC), Recent()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin)  # a worker begins where it is forked


class Wanted(NamedTuple):
    """Which guards to list.

    Args:
        query: What their names, or those of their policies, contain, whatever the case.
        impaired: Whether only those that refuse calls, or let them wait.
        limit: How many at most; ``None`` for all.
    """

    query: str = ""
    impaired: bool = False
    limit: int | None = None


def process() -> Told:
    """Tell which process this is, since when, and what time it is there."""
    started, now = (moment.isoformat(timespec="seconds") for moment in (_started, datetime.now(UTC)))
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": started, "now": now}


def name_of(process: Told) -> str:
    """Give what tells a process from the other ones of a service, and from one that had its number before."""
    return f"{process['host']}/{process['pid']}/{process['started']}"


def readiness(critical: Iterable[str]) -> Told:
    """Tell whether calls get through."""
    return health(critical).as_dict()


def overview(critical: Iterable[str], wanted: Wanted) -> Told:
    """Tell of the process, and of the guards that are wanted."""
    head = {"critical": list(critical), "fingerprint": fingerprint(), "process": process()}
    return {**readiness(critical), **head, **listing(wanted)}


def listing(wanted: Wanted) -> Told:
    """Tell of the guards that are wanted, those in trouble first, and how many there are."""
    every = [(guard, bool(guard.impaired)) for guard in guards()]
    found = [one for one in every if (one[1] or not wanted.impaired) and _matches(one[0], wanted.query.casefold())]
    found.sort(key=lambda one: (not one[1], one[0].name))
    return {
        "total": len(every),
        "impaired": sum(impaired for _, impaired in every),
        "matching": len(found),
        "guards": [_brief(guard) for guard, _ in found[: wanted.limit]],
    }


def guard_called(name: str) -> Told | None:
    """Tell everything of a guard, of the one made last where several are called so; ``None`` where none is."""
    alike = list(guards(name))
    if not alike:
        return None
    guard = alike[-1]
    series = [
        {"name": metric, "tags": dict(tags), "value": value} for (metric, tags), value in sorted(guard.counts.items())
    ]
    return {
        **_brief(guard),
        "alike": len(alike),
        "fingerprint": guard.fingerprint,
        "circuit": circuit(name) if "CircuitBreaker" in guard.conditions else None,
        "configuration": guard.as_dict()["policies"],
        "counts": series,
        "process": process(),
    }


def circuit(name: str) -> Told | None:
    """Tell of the circuit breaker of a guard; ``None`` where it has gone meanwhile."""
    try:
        told = circuit_breakers.snapshot(name).as_dict()
    except KeyError:
        return None
    # Moments on the clock of this process mean nothing outside of it; the guard's condition says them in words.
    return {key: told[key] for key in ("state", "forced", "results", "failures", "opened", "last_failure")}


def _matches(guard: GuardedMethod, sought: str) -> bool:
    names = guard.name, *(policy.annotation for policy in guard.policies)
    return not sought or any(sought in name.casefold() for name in names)


def _brief(guard: GuardedMethod) -> Told:
    counted = figures(guard.counts)
    return {
        "name": guard.name,
        "policies": [policy.annotation for policy in guard.policies],
        "disabled": list(guard.disabled),
        "observed": list(guard.observed),
        "conditions": dict(guard.conditions),
        "impaired": list(guard.impaired),
        "partitions": guard.partitions,
        "figures": counted,
        "recent": _recent.since(guard.method, guard.name, counted, _moment()),
    }


def figures(counts: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]) -> dict[str, float]:
    """Add up the series of a guard; what it does not count is left out."""
    found: dict[str, float] = {}
    for (metric, tags), value in counts.items():
        for tag in (ANY, *tags):
            if figure := _FIGURES.get((metric, tag)):
                found[figure] = found.get(figure, 0) + value
    return found
