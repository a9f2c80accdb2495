"""The tables of the page on overload: each row is simulated when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import NamedTuple

from faulttolerance.policies import Criticality

from . import budgets, deadlines, estimators, hedges, overload, queues, storm, throttles, time_outs

__all__ = ["TABLES", "Table"]


class Table(NamedTuple):
    """The heads, and for the name of each row a function that returns its cells."""

    heads: tuple[str, ...]
    rows: Mapping[str, Callable[[], tuple[object, ...]]]
    quick: frozenset[str]
    """The names of rows that cost little, or that are simulated for a test anyway."""

    def line(self, name: str) -> str:
        """Return one row in Markdown."""
        cells = (re.sub(r"(?<=\d)%", " %", str(cell)) for cell in self.rows[name]())
        return f"| {' | '.join([name, *cells])} |"

    def lines(self) -> Iterator[str]:
        """Yield all lines in Markdown."""
        yield f"| {' | '.join(self.heads)} |"
        yield "| --- " * len(self.heads) + "|"
        yield from map(self.line, self.rows)


def _estimator(kind: str) -> tuple[object, ...]:
    errors = [estimators.error(kind, drawn) for drawn in estimators.DRAWN]
    return *errors, f"{estimators.samples_to_follow(kind):.0f}"


def _limit(kind: str) -> tuple[object, ...]:
    first, later = overload.fleet(kind)
    recovered = overload.hang(kind)
    return (
        overload.loaded(kind, 0.9, 1), overload.loaded(kind, 2.0, 1), overload.long_overload(kind),
        f"{first.goodput:.2f}, {later.goodput:.2f}", f"{overload.slower(kind).refused:.0%}",
        "never" if recovered == inf else f"{recovered:.0f} s",
    )  # fmt: skip


def _swept(place: overload.Place) -> tuple[object, ...]:
    return tuple(overload.swept(place, times, 5) for times in (1.2, 2.0, 4.0))


def _queue(kind: str) -> tuple[object, ...]:
    return tuple(queues.queued(kind, load, 3) for load in (0.8, 1.2, 2.0, 3.0, queues.bursts))


def _tiers(load: float) -> tuple[object, ...]:
    seen = queues.queued(queues.OURS, load, 3, tiers=True)
    return *(f"{seen.part_served(tier):.0%}" for tier in Criticality), f"{seen.goodput:.2f}"


def _throttle(kind: str) -> tuple[object, ...]:
    degraded = (throttles.degraded(kind, per_second, 1) for per_second in (100.0, 1000.0))
    return *degraded, f"{throttles.dead(kind, 1):.1f}", throttles.recovery(kind, 1)


def _budget(kind: str) -> tuple[object, ...]:
    attempts = (budgets.attempts_in_outage(kind, *how, 1) for how in ((100.0, 0.002), (100.0, 1.0), (2.0, 0.002)))
    succeeding = (f"{budgets.succeeding(kind, part, 2):.2%}" for part in (0.1, 0.2, 0.5))
    return *attempts, *succeeding, f"{budgets.layered(kind, 1):.1f}"


def _hedge(kind: str) -> tuple[object, ...]:
    return hedges.healthy(kind, 1), hedges.slowed(kind, 2), f"+{hedges.hung(kind, 3).extra:.1%}"


def _busy(kind: str) -> tuple[object, ...]:
    return tuple(hedges.busy(kind, *how) for how in ((400.0, 5), (460.0, 5), (460.0, 5, False)))


def _time_out(kind: str) -> tuple[object, ...]:
    limit, wrongly = time_outs.healthy(kind, 1)
    held, seconds = time_outs.hung(kind, 4)
    return f"{limit * 1e3:.0f} ms", f"{wrongly:.2%}", time_outs.slowed(kind, 3), held, f"{seconds * 1e3:.0f} ms"


def _deadline(kind: str) -> tuple[object, ...]:
    return tuple(f"{deadlines.goodput(kind, load, 1):.2f}" for load in (0.9, 1.2, 2.0, 3.0))


def _storm(kind: str) -> tuple[object, ...]:
    seen = storm.aftermath(kind, 1)
    recovered = "never" if seen.recovered == inf else f"{seen.recovered:.0f} s"
    return f"{seen.during:.0%}", f"{seen.after:.0%}", recovered


def _of(
    kinds: Mapping[str, object], row: Callable[[str], tuple[object, ...]]
) -> dict[str, Callable[[], tuple[object, ...]]]:
    return {kind: partial(row, kind) for kind in kinds}


_TIMES = "p99 / p99.9"
TABLES = {
    "storm": Table(
        ("guard", "succeed during the spike", "in the 20 s after it", "99 % succeed again after"),
        _of(storm.KINDS, _storm),
        frozenset({storm.ALONE, storm.OURS}),
    ),
    "limits": Table(
        ("limit", "0.9 of the capacity", "twice", "twice for 400 s, the last minute",
         "50 replicas at twice: first 45 s, later", "refused of a slower backend at 0.75", "served again after a hang"),
        _of(overload.KINDS, _limit),
        frozenset({overload.OURS}),
    ),
    "sweep": Table(
        ("workers, mean, spread", "1.2 times the p90", "2 times", "4 times"),
        {place.name: partial(_swept, place) for place in overload.PLACES},
        frozenset(),
    ),
    "queues": Table(
        ("bulkhead of 10", "0.8 of the capacity", "1.2", "2", "3", "bursts, 0.88 on average"),
        _of(queues.KINDS, _queue),
        frozenset({queues.OURS}),
    ),
    "tiers": Table(
        ("load, in capacities", *(tier.name.lower().replace("_", " ") for tier in Criticality), "goodput"),
        {f"{load:g}": partial(_tiers, load) for load in (1.2, 2.0, 3.0)},
        frozenset({"2"}),
    ),
    "throttles": Table(
        ("throttle", "30/s taken of 100/s", "30/s taken of 1000/s", "sent per second when dead for 120 s",
         "seconds until 95 % are taken again"),
        _of(throttles.KINDS, _throttle),
        frozenset({throttles.OURS}),
    ),
    "budgets": Table(
        ("budget", "100/s, fail in 2 ms", "100/s, fail in 1 s", "2/s, fail in 2 ms", "10 % fail", "20 % fail",
         "50 % fail", "three layers"),
        _of(budgets.KINDS, _budget),
        frozenset({budgets.OURS}),
    ),
    "hedges": Table(
        ("hedge", f"healthy: {_TIMES}, extra", f"8 times slower, first 10 s: {_TIMES}, extra",
         "hang, first 10 s: extra"),
        _of(hedges.KINDS, _hedge),
        frozenset({hedges.OURS}),
    ),
    "busy": Table(
        ("hedge", f"workers 80 % busy: {_TIMES}, extra", "92 % busy",
         "92 % busy, and what was given up is worked on"),
        _of(dict.fromkeys(hedges.BUSY), _busy),
        frozenset({hedges.OURS}),
    ),
    "time-outs": Table(
        ("time-out", "limit", "ended wrongly", "10 times slower, ended: first 3 s, later", "held after 0.5 s of a hang",
         "twenty ended after"),
        _of(time_outs.KINDS, _time_out),
        frozenset({time_outs.OURS}),
    ),
    "deadlines": Table(
        ("service", "0.9 of the capacity", "1.2", "2", "3"),
        _of(deadlines.KINDS, _deadline),
        frozenset(deadlines.KINDS),
    ),
    "estimators": Table(
        ("estimator", *estimators.DRAWN, "samples to follow a shift by 3"),
        _of(estimators.KINDS, _estimator),
        frozenset({estimators.OURS}),
    ),
}  # fmt: skip
"""By the name that the page's markers have."""
