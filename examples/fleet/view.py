"""What is shown while it runs: a live table where there is a terminal and rich, a line for each second elsewhere."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .record import KINDS, Record

if TYPE_CHECKING:
    from rich.table import Table

Show = Callable[[float, str], None]
"""Called several times a second, with the time and what goes on."""

_COLOURS = {"closed": "green", "half-open": "yellow", "open": "bold red", "shared": "green", "lost": "bold red"}
_HEAD = f"{'second':>8}  {'':34}{'offered':>8}{'at the backend':>16}  {'circuits':24}fleet"


@contextlib.contextmanager
def view(record: Record, begin: float, *, live: bool) -> Iterator[Show]:
    """Something to call while it runs."""
    if live:
        try:
            from rich.live import Live
        except ImportError:
            pass
        else:
            with Live(auto_refresh=False) as screen:
                yield lambda now, what: screen.update(_table(record, now - begin, what), refresh=True)
            return
    print(_HEAD, flush=True)
    yield _lines(record, begin)


def _table(record: Record, seconds: float, what: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{seconds:5.1f} s: {what}", title_justify="left", box=None, pad_edge=False)
    table.caption = f"at the backend: {_at_backend(record)} requests in the last second"
    table.caption_justify = "left"
    table.padding = (0, 1, 0, 0)
    table.add_column("process", no_wrap=True)
    for column in ("offered", "good", "failed", "limited", "refused"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("circuit", min_width=9, no_wrap=True)
    table.add_column("fleet", min_width=6, no_wrap=True)
    states = zip(KINDS, record.last(record.circuits), record.last(record.fleet), strict=True)
    for number, (kind, circuit, fleet) in enumerate(states):
        ends = record.lately(number)
        table.add_row(
            f"{number + 1} ({kind})",
            *(str(count) for count in (ends.total(), *(ends[end] for end in ("good", "failed", "limited", "refused")))),
            Text(circuit, _COLOURS.get(circuit, "")),
            Text("alone" if fleet == "lost" else fleet, _COLOURS.get(fleet, "")),
        )
    return table


def _lines(record: Record, begin: float) -> Show:
    due = begin + 1.0

    def show(now: float, what: str) -> None:
        nonlocal due
        if now < due:
            return
        due += 1.0
        offered = sum(record.lately(number).total() for number in range(len(KINDS)))
        circuits, fleet = _summed(record.last(record.circuits)), _summed(record.last(record.fleet))
        print(
            f"{now - begin:8.1f}  {what:34}{offered:>8}{_at_backend(record):>16}  {circuits:24}{fleet}".rstrip(),
            flush=True,
        )

    return show


def _at_backend(record: Record) -> int:
    return sum(at > record.told_until - 1.0 for at, _ in record.requests[-1000:])


def _summed(states: list[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in Counter(states).items())
