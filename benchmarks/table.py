"""The table: what was measured, what it has to be, and whether it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Limit", "Row", "cheaper", "near", "render", "under"]


@dataclass(frozen=True)
class Limit:
    """One condition; *reached* is as many times better as it is, *needed* as it has to be."""

    text: str
    reached: float
    needed: float = 1.0

    @property
    def holds(self) -> bool:
        return self.reached >= self.needed

    def __str__(self) -> str:
        return f"{'yes' if self.holds else 'NO '}  {self.text}"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    measured: str
    must: Sequence[Limit] = ()
    aim: Sequence[Limit] = ()
    figures: dict[str, float] = field(default_factory=dict)
    """Everything that was measured for it, by name; ``results.json`` keeps it."""

    @property
    def verdict(self) -> str:
        if not self.must:
            return "for information"
        if not all(limit.holds for limit in self.must):
            return "MISSED"
        return "aim" if self.aim and all(limit.holds for limit in self.aim) else "must"


def cheaper(figures: dict[str, float], ours: str, peer: str, times: float = 1.0) -> Limit:
    """Whether the cost *ours* is at most that of *peer*, or *times* less."""
    reached = figures[peer] / max(figures[ours], 1e-9)
    needed = "" if times == 1 else f", needed {times:g}x"
    return Limit(f"{reached:.2f}x cheaper than {peer} ({figures[peer]:,.0f} ns){needed}", reached, times)


def near(figures: dict[str, float], ours: str, floor: str, times: float = 1.3) -> Limit:
    """Whether the cost *ours* is at most so many *times* what keeping the promise costs at least."""
    reached = figures[ours] / figures[floor]
    return Limit(f"{reached:.2f}x the {floor} ({figures[floor]:,.0f} ns), allowed {times:g}x", times / reached)


def under(measured: float, limit: float, unit: str) -> Limit:
    """Whether *measured* stays under *limit*."""
    return Limit(f"{measured:,.4g} of {limit:,g} {unit}", limit / max(measured, 1e-9))


def render(rows: Sequence[Row]) -> str:
    """The table as text, one block per row."""
    lines = []
    for row in rows:
        lines.append(f"[{row.verdict:^15}] {row.what}: {row.measured}")
        lines += [f"    must {limit}" for limit in row.must]
        lines += [f"    aim  {limit}" for limit in row.aim]
    missed = [row.what for row in rows if row.verdict == "MISSED"]
    lines.append("")
    lines.append(f"missed: {'; '.join(missed)}" if missed else "every must holds")
    return "\n".join(lines)
