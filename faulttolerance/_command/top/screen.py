"""The loop of ``top``: request, wait, draw, until the user ends it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live

from ..._deadline.clock import clock
from .guard_stats import REFUSALS, GuardStats, collect_stats, configurations, fleets
from .scraper import Scraper
from .table import render
from .target import PATIENCE, Target

try:
    import termios
    import tty
except ImportError:  # Windows lacks these modules
    termios = tty = None  # type: ignore[assignment]

POLL_SECONDS = 0.02
"""The seconds between two checks for answers."""

REFRESH = 0.25
"""The seconds between two drawings: the display of how long an address has been lost keeps counting."""

FIRST_INTERVAL = 1.0
"""The seconds to the second request if the interval is longer: rates need two answers."""

ENDS = ("q", "Q", "end")
MOVES = {"j": 1, "\x1b[B": 1, "\x1bOB": 1, "k": -1, "\x1b[A": -1, "\x1bOA": -1, " ": 10, "\x1b[6~": 10, "\x1b[5~": -10}
"""The number of guards by which each key moves down: letters, arrows, pages."""

Pressed = Callable[[float], str]
"""Waits for the number of seconds, or until a key is pressed; returns the key, or an empty string."""


@dataclass
class Top:
    """The scraper, the interval of requests, and the output."""

    scraper: Scraper
    interval: float
    """In seconds."""
    console: Console
    write: Callable[[str], None]
    """Writes a line of JSON."""
    as_json: bool = False

    def once(self) -> int:
        """Show one table; return 1 if an address did not answer, else 0."""
        self._look(PATIENCE)
        self._pause(min(self.interval, FIRST_INTERVAL))
        self._look(PATIENCE)
        self._print()
        return 1 if any(target.trouble for target in self.scraper.targets) else 0

    def run(self) -> None:
        """Show a table each interval until the user presses q or Ctrl-C; live if the terminal allows it."""
        is_live = self.console.is_terminal and not self.console.is_dumb_terminal and not self.as_json
        with _ended_by_signals():
            if is_live:
                self._live()
            else:
                self._log()

    def _log(self) -> None:
        pause = min(self.interval, FIRST_INTERVAL)
        self._look()
        while True:
            self._pause(pause)
            pause = self.interval
            self._look()
            self._print()

    def _live(self) -> None:
        first, pause = 0, min(self.interval, FIRST_INTERVAL)
        with Live(console=self.console, screen=True, auto_refresh=False) as live, _keys() as pressed:
            while True:
                self.scraper.scrape()
                rows = collect_stats(self.scraper.targets)
                end = clock.monotonic() + pause
                pause = self.interval
                while (left := end - clock.monotonic()) > 0:
                    live.update(self._drawn(rows, self.console.height, first), refresh=True)
                    key = pressed(min(left, REFRESH))
                    if key in ENDS:
                        return
                    first = max(0, min(first + MOVES.get(key, 0), len(rows) - 1))
                    if self.scraper.process_answers():
                        rows = collect_stats(self.scraper.targets)

    def _look(self, patience: float = FIRST_INTERVAL) -> None:
        """Request all pages and wait for the answers, at most *patience* seconds: an address may be slow."""
        self.scraper.scrape()
        end = clock.monotonic() + patience
        while not self.scraper.is_complete and clock.monotonic() < end:
            clock.sleep(POLL_SECONDS)
            self.scraper.process_answers()

    def _pause(self, seconds: float) -> None:
        clock.sleep(seconds)
        self.scraper.process_answers()

    def _print(self) -> None:
        rows = collect_stats(self.scraper.targets)
        if self.as_json:
            self.write(json.dumps(as_dict(self.scraper.targets, rows, clock.monotonic())))
        else:
            self.console.print(self._drawn(rows))
            self.console.print()

    def _drawn(self, rows: Sequence[GuardStats], height: int = 0, first: int = 0) -> Any:
        return render(self.scraper.targets, rows, clock.monotonic(), self.console.width, height, first)


def as_dict(targets: Sequence[Target], rows: Sequence[GuardStats], now: float) -> dict[str, Any]:
    """Return the contents of the table as values for JSON."""
    return {
        "targets": [
            {
                "url": target.url,
                "up": target.last is not None and not target.trouble,
                "reason": target.trouble or None,
                "lost_seconds": round(target.lost_for(now), 3),
                "answer_seconds": round(target.answer_seconds, 3),
                "mixed": target.is_mixed,
            }
            for target in targets
        ],
        "fleets": [fleet._asdict() for fleet in fleets(targets)],
        "configurations": sorted(configurations(targets)),
        "guards": [
            {
                "guard": row.method,
                "rank": row.severity.name.lower(),
                "per_second": {kind: rate for kind, rate in row.rates.items() if kind not in REFUSALS},
                "refused_per_second": {kind: rate for kind, rate in row.rates.items() if kind in REFUSALS},
                "circuit": dict(row.states),
                "levels": dict(row.levels),
            }
            for row in rows
        ],
    }


def _sleep(seconds: float) -> str:
    clock.sleep(seconds)
    return ""


@contextlib.contextmanager
def _keys() -> Iterator[Pressed]:
    """Yield a function that reads keys as they are pressed, without echo; without a terminal it reads no keys."""
    if termios is None or tty is None or not sys.stdin.isatty():
        yield _sleep
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return (os.read(number, 64).decode("ascii", "replace") or "end") if ready else ""

    try:
        tty.setcbreak(number)
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP as Ctrl-C, so that the terminal is restored before the process ends."""
    ends = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = [(one, signal.signal(one, signal.default_int_handler)) for one in ends]
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)
