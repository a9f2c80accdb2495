"""What is shown while it runs: a live table in a terminal, a line per second elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from backend import END, spell_at
from figures import Figures
from history import ASCII, BLOCKS, PATIENCE, STEP, History, mark, spells
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from traffic import KINDS, Traffic

Show = Callable[[float, str], None]
"""Called now and then with the seconds since the begin and the name of the backend's spell."""

Read = Callable[[], dict[str, Figures]]
"""Gives what the guards have counted so far."""

COLOURS = {"closed": "green", "half-open": "yellow", "open": "bold red"}


LABELS = 16
"""Columns for what stands in front of each line of the timeline."""


@contextlib.contextmanager
def view(console: Console, guarded: Traffic, unguarded: Traffic, figures: Read, *, live: bool) -> Iterator[Show]:
    """Something to call several times a second."""
    if not live:
        yield _log(console, guarded, unguarded, figures)
        console.print("", timeline(console, guarded, unguarded, END + PATIENCE), sep="\n")
        return
    with Live(console=console, auto_refresh=False) as screen:

        def show(seconds: float, spell: str) -> None:
            table = _table(seconds, spell, guarded, unguarded, figures())
            screen.update(Group(table, "", timeline(console, guarded, unguarded, seconds)), refresh=True)

        yield show


def _table(seconds: float, spell: str, guarded: Traffic, unguarded: Traffic, found: dict[str, Figures]) -> Table:
    table = Table(title=f"The backend after {seconds:4.1f} s: {spell}", title_justify="left", box=None, pad_edge=False)
    table.caption, table.caption_justify = "bare: how many calls of the same traffic failed without guards", "left"
    table.padding = (0, 1, 0, 0)
    table.add_column("method", no_wrap=True)
    for column in ("calls", "retries", "time-out", "rejected", "fallback"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("circuit", min_width=9, no_wrap=True)
    table.add_column("failed", justify="right")
    table.add_column("bare", justify="right")
    for method, now in found.items():
        failed, bare = len(guarded.records[method].errors), len(unguarded.records[method].errors)
        table.add_row(
            method,
            *(str(count) for count in (now.calls, now.retries, now.timeouts, now.rejections, now.fallbacks)),
            Text(now.breaker, COLOURS.get(now.breaker, "")),
            Text(str(failed), "bold red" if failed else "green"),
            Text(str(bare), "bold red" if bare else "green"),
        )
    return table


def timeline(console: Console, guarded: Traffic, unguarded: Traffic, now: float) -> Text:
    """The outage as far as it is known *now*: the share of the calls that was answered in time, in steps."""
    width = 6 if console.width >= LABELS + 6 * END else 4  # columns of a second
    seconds = "".join(f"{number:<{2 * width}}" for number in range(0, round(END), 2))
    text = Text(f"{'second':<{LABELS}}{seconds.rstrip()}\n", no_wrap=True)
    text.append(f"{'the backend':<{LABELS}}{''.join(spells(width)).rstrip()}\n", "yellow")
    for name, history in (("with guards", guarded.history), ("without guards", unguarded.history)):
        text.append(f"{name:<{LABELS}}")
        for share in history.shares(now):
            text.append(mark(share, _marks(console)) * round(width * STEP), _colour(share))
        text.append("\n")
    text.append(f"{'':<{LABELS}}the higher, the more calls were answered within a second", "dim")
    return text


def _marks(console: Console) -> str:
    return ASCII if console.options.ascii_only else BLOCKS


def _colour(share: float) -> str:
    return "green" if share >= 0.9 else "yellow" if share >= 0.6 else "red"


def _log(console: Console, guarded: Traffic, unguarded: Traffic, figures: Read) -> Show:
    """A line for each second, as soon as it is known what became of the calls that came in it."""
    opened = set[int]()
    told = 0

    def line(*cells: str) -> None:
        console.print("{:>6}  {:<18} {:<16}   {:<16}   {}".format(*cells).rstrip(), highlight=False, soft_wrap=True)

    def share(history: History, second: int) -> str:
        answered = history.share(second, second + 1)
        return f"{_marks(console)[-1] * round(answered * 10):<10} {answered:5.0%}"

    def show(seconds: float, spell: str) -> None:
        nonlocal told
        if any(one.breaker == "open" for one in figures().values()):
            opened.add(int(seconds))
        while told < END and told + 1 + PATIENCE <= seconds:
            circuit = "open" if told in opened else ""
            line(str(told), spell_at(told).name, *(share(one.history, told) for one in (guarded, unguarded)), circuit)
            told += 1

    line("", "", "answered within a second", "", "")
    line("second", "the backend", "with guards", "without guards", "circuits")
    return show


def summary(console: Console, guarded: Traffic, unguarded: Traffic) -> None:
    """The same traffic with and without guards, side by side."""
    answered, bare = (100 * one.over(*KINDS).share for one in (guarded, unguarded))
    headline = f"Answered within a second: {answered:.1f} % with guards, {bare:.1f} % without"
    console.print("", Text(headline, "bold"), sep="\n")
    lines = ["", f"{'':21}{'with guards':^28}{'without guards':^28}".rstrip()]
    lines.append(f"{'method':<16}{'calls':>5}" + 2 * f"{'in 1 s':>9}{'failed':>9}{'p99':>10}")
    for name, kinds in [*((kind.method, [kind]) for kind in guarded.kinds), ("all", KINDS)]:
        line = f"{name:<16}{guarded.over(*kinds).calls:>5}"
        for record in (guarded.over(*kinds), unguarded.over(*kinds)):
            p99 = f"{record.percentile(99) * 1000:.0f} ms"
            line += f"{record.share:>9.1%}{record.error_rate:>9.1%}{p99:>10}"
        lines.append(line)
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
