"""What the guarded client promises; the demonstration succeeds if it kept all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .client import AFTER, PATIENCE, RUSH, STEP, Tick
from .ways import WAYS

NOTHING, RETRIED, BROKEN, LIMITED = WAYS


class Promise(NamedTuple):
    """One sentence, whether it came true, and what was measured."""

    text: str
    kept: bool
    measured: str


def during(ticks: Sequence[Tick], phase: int, *, settled: float = 0.0) -> list[Tick]:
    """The ticks of one phase, without its first *settled* seconds."""
    return [tick for tick in ticks if tick.phase == phase][round(settled / STEP) :]


def goodput(ticks: Sequence[Tick], capacity: float) -> float:
    """Good answers in parts of what the service can do."""
    return sum(tick.good for tick in ticks) / (len(ticks) * STEP) / capacity


def percentile(ticks: Sequence[Tick], part: float) -> float:
    """Seconds that this part of the good answers took at most."""
    ordered = sorted(took for tick in ticks for took in tick.latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def promises(found: Mapping[str, Sequence[Tick]], capacity: float) -> Iterator[Promise]:
    """Compare what happened with what was promised."""
    at_worst = {way: goodput(during(ticks, RUSH, settled=1.0), capacity) for way, ticks in found.items()}
    after = {way: during(ticks, AFTER, settled=1.0) for way, ticks in found.items()}
    limited = found[LIMITED]

    yield Promise(
        "offered three times what the service can do, the limit lets it do at least three quarters of it",
        at_worst[LIMITED] >= 0.75,
        f"{at_worst[LIMITED]:.2f}",
    )
    for way in (NOTHING, RETRIED):
        yield Promise(
            f"it was needed: with {way} less than half of that is of any use",
            at_worst[way] < 0.5,
            f"{at_worst[way]:.2f}",
        )
    slowest = max(tick.slowest for tick in limited)
    yield Promise("nobody waits much longer than they have patience", slowest < PATIENCE + 0.5, f"{slowest:.2f} s")
    sent = {way: sum(tick.attempts for tick in found[way]) for way in (RETRIED, LIMITED)}
    yield Promise(
        "retries do not add to the overload",
        sent[LIMITED] < 0.7 * sent[RETRIED],
        f"{sent[LIMITED]} requests, and {sent[RETRIED]} with {RETRIED}",
    )
    served = {way: (sum(tick.good for tick in ticks), sum(tick.came for tick in ticks)) for way, ticks in after.items()}
    well = {way: min(1.0, good / came) for way, (good, came) in served.items()}  # some came before
    yield Promise(
        "a second after the rush nearly all calls are served again",
        well[LIMITED] >= 0.85,
        ", ".join(f"{part:.0%} with {way}" for way, part in well.items()),
    )
