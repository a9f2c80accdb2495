"""What is shown while it runs: a live table in a terminal, a line per second elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from figures import Figures
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from traffic import KINDS, Traffic

Show = Callable[[float, str], None]
"""Called now and then with the seconds since the begin and the name of the backend's spell."""

Read = Callable[[], dict[str, Figures]]
"""Gives what the guards have counted so far."""

COLOURS = {"closed": "green", "half-open": "yellow", "open": "bold red"}


@contextlib.contextmanager
def view(console: Console, guarded: Traffic, unguarded: Traffic, figures: Read, *, live: bool) -> Iterator[Show]:
    """Something to call several times a second."""
    if not live:
        yield _log(console, guarded, unguarded, figures)
        return
    with Live(console=console, auto_refresh=False) as screen:
        yield lambda seconds, spell: screen.update(_table(seconds, spell, guarded, unguarded, figures()), refresh=True)


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


def _log(console: Console, guarded: Traffic, unguarded: Traffic, figures: Read) -> Show:
    next_line = 0.0

    def show(seconds: float, spell: str) -> None:
        nonlocal next_line
        if seconds < next_line:
            return
        next_line += 1.0
        now = figures().values()
        whole, bare = guarded.over(*KINDS), unguarded.over(*KINDS)
        breakers = " ".join(one.breaker for one in now if one.breaker)
        console.print(
            f"{seconds:5.1f} s  {spell:<18} {whole.calls:4} calls, {len(whole.errors)} failed,"
            f" {sum(one.retries for one in now)} retries, {sum(one.timeouts for one in now)} time-outs,"
            f" {sum(one.rejections for one in now)} rejections, {sum(one.fallbacks for one in now)} fallbacks,"
            f" circuits {breakers or 'unused'}; without guards {len(bare.errors)} failed",
            highlight=False,
            soft_wrap=True,
        )

    return show


def summary(console: Console, guarded: Traffic, unguarded: Traffic) -> None:
    """The same traffic with and without guards, side by side."""
    lines = ["", f"{'':17}{'guarded':^34}{'without guards':^34}"]
    lines.append(f"{'method':<17}" + 2 * f"{'calls':>7}{'failed':>8}{'p50':>9}{'p99':>10}")
    for name, kinds in [*((kind.method, [kind]) for kind in guarded.kinds), ("all", KINDS)]:
        line = f"{name:<17}"
        for record in (guarded.over(*kinds), unguarded.over(*kinds)):
            p50, p99 = (f"{record.percentile(percent) * 1000:.0f} ms" for percent in (50, 99))
            line += f"{record.calls:>7}{record.error_rate:>8.1%}{p50:>9}{p99:>10}"
        lines.append(line)
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
