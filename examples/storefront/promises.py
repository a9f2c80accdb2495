"""What the guarded service promises. The demonstration succeeds if it kept all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from figures import Figures
from traffic import READS, WRITES, Record, Traffic


@dataclass(frozen=True)
class Outcome:
    """Everything that is known when the run is over."""

    guarded: Traffic
    unguarded: Traffic
    figures: dict[str, Figures]
    crashes: int
    orders: set[str]
    """The keys of the orders that the backend has taken."""
    mails: set[str]


@dataclass(frozen=True)
class Promise:
    """One sentence, whether it came true, and what was measured."""

    text: str
    kept: bool
    measured: str


def promises(outcome: Outcome) -> Iterator[Promise]:
    """Compare what happened with what was promised."""
    guarded, unguarded, figures = outcome.guarded, outcome.unguarded, outcome.figures
    reads, writes = guarded.over(*READS), guarded.over(*WRITES)
    whole, bare = guarded.over(*READS, *WRITES), unguarded.over(*READS, *WRITES)

    yield Promise("a page is never broken: no read fails", not reads.errors, _errors(reads))
    yield Promise(
        "a page is never slow: 99 % of the reads take less than 1 s",
        reads.percentile(99) < 1.0,
        f"p99 {_milliseconds(reads)}; without guards {_milliseconds(unguarded.over(*READS))}",
    )
    yield Promise(
        "9 of 10 calls are answered within 1 s, orders among them, though the backend is down for a tenth of the time",
        whole.share >= 0.9,
        f"{whole.share:.1%}; without guards {bare.share:.1%}",
    )
    yield Promise("no order and no mail is lost: no write fails", not writes.errors, _errors(writes))
    for method, taken in (("order", outcome.orders), ("mail", outcome.mails)):
        confirmed, ours = guarded.records[method].keys, _sent_by(taken, guarded)
        yield Promise(
            f"what was confirmed was taken, and nothing else ({method}s)",
            confirmed == ours,
            f"{len(confirmed)} confirmed, {len(ours)} taken; without guards"
            f" {len(unguarded.records[method].keys)} and {len(_sent_by(taken, unguarded))}",
        )
    breakers = {method: one for method, one in figures.items() if one.breaker}
    yield Promise(
        "each circuit opened when the backend was down, and is closed again",
        bool(breakers) and all(one.openings and one.breaker == "closed" for one in breakers.values()),
        ", ".join(f"{method} opened {one.openings}x, now {one.breaker}" for method, one in breakers.items()),
    )
    done = {
        what: sum(getattr(one, what) for one in figures.values())
        for what in ("retries", "timeouts", "rejections", "fallbacks")
    }
    yield Promise(
        "every policy had something to do",
        all(done.values()) and all(figures[method].rejections for method in figures if method == "recommendations"),
        ", ".join(f"{count} {what}" for what, count in done.items()),
    )
    yield Promise(
        "it was not fair weather: without guards less than 90 % of the calls were answered within 1 s, and the backend"
        " crashed once",
        bare.share < 0.9 and outcome.crashes == 1,
        f"{bare.share:.1%}, {outcome.crashes} crash",
    )


def _sent_by(taken: set[str], traffic: Traffic) -> set[str]:
    return {key for key in taken if key.startswith(f"{traffic.name}-")}


def _errors(record: Record) -> str:
    first = f", first {record.errors[0]!r}" if record.errors else ""
    return f"{len(record.errors)} of {record.calls} failed{first}"


def _milliseconds(record: Record) -> str:
    return f"{record.percentile(99) * 1000:.0f} ms"
