"""The display of guards for people: as many columns as fit, and trouble in colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from ..._shown import escaped
from .guard_stats import REFUSALS, GuardStats, Severity, configurations, fleets
from .target import SLOW, Target

COLOURS = {
    Severity.FAILING: "bold red",
    Severity.REPLACED: "yellow",
    Severity.STRAINED: "cyan",
    Severity.WELL: "",
    Severity.IDLE: "dim",
}

NARROWEST, ENOUGH = 18, 24
"""The minimum width of guard names, in cells, beside the most important columns and beside the others."""

GAP = 2


class Column(NamedTuple):
    """One fact about each guard."""

    title: str
    width: int
    cell: Callable[[GuardStats], str]
    colour: str = ""
    """The colour of values other than 0."""
    is_number: bool = True


def format_number(value: float | None) -> str:
    """Format a rate or a level in at most five cells; return an empty string for ``None``.

    >>> [format_number(one) for one in (None, 0, 0.02, 3.14159, 42.4, 1234, 5_600_000)]
    ['', '0', '<0.1', '3.1', '42', '1.2k', '5.6M']
    """
    if value is None:
        return ""
    if value <= 0:
        return "0"
    if value < 0.05:
        return "<0.1"
    for limit, divisor, suffix in ((9.95, 1, ""), (999.5, 1, ""), (999_500, 1e3, "k"), (999.5e6, 1e6, "M")):
        if value < limit:
            return f"{value / divisor:.{1 if value / divisor < 9.95 else 0}f}{suffix}"
    return "many"


def percentage(value: float) -> str:
    """Format a part of one as a percentage; 0 % and 100 % stand only for exact values."""
    return f"{min(max(round(value * 100), 1), 99)} %" if 0 < value < 1 else f"{value * 100:.0f} %"


def circuit(stats: GuardStats) -> str:
    """Return the state of the circuits, with its share of time or circuits if there were several states."""
    for state in ("open", "half-open", "closed"):
        share = stats.states.get(state, 0.0)
        if share > 0.995:
            return state
        if share > 0.005:
            return f"{state} {percentage(share)}"
    return ""


def permits(stats: GuardStats) -> str:
    """Format the permits as ``3/8 +2``: three are held, an adaptive limit allows eight, two calls wait."""
    level = stats.levels
    if "running" not in level:
        return ""
    limit = f"/{level['limit']:.0f}" if "limit" in level else ""
    waiting = f" +{level['waiting']:.0f}" if level.get("waiting", 0.0) > 0 else ""
    return f"{level['running']:.0f}{limit}{waiting}"


def details(stats: GuardStats) -> str:
    """Return the policies that refuse, and the other counts that are not 0."""
    refused = [
        f"{kind.replace('_', ' ')} {format_number(rate)}" for kind in REFUSALS if (rate := stats.rates.get(kind))
    ]
    parts = [f"refused by {', '.join(refused)}"] if refused else []
    for kind, words in (("observed", "only observed"), ("chaos", "chaos"), ("hedges", "hedges"), ("shared", "shared")):
        if rate := stats.rates.get(kind):
            parts.append(f"{words} {format_number(rate)}")
    if left := stats.levels.get("abandoned"):
        parts.append(f"{left:.0f} left behind")
    if openings := stats.rates.get("openings"):
        parts.append(f"opened {format_number(openings)}")
    return "; ".join(parts)


def _throttled(stats: GuardStats) -> str:
    level = stats.levels.get("throttle_probability")
    return "" if level is None else percentage(level)


def _rate(kind: str) -> Callable[[GuardStats], str]:
    return lambda stats: format_number(stats.rates.get(kind))


DETAILS = Column("more", 30, details, is_number=False)
"""The column that takes the width left over by the names."""

COLUMNS = (
    Column("calls/s", 7, _rate("calls")),
    Column("failed", 6, _rate("failures"), "bold red"),
    Column("circuit", 14, circuit, is_number=False),
    Column("refused", 7, lambda stats: format_number(stats.refused), "yellow"),
    Column("fallback", 8, _rate("fallbacks"), "yellow"),
    Column("retries", 7, _rate("retries"), "cyan"),
    Column("timed out", 9, lambda stats: format_number(stats.timed_out), "cyan"),
    Column("bulkhead", 12, permits, is_number=False),
    Column("throttle", 8, _throttled, "cyan"),
    DETAILS,
)
"""The columns in their order, which is also their priority for the available width."""

ESSENTIAL = COLUMNS[:4]
"""The most important columns."""

CIRCUITS = {"open": "bold red", "half-open": "yellow", "closed": "green"}


def render(
    targets: Sequence[Target], all_stats: Sequence[GuardStats], now: float, width: int, height: int = 0, first: int = 0
) -> RenderableType:
    """Draw the view in *width* cells and, unless 0, *height* lines, after scrolling away the *first* guards."""
    head = list(_head(targets, all_stats, now, width))
    if height and len(head) > (most := max(2, height // 2)):
        head[most - 1 :] = [Text(f"{len(head) - most + 1} more lines about addresses", "yellow")]
    room = max(1, height - len(head) - 2) if height else len(all_stats)
    rows = all_stats[first : first + room]
    table = (
        _table(rows, all_stats, width)
        if rows
        else _cut(Text("No guard has been called yet, as far as is known.", "dim"), width)
    )
    left = len(all_stats) - first - len(rows)
    foot = [Text(f"{left} more")] if left > 0 else []
    return Group(*(_cut(line, width) for line in head), table, *foot)


def _head(targets: Sequence[Target], all_stats: Sequence[GuardStats], now: float, width: int) -> Iterator[Text]:
    here = [target for target in targets if target.last is not None and not target.trouble]
    # The head counts guards, not calls: the calls of a guard inside another guard would count twice.
    failing = sum(one.severity is Severity.FAILING for one in all_stats)
    numbers = f"{len(here)} of {len(targets)} answer, {len(all_stats)} guards, "
    yield Text.assemble(("top", "bold"), "  ", numbers, (f"{failing} failing", "bold red" if failing else ""))
    for target in targets:
        word, colour, reason = _trouble(target, now)
        if word:
            room = max(NARROWEST, width - len(word) - cell_len(reason) - GAP)
            yield Text.assemble((word, colour), "  ", shortened(_name(target.url), room), reason)
    for fleet in fleets(targets):
        colour = "bold red" if fleet.alone else "green"
        alone = f", {fleet.alone} alone" if fleet.alone else ""
        yield Text.assemble(("fleet", colour), "  ", escaped(fleet.namespace), f": {fleet.sharing} share{alone}")
    if len(different := configurations(targets)) > 1:
        yield Text.assemble(("differ", "yellow"), f"  {len(different)} configurations are in force")


def _trouble(target: Target, now: float) -> tuple[str, str, str]:
    """Return a word for the target's trouble, its colour, and the details; empty strings without trouble."""
    if target.trouble:
        return "lost", "bold red", f" for {target.lost_for(now):.0f} s: {escaped(target.trouble)}"
    if target.is_mixed:
        return "mixed", "yellow", ": processes answer in turn; one must answer for all"
    return ("slow", "yellow", f": {target.answer_seconds:.1f} s") if target.answer_seconds > SLOW else ("", "", "")


def _name(url: str) -> str:
    """Return the address roughly as the user typed it."""
    return escaped(url.removeprefix("http://").removesuffix("/metrics"))


def _table(rows: Sequence[GuardStats], all_stats: Sequence[GuardStats], width: int) -> Text:
    longest = max(cell_len(escaped(row.method)) for row in all_stats)
    columns = list(_columns(all_stats, width, longest))
    left = width - sum(column.width + GAP for column in columns)
    room = max(min(left, longest), 5)
    if columns and columns[-1] is DETAILS:
        columns[-1] = DETAILS._replace(width=DETAILS.width + left - room)
    lines = [_line(Text("guard", "bold"), room, columns, (Text(column.title, "bold") for column in columns))]
    for row in rows:
        name = Text(shortened(escaped(row.method), room), COLOURS[row.severity])
        lines.append(_line(name, room, columns, (_cell(column, row) for column in columns)))
    return Text("\n", no_wrap=True).join(lines)


def _line(name: Text, room: int, columns: Sequence[Column], cells: Iterable[Text]) -> Text:
    name.align("left", room)
    line = Text(no_wrap=True).append_text(name)
    for column, cell in zip(columns, cells, strict=True):
        cell.align("right" if column.is_number else "left", column.width)
        line.append(" " * GAP).append_text(cell)
    line.rstrip()
    return line


def _columns(all_stats: Sequence[GuardStats], width: int, longest: int) -> Iterator[Column]:
    """Yield the columns that fit beside the names, without columns that are empty for all guards."""
    for column in COLUMNS:
        if any(map(column.cell, all_stats)):
            width -= column.width + GAP
            if width < (NARROWEST if column in ESSENTIAL else min(longest, ENOUGH)):
                return
            yield column


def _cell(column: Column, stats: GuardStats) -> Text:
    text = column.cell(stats)
    if column.cell is circuit:
        return Text(text, CIRCUITS.get(text.partition(" ")[0], ""))
    return _cut(Text(text, "dim" if text in ("0", "0 %") else column.colour), column.width)


def shortened(name: str, width: int) -> str:
    """Cut the beginning of *name* if it is too long: the end of a path says more.

    >>> shortened("acme.billing.Client.charge", 16)
    '…g.Client.charge'
    """
    if cell_len(name) <= width:
        return name
    kept = name[-width:]
    while kept and cell_len(kept) >= width:
        kept = kept[1:]
    return f"…{kept}"


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
