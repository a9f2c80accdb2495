"""How the guards of all targets stand together, and which of them hurts most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from math import frexp
from operator import add
from typing import NamedTuple

from .page import Sample
from .target import Target

CONFIGURATION = "ft_config_info"
"""There is one for each process."""

Choice = tuple[str, Mapping[str, str]]
"""A metric, and the labels that a sample of it must have."""

CIRCUIT = {"open": "open", "half-open": "halfOpen", "closed": "closed"}
"""The states of a circuit, and what its counter calls them."""

REFUSALS: Mapping[str, Choice] = {
    "circuit": ("ft_circuitbreaker_calls", {"circuitBreakerResult": "circuitBreakerOpen"}),
    "bulkhead": ("ft_bulkhead_calls", {"bulkheadResult": "rejected"}),
    "rate_limit": ("ft_ratelimit_calls", {"rateLimitResult": "rejected"}),
    "throttle": ("ft_throttle_calls", {"result": "refused"}),
    "retry_budget": ("ft_retry_budget", {"result": "exhausted"}),
}
"""Who may refuse an attempt."""

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
"""What is shown as so many in a second."""

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
"""Levels of which several processes have the sum."""

HIGHEST: Mapping[str, Choice] = {
    "throttle_probability": ("ft_throttle_probability", {}),
    "timeout_seconds": ("ft_timeout_limit", {}),
    "hedge_seconds": ("ft_hedge_delay", {}),
}
"""Levels of which the highest of several processes counts."""


NOTHING = -10_000
"""Lower than the exponent of any amount."""


class Rank(IntEnum):
    """How much a guard hurts, the worst first."""

    FAILING = 0
    """Callers get exceptions."""
    REPLACED = 1
    """Callers get substitutes, or would not get through: a circuit is open."""
    STRAINED = 2
    """Attempts are refused, time out, are repeated or wait; callers do not notice more than that."""
    WELL = 3
    IDLE = 4
    """Nobody calls."""


class Standing(NamedTuple):
    """One guard, by its name, in all processes that have it."""

    method: str
    rates: Mapping[str, float]
    """How many in a second, by the names of ``COUNTERS``; what the guard does not count is not in it."""
    states: Mapping[str, float]
    """Which part of the time its circuits were in each state; empty where that is not known, or there is none."""
    levels: Mapping[str, float]

    @property
    def refused(self) -> float | None:
        """Refused attempts in a second; ``None`` where nothing refuses any."""
        found = [self.rates[kind] for kind in REFUSALS if kind in self.rates]
        return sum(found) if found else None

    @property
    def timed_out(self) -> float | None:
        """Attempts and calls in a second that time ended."""
        found = [self.rates[kind] for kind in ("timeouts", "deadlines") if kind in self.rates]
        return sum(found) if found else None

    @property
    def rank(self) -> Rank:
        """How much it hurts."""
        rate, level = self.rates.get, self.levels.get
        if rate("failures", 0.0) > 0:
            return Rank.FAILING
        if rate("fallbacks", 0.0) > 0 or self.states.get("open", 0.0) > 0:
            return Rank.REPLACED
        strain = (self.refused, self.timed_out, rate("retries"), level("waiting"), level("throttle_probability"))
        if any(strain) or level("abandoned", 0.0) > 0:
            return Rank.STRAINED
        return Rank.WELL if rate("calls", 0.0) > 0 or level("running", 0.0) > 0 else Rank.IDLE

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
        return (self.rank, *(-_size(amount) for amount in amounts), self.method)


def _size(amount: float) -> int:
    """Tell amounts apart by doubles: rows whose rates are nearly the same are not to change places at each look."""
    return frexp(amount)[1] if amount > 0 else NOTHING


class Fleet(NamedTuple):
    """What the processes say of one fleet."""

    namespace: str
    sharing: int
    """How many processes share with it."""
    alone: int
    """How many decide alone."""


def standings(targets: Iterable[Target]) -> list[Standing]:
    """Give every guard, the one that hurts most first."""
    targets = list(targets)
    rates = _together((one for target in targets for one in target.rates()), {**COUNTERS, **STATES}, add)
    levels = [one for target in targets for one in target.levels().items()]
    added, highest = _together(levels, ADDED, add), _together(levels, HIGHEST, max)
    found = (
        Standing(
            method,
            {kind: rates[method][kind] for kind in COUNTERS if kind in rates.get(method, {})},
            _parts(rates.get(method, {})),
            {**added.get(method, {}), **highest.get(method, {})},
        )
        for method in {_label(labels, "method") for (_, labels), _ in levels} - {""}
    )
    return sorted(found, key=lambda standing: standing._order)


def fleets(targets: Iterable[Target]) -> list[Fleet]:
    """Give the fleets that processes are to share with, by their names."""
    sharing: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for target in targets:
        levels = target.levels()
        # Several may answer at one address; each shows what it is configured by.
        processes = sum(value for (name, _), value in levels.items() if name == CONFIGURATION) or 1
        for (name, labels), up in levels.items():
            if name == "ft_fleet_up":
                sharing[_label(labels, "namespace")] += int(up)
                alone[_label(labels, "namespace")] += max(0, int(processes - up))
    return [Fleet(name, sharing[name], alone[name]) for name in sorted(sharing)]


def configurations(targets: Iterable[Target]) -> set[str]:
    """Give the fingerprints of what holds in the processes: more than one where they are configured differently."""
    return {
        _label(labels, "fingerprint")
        for target in targets
        for (name, labels), value in target.levels().items()
        if name == CONFIGURATION and value > 0
    }


def _parts(rates: Mapping[str, float]) -> dict[str, float]:
    """Give the part of each state in the time of all circuits; nothing where no time has passed."""
    times = {state: rates[state] for state in STATES if state in rates}
    whole = sum(times.values())
    return {state: time / whole for state, time in times.items()} if whole > 0 else {}


def _together(
    samples: Iterable[tuple[Sample, float]], kinds: Mapping[str, Choice], join: Callable[[float, float], float]
) -> dict[str, dict[str, float]]:
    """Give for each method and kind one value for all samples of it."""
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
