"""The tables of the pages on migration, played: a service that answers as a row says, and the outcome of the calls.

A page shows pairs: a block `python old` of another library and a block `python new` of this one, either of which may be
missing. Both define `fetch`, which calls `service`. The table behind a pair says what becomes of the calls:

| the service answers | both |
| --- | --- |
| `ConnectionError` x2, `"fresh"` in 3 s | 3 calls, after 1 s, 2 to 4 s: `"fresh"` |

is one call of `fetch` for each row, and begins anew; the last answer repeats. A drawn delay is a range. A table
of time goes on from row to row, and says after each the state of the circuit:

| at | the service answers | pybreaker | here |
| --- | --- | --- | --- |
| 60 s | `ConnectionError` x2 | `ConnectionError`, open | refused, open |

Two columns stand for the other library and for this one; one column, for both. Cells in between are for readers.
Where a block has a list `heard`, what the service's client was told goes into it; that of both has to be the same.
"""

from __future__ import annotations

import asyncio
import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulttolerance import sleep
from faulttolerance.testing import VirtualClock

__all__ = ["Case", "Row", "Service", "Told", "cases", "matches", "outcome"]

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|[^\n]*\|\n){3,}", re.MULTILINE)
_ANSWER = re.compile(r"`(?P<what>[^`]+)`(?: in (?P<seconds>[\d.]+) s)?(?: [x\u00d7](?P<times>\d+))?")
_CALLS = re.compile(r"(?P<calls>\d+) calls?(?:, after (?P<delays>[^:]+))?: (?P<outcome>.+)")
_DELAY = re.compile(r"(?P<low>[\d.]+)(?: to (?P<high>[\d.]+))? s(?: [x\u00d7](?P<times>\d+))?")
_REFUSALS = [f"`{name}`" for name in ("CircuitBreakerError", "CircuitBreakerOpenException", "RateLimitException")]
_EDGE = 0.2
"""The distance to both ends of a range within which some of the delays come, as a part of it."""


class Rejected(Exception):
    """The meaning of `Rejected(503)` in a script: an answer with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class Service:
    """The called service: it answers as its script says, and records the moments of its calls."""

    clock: VirtualClock
    script: list[tuple[Any, float]] = field(default_factory=list)
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def follow(self, script: Sequence[tuple[Any, float]]) -> None:
        self.script, self.began, self.ended = [*script], [], []

    def __call__(self, *args: Any) -> Any:
        answer, seconds = self._next()
        try:
            if seconds:
                sleep(seconds)
            return self._say(answer)
        finally:
            self.ended.append(self.clock.monotonic())

    async def later(self, *args: Any) -> Any:
        """Answer as the script says, where the answer is awaited."""
        answer, seconds = self._next()
        try:
            await asyncio.sleep(seconds)
            return self._say(answer)
        finally:
            self.ended.append(self.clock.monotonic())

    @property
    def delays(self) -> list[float]:
        """The seconds between the end of an attempt and the beginning of the next."""
        return [began - ended for ended, began in zip(self.ended, self.began[1:], strict=False)]

    def _next(self) -> tuple[Any, float]:
        self.began.append(self.clock.monotonic())
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def _say(self, answer: Any) -> Any:
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        return answer


@dataclass(frozen=True)
class Row:
    """A line of a table: a moment or none, the answers of the service, and the results of the two libraries."""

    line: int
    at: float | None
    script: tuple[tuple[Any, float], ...]
    old: str
    new: str


@dataclass(frozen=True)
class Case:
    """A pair of blocks and its table."""

    page: Path
    line: int
    old: str
    new: str
    options: frozenset[str]
    rows: tuple[Row, ...]

    @property
    def is_drawn(self) -> bool:
        """Whether chance has a say."""
        return any(" to " in cell for row in self.rows for cell in (row.old, row.new))


@dataclass
class Told:
    """The result of one call, or of the calls of one moment."""

    outcome: str
    calls: int
    delays: list[float]
    state: str | None = None


def cases(page: Path) -> Iterator[Case]:
    """Yield the pairs of *page*, each with the table behind it."""
    text = page.read_text(encoding="utf-8")
    code = {"old": "", "new": ""}
    options: frozenset[str] = frozenset()
    line = 0
    found = sorted([*_FENCE.finditer(text), *_TABLE.finditer(_FENCE.sub(_blank, text))], key=lambda one: one.start())
    for one in found:
        if one.re is _FENCE:
            kind, _, which = one["info"].partition(" ")
            side, *more = which.split() or [""]
            if kind == "python" and side in code:
                if side == "old" or code["new"]:
                    code, options = {"old": "", "new": ""}, frozenset()
                code[side], options = one["code"], options | {*more}
                line = text.count("\n", 0, one.start()) + 1
        elif code["new"] and (rows := [*_rows(one[0], text.count("\n", 0, one.start()) + 1)]):
            yield Case(page, line, code["old"], code["new"], options, tuple(rows))
            code = {"old": "", "new": ""}


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _rows(table: str, line: int) -> Iterator[Row]:
    header, _, *body = ([cell.strip() for cell in row.strip("|\n").split("|")] for row in table.splitlines())
    if "the service answers" not in header:
        return
    asked = header.index("the service answers")
    for number, cells in enumerate(body, line + 2):
        at = float(cells[header.index("at")].removesuffix(" s")) if "at" in header else None
        yield Row(number, at, (*_script(cells[asked]),), cells[asked + 1], cells[-1])


def _script(cell: str) -> Iterator[tuple[Any, float]]:
    names = {**vars(builtins), "Rejected": Rejected}
    for one in _ANSWER.finditer(cell):
        yield from [(eval(one["what"], names), float(one["seconds"] or 0))] * int(one["times"] or 1)


def outcome(call: Callable[[], Any]) -> str:
    """Return the result, or the class of the exception, with that of its cause."""
    try:
        return f"`{call()!r}`".replace("'", '"')
    except (Exception, KeyboardInterrupt) as failure:  # any of them is compared
        cause = type(failure.__cause__).__name__ if failure.__cause__ else ""
        return f"`{type(failure).__name__}`" + (f" from `{cause}`" if cause else "")


def matches(cell: str, told: Sequence[Told]) -> str:
    """Return the difference between *cell* and one call, or as many as chance was asked; empty if there is none."""
    first = told[0]
    if first.state is not None:
        said = "refused" if not first.calls and first.outcome in _REFUSALS else first.outcome
        wanted, _, state = cell.rpartition(", ") if first.state else (cell, "", "")
        return "" if (_same(wanted, said), state) == (True, first.state) else f"{said}, {first.state}"
    found = _CALLS.fullmatch(cell)
    if not found:
        return f"no cell of calls: {cell}"
    ranges = [*_ranges(found["delays"] or "")]
    for one in told:
        fits = len(ranges) == len(one.delays) and all(
            low - 1e-6 <= delay <= high + 1e-6 for delay, (low, high) in zip(one.delays, ranges, strict=True)
        )
        if one.calls != int(found["calls"]) or not fits or not _same(found["outcome"], one.outcome):
            return f"{one.calls} calls, after {[round(delay, 3) for delay in one.delays]}: {one.outcome}"
    for number, (low, high) in enumerate(ranges):
        drawn = [one.delays[number] for one in told]
        near = _EDGE * (high - low)
        if len(told) > 1 and (min(drawn) > low + near or max(drawn) < high - near):
            return f"delay {number + 1} is between {min(drawn):.3f} and {max(drawn):.3f} s only"
    return ""


def _ranges(cell: str) -> Iterator[tuple[float, float]]:
    for one in _DELAY.finditer(cell):
        yield from [(float(one["low"]), float(one["high"] or one["low"]))] * int(one["times"] or 1)


def _same(wanted: str, said: str) -> bool:
    """Return whether the outcome is that of the page, which may leave out the cause."""
    return said == wanted or ("from" not in wanted and said.partition(" from ")[0] == wanted)
