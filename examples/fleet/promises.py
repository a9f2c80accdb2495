"""What a fleet promises; the demonstration succeeds if all of it was kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from .record import KINDS, News, Record
from .service import BURST, DELAY, THRESHOLD, VALUE
from .worker import PATIENCE, POLL

BACK = 2.0
"""Seconds after which a server that is back is asked again, at the latest."""
MARGIN = 0.25
"""Seconds by which a busy machine may be late."""


class Promise(NamedTuple):
    """One sentence, whether it came true, and what was measured."""

    text: str
    kept: bool
    measured: str


def promises(record: Record) -> Iterator[Promise]:
    """Compare what happened with what was promised."""
    yield from _limited(record)
    yield from _opened(record)
    yield from _alone(record, "killed", "back", "frozen", "killed")
    yield from _alone(record, "frozen", "thawed", "over", "frozen")
    lost = sum(ends["lost"] for _, _, ends in record.counts) + sum(record.open.values())
    calls = sum(ends.total() for _, _, ends in record.counts)
    first = f", the first by {record.errors[0]}" if record.errors else ""
    yield Promise("no call is lost, whatever happens to the server", lost == 0, f"{lost} of {calls}{first}")


def _limited(record: Record) -> Iterator[Promise]:
    since, until = record.marks["limited"], record.marks["failing soon"]
    each = record.seconds(since, until)
    yield Promise(
        f"offered eight times {VALUE} a second by four processes, the backend gets {VALUE}, in each second",
        min(each) >= 0.9 * VALUE and max(each) <= VALUE + BURST and abs(mean(each) / VALUE - 1) < 0.01,
        f"{min(each)} to {max(each)}, {mean(each):.1f} on average, in {len(each)} seconds",
    )


def _opened(record: Record) -> Iterator[Promise]:
    failing, healed, end = (record.marks[name] for name in ("failing", "healed", "killed soon"))
    opened = _firsts(record.circuits, "open", failing, healed)
    spread = max(opened) - min(opened) if len(opened) == len(KINDS) else float("inf")
    yield Promise(
        f"the backend fails: the circuit opens in all four within {POLL:g} s of the first",
        spread <= POLL + MARGIN,
        f"{spread:.2f} s",
    )
    all_open = max(opened, default=failing) + MARGIN  # what was under way then has come by now
    sent = record.failing(failing, all_open)
    yield Promise(
        f"until then it is sent no more than four times the {THRESHOLD} calls that a decision takes",
        len(sent) <= 4 * THRESHOLD,
        f"{len(sent)} calls in {max(opened, default=failing) - failing:.2f} s",
    )
    probes = record.failing(all_open, end)
    apart = min((later - one for one, later in pairwise(probes)), default=float("inf"))
    most = int((healed - all_open) / DELAY) + 1
    yield Promise(
        f"then there is one probe each {DELAY:g} s, in all four together",
        1 <= len(probes) <= most and apart >= DELAY - MARGIN,
        f"{len(probes)} in {healed - all_open:.1f} s" + (f", {apart:.2f} s apart" if len(probes) > 1 else ""),
    )
    closed = _firsts(record.circuits, "closed", healed, end)
    spread = max(closed) - min(closed) if len(closed) == len(KINDS) else float("inf")
    yield Promise(
        f"the backend works again: one probe closes the circuit in all four within {POLL:g} s",
        spread <= POLL + MARGIN,
        f"{spread:.2f} s" + (f", {min(closed) - healed:.2f} s after" if closed else ""),
    )


def _alone(record: Record, gone: str, back: str, end: str, word: str) -> Iterator[Promise]:
    since, returned, until = (record.marks[name] for name in (gone, back, end))
    lost = _firsts(record.fleet, "lost", since, until)
    each = record.seconds(max(lost, default=since), returned)
    yield Promise(
        f"the server is {word}: each process goes on by itself, with its part of the limit",
        len(lost) == len(KINDS) and bool(each) and 0.8 * VALUE <= mean(each) <= 1.1 * VALUE,
        f"all alone {max(lost, default=float('inf')) - since:.2f} s after, {_span(each)} requests a second",
    )
    held = record.held(since, until)
    yield Promise(
        f"and no call is held up longer than the {PATIENCE * 1000:g} ms that it has patience",
        held <= PATIENCE + MARGIN,
        f"{held * 1000:.0f} ms at most",
    )
    again = _firsts(record.fleet, "shared", returned, until)
    took = max(again) - returned if len(again) == len(KINDS) else float("inf")
    each = record.seconds(returned + BACK, until)
    yield Promise(
        f"the server is back, {'empty' if word == 'killed' else 'as it was'}: they share again within {BACK:g} s",
        took <= BACK and bool(each) and max(each) <= VALUE + BURST,
        f"{took:.2f} s, and {_span(each)} requests a second",
    )


def _firsts(news: list[News], now: str, since: float, until: float) -> list[float]:
    """When each process first told of it, between two moments."""
    found: dict[int, float] = {}
    for one in news:
        if one.now == now and since <= one.at < until:
            found.setdefault(one.process, one.at)
    return list(found.values())


def _span(each: list[int]) -> str:
    return f"{min(each)} to {max(each)}" if len(each) > 1 else ", ".join(map(str, each)) or "no"
