"""The values that the page shows, ready for JSON; read through the public functions of the library."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from .. import circuit_breakers, fingerprint, guards, health

if TYPE_CHECKING:
    from .._control.configure import GuardedMethod

JsonObject = dict[str, Any]

ANY = ("", "")
"""The key of a figure that counts a series with any tags."""

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
"""The figure of the table of guards to which a series counts, by one of its tags."""

_WINDOW = 75.0
"""The seconds after which a reading is removed."""
_SPACING = 15.0
"""The seconds between two readings that are kept: the oldest reading is then about a minute old."""

_started = datetime.now(UTC)
_lock = Lock()
_readings: WeakKeyDictionary[Callable[..., Any], dict[str, list[tuple[float, dict[str, float]]]]] = WeakKeyDictionary()
"""The figures of the last minute, as far as the page was read, by guard and name: classes share functions."""


def _moment() -> float:
    return datetime.now(UTC).timestamp()


def _reset_after_fork() -> None:
    global _started, _lock, _readings
    _started, _lock, _readings = datetime.now(UTC), Lock(), WeakKeyDictionary()


if hasattr(os, "register_at_fork"):  # does not exist on Windows
    os.register_at_fork(after_in_child=_reset_after_fork)  # the start of a forked worker is the moment of the fork


class GuardFilter(NamedTuple):
    """A filter of the guards to list.

    Args:
        query: A text that the guard's name, or the name of a policy, contains; case does not matter.
        impaired: Whether to list only guards that refuse calls or make them wait.
        limit: The maximum number of guards; ``None`` for all.
    """

    query: str = ""
    impaired: bool = False
    limit: int | None = None


def process() -> JsonObject:
    """Return the identity of this process, its start and its current time."""
    started, now = (moment.isoformat(timespec="seconds") for moment in (_started, datetime.now(UTC)))
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": started, "now": now}


def name_of(process: JsonObject) -> str:
    """Return a text that identifies a process among its siblings and earlier processes with the same number."""
    return f"{process['host']}/{process['pid']}/{process['started']}"


def overview(critical: Iterable[str], guard_filter: GuardFilter) -> JsonObject:
    """Return the values of the process and of the wanted guards, those in trouble first, and their numbers."""
    every = [(guard, bool(guard.impaired)) for guard in guards()]
    found = [one for one in every if (one[1] or not guard_filter.impaired) and _matches(one[0], guard_filter.query)]
    found.sort(key=lambda one: (not one[1], one[0].name))
    return {
        **health(critical).as_dict(),
        "critical": list(critical),
        "fingerprint": fingerprint(),
        "process": process(),
        "total": len(every),
        "impaired": sum(impaired for _, impaired in every),
        "matching": len(found),
        "guards": [_brief(guard) for guard, _ in found[: guard_filter.limit]],
    }


def guard_called(name: str) -> JsonObject | None:
    """Return all values of a guard, of the newest guard if several have this *name*; ``None`` if no guard has it."""
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


def circuit(name: str) -> JsonObject | None:
    """Return the values of a guard's circuit breaker; ``None`` if it no longer exists."""
    try:
        values = circuit_breakers.snapshot(name).as_dict()
    except KeyError:
        return None
    # Times of this process's clock mean nothing outside of it; the guard's condition expresses them in words.
    return {key: values[key] for key in ("state", "forced", "results", "failures", "opened", "last_failure")}


def _matches(guard: GuardedMethod, sought: str) -> bool:
    names = guard.name, *(policy.annotation for policy in guard.policies)
    return not sought or any(sought.casefold() in name.casefold() for name in names)


def _brief(guard: GuardedMethod) -> JsonObject:
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
        "recent": _growth(guard, counted),
    }


def figures(counts: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]) -> dict[str, float]:
    """Return the sums of a guard's series by figure; figures without a series are omitted."""
    found: dict[str, float] = {}
    for (metric, tags), value in counts.items():
        for tag in (ANY, *tags):
            if figure := _FIGURES.get((metric, tag)):
                found[figure] = found.get(figure, 0) + value
    return found


def _growth(guard: GuardedMethod, current: dict[str, float]) -> dict[str, float] | None:
    """Return the growth of the figures and its duration in seconds; ``None`` if there was no earlier reading."""
    now = _moment()
    method: Any = guard.method
    if method is None:
        return None  # it has ended since it was listed
    with _lock:
        readings = _readings.setdefault(method, {}).setdefault(guard.name, [])
        while readings and not 0 <= now - readings[0][0] <= _WINDOW:  # the wall clock may be set back
            del readings[0]
        if readings and any(before > current.get(key, 0) for key, before in readings[0][1].items()):
            readings.clear()  # the counters were reset, as between tests
        first = readings[0] if readings else None
        if not readings or now - readings[-1][0] >= _SPACING:
            readings.append((now, current))
    if first is None:
        return None
    grown = {key: value - first[1].get(key, 0) for key, value in current.items()}
    return {"seconds": round(now - first[0], 1), **grown}
