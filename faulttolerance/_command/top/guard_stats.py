"""The condition of the guards of all targets together, ranked by how much they hurt."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from math import frexp
from operator import add
from typing import NamedTuple

from .exposition import Sample
from .target import Target

CONFIGURATION = "ft_config_info"
"""Each process has one sample of this metric."""

Choice = tuple[str, Mapping[str, str]]
"""The name of a metric, and the labels that its samples must have."""

CIRCUIT = {"open": "open", "half-open": "halfOpen", "closed": "closed"}
"""The states of a circuit, with their labels in its counter."""

REFUSALS: Mapping[str, Choice] = {
    "circuit": ("ft_circuitbreaker_calls", {"circuitBreakerResult": "circuitBreakerOpen"}),
    "bulkhead": ("ft_bulkhead_calls", {"bulkheadResult": "rejected"}),
    "rate_limit": ("ft_ratelimit_calls", {"rateLimitResult": "rejected"}),
    "throttle": ("ft_throttle_calls", {"result": "refused"}),
    "retry_budget": ("ft_retry_budget", {"result": "exhausted"}),
}
"""The policies that can refuse an attempt."""

COUNTERS: Mapping[str, Choice] = {
    "calls": ("ft_invocations", {}),
    "failures": ("ft_invocations", {"result": "exceptionThrown"}),
    "fallbacks": ("ft_invocations", {"fallback": "applied"}),
    "retries": ("ft_retry_retries", {}),
    "timeouts": ("ft_timeout_calls", {"timedOut": "true"}),
    "deadlines": ("ft_deadline_calls", {"exceeded": "true"}),
    "openings": ("ft_circuitbreaker_opened", {}),
    "hedges": ("ft_hedge_calls", {"result": "hedge"}),
    "shared": ("ft_coalesce_calls", {"role": "follower"}),
    "observed": ("ft_observed", {}),
    "chaos": ("ft_chaos", {}),
    **REFUSALS,
}
"""The counters that are shown as rates per second."""

STATES: Mapping[str, Choice] = {
    state: ("ft_circuitbreaker_state", {"state": label}) for state, label in CIRCUIT.items()
}

ADDED: Mapping[str, Choice] = {
    "running": ("ft_bulkhead_executionsrunning", {}),
    "waiting": ("ft_bulkhead_executionswaiting", {}),
    "limit": ("ft_bulkhead_limit", {}),
    "abandoned": ("ft_timeout_abandoned", {}),
    "keys": ("ft_partitions", {}),
}
"""The levels that are added up over processes."""

HIGHEST: Mapping[str, Choice] = {
    "throttle_probability": ("ft_throttle_probability", {}),
    "timeout_seconds": ("ft_timeout_limit", {}),
    "hedge_seconds": ("ft_hedge_delay", {}),
}
"""The levels of which the highest over processes counts."""


LOWEST_EXPONENT = -10_000
"""Lower than the exponent of any amount."""


class Severity(IntEnum):
    """The degree to which a guard hurts, the worst first."""

    FAILING = 0
    """Callers get exceptions."""
    REPLACED = 1
    """Callers get substitutes, or calls would not get through: a circuit is open."""
    STRAINED = 2
    """Attempts are refused, time out, are repeated or wait; callers notice only the delay."""
    WELL = 3
    IDLE = 4
    """There are no calls."""


class GuardStats(NamedTuple):
    """One guard, by its name, in all processes that have it."""

    method: str
    rates: Mapping[str, float]
    """Rates per second, by the names of ``COUNTERS``; counters that the guard lacks are omitted."""
    states: Mapping[str, float]
    """The share of time that its circuits were in each state; empty if unknown, or without a circuit."""
    levels: Mapping[str, float]

    @property
    def refused(self) -> float | None:
        """Refused attempts per second; ``None`` if no policy refuses attempts."""
        found = [self.rates[kind] for kind in REFUSALS if kind in self.rates]
        return sum(found) if found else None

    @property
    def timed_out(self) -> float | None:
        """Attempts and calls per second that a time-out or deadline ended."""
        found = [self.rates[kind] for kind in ("timeouts", "deadlines") if kind in self.rates]
        return sum(found) if found else None

    @property
    def severity(self) -> Severity:
        """The degree to which the guard hurts."""
        rate, level = self.rates.get, self.levels.get
        if rate("failures", 0.0) > 0:
            return Severity.FAILING
        if rate("fallbacks", 0.0) > 0 or self.states.get("open", 0.0) > 0:
            return Severity.REPLACED
        strain = (self.refused, self.timed_out, rate("retries"), level("waiting"), level("throttle_probability"))
        if any(strain) or level("abandoned", 0.0) > 0:
            return Severity.STRAINED
        return Severity.WELL if rate("calls", 0.0) > 0 or level("running", 0.0) > 0 else Severity.IDLE

    @property
    def _order(self) -> tuple[float | str, ...]:
        rate = self.rates.get
        lost = (self.refused or 0.0) + (self.timed_out or 0.0) + rate("retries", 0.0)
        amounts = (
            rate("failures", 0.0),
            rate("fallbacks", 0.0),
            self.states.get("open", 0.0),
            lost,
            rate("calls", 0.0),
        )
        return (self.severity, *(-_size(amount) for amount in amounts), self.method)


def _size(amount: float) -> int:
    """Group amounts by doublings: rows with nearly equal rates must not change places at each update."""
    return frexp(amount)[1] if amount > 0 else LOWEST_EXPONENT


class Fleet(NamedTuple):
    """The processes of one fleet."""

    namespace: str
    sharing: int
    """The number of processes that share with the fleet."""
    alone: int
    """The number of processes that decide alone."""


def collect_stats(targets: Iterable[Target]) -> list[GuardStats]:
    """Return every guard, the guard that hurts most first."""
    targets = list(targets)
    rates = _aggregate((one for target in targets for one in target.rates()), {**COUNTERS, **STATES}, add)
    levels = [one for target in targets for one in target.levels().items()]
    added, highest = _aggregate(levels, ADDED, add), _aggregate(levels, HIGHEST, max)
    found = (
        GuardStats(
            method,
            {kind: rates[method][kind] for kind in COUNTERS if kind in rates.get(method, {})},
            _state_shares(rates.get(method, {})),
            {**added.get(method, {}), **highest.get(method, {})},
        )
        for method in {_label(labels, "method") for (_, labels), _ in levels} - {""}
    )
    return sorted(found, key=lambda stats: stats._order)


def fleets(targets: Iterable[Target]) -> list[Fleet]:
    """Return the fleets that processes are configured to share with, sorted by name."""
    sharing: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for target in targets:
        levels = target.levels()
        # Several processes may answer at one address; each has one sample of its configuration.
        processes = sum(value for (name, _), value in levels.items() if name == CONFIGURATION) or 1
        for (name, labels), up in levels.items():
            if name == "ft_fleet_up":
                sharing[_label(labels, "namespace")] += int(up)
                alone[_label(labels, "namespace")] += max(0, int(processes - up))
    return [Fleet(name, sharing[name], alone[name]) for name in sorted(sharing)]


def configurations(targets: Iterable[Target]) -> set[str]:
    """Return the fingerprints of the configurations in force: more than one if the processes differ."""
    return {
        _label(labels, "fingerprint")
        for target in targets
        for (name, labels), value in target.levels().items()
        if name == CONFIGURATION and value > 0
    }


def _state_shares(rates: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each state in the time of all circuits; empty if no time has passed."""
    times = {state: rates[state] for state in STATES if state in rates}
    whole = sum(times.values())
    return {state: time / whole for state, time in times.items()} if whole > 0 else {}


def _aggregate(
    samples: Iterable[tuple[Sample, float]], kinds: Mapping[str, Choice], join: Callable[[float, float], float]
) -> dict[str, dict[str, float]]:
    """Return one value for each method and kind, joined over all its samples."""
    by_metric: defaultdict[str, list[tuple[str, Mapping[str, str]]]] = defaultdict(list)
    for kind, (metric, wanted) in kinds.items():
        by_metric[metric].append((kind, wanted))
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (metric, labels), value in samples:
        for kind, wanted in by_metric.get(metric, ()):
            if wanted.items() <= labels:
                row = found[_label(labels, "method")]
                row[kind] = join(row[kind], value) if kind in row else value
    return found


def _label(labels: frozenset[tuple[str, str]], name: str) -> str:
    return next((value for label, value in labels if label == name), "")
