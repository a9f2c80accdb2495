"""The outage as a customer sees it: which part of the calls was answered within a second, moment by moment."""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend import END, TIMETABLE

PATIENCE = 1.0
"""Seconds after which an answer is none to a customer; a substitute counts as an answer, an error does not."""

STEP = 0.5
"""Seconds of one mark in the timeline. Every spell of the timetable begins with one."""

BLOCKS, ASCII = "▁▂▃▄▅▆▇█", "_.:-=+*#"


class History:
    """When calls came, and which of them were answered in time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came = [0] * round(END / STEP)
        self._answered = [0] * len(self._came)

    def come(self, moment: float) -> None:
        """Note a call, by its second after the begin. From any thread, as the next."""
        with self._lock:
            self._came[_step(moment)] += 1

    def end(self, moment: float, seconds: float, error: BaseException | None) -> bool:
        """Note how the call that came then went; whether it was answered in time."""
        in_time = error is None and seconds < PATIENCE
        with self._lock:
            self._answered[_step(moment)] += in_time
        return in_time

    def share(self, since: float = 0.0, until: float = END) -> float:
        """The part of the calls that came in between and were answered in time, from 0 to 1; 1 if none came."""
        steps = slice(round(since / STEP), round(until / STEP))
        came = sum(self._came[steps])
        return sum(self._answered[steps]) / came if came else 1.0

    def shares(self, now: float) -> list[float]:
        """The share of each step of which it is known *now*."""
        known = int(max(0.0, min(END, now - PATIENCE)) / STEP)
        return [self.share(number * STEP, (number + 1) * STEP) for number in range(known)]


def _step(moment: float) -> int:
    return min(int(moment / STEP), round(END / STEP) - 1)


def mark(share: float, marks: str) -> str:
    """One character for a share: the last one of *marks* for all, the first one for none or nearly none."""
    return marks[int(share * (len(marks) - 1))]


def spells(width: int) -> Iterator[str]:
    """What went on, each as wide as its time, where a second is *width* wide; nothing where all was well."""
    for spell in TIMETABLE:
        room = round((spell.until - spell.since) * width)
        label = f"{spell.label[: room - 1]:-<{room - 1}} " if spell.label else ""
        yield f"{label:<{room}}"


def record(file: Path, guarded: History, unguarded: History) -> None:
    """Keep the history of a run, for the picture that `picture.py` draws."""
    kept: dict[str, Any] = {
        "machine": f"CPython {platform.python_version()}",
        "step": STEP,
        "spells": [[spell.label, spell.since, spell.until] for spell in TIMETABLE],
    }
    for name, history in (("guarded", guarded), ("unguarded", unguarded)):
        kept[name] = {
            "share": round(history.share(), 4),
            "shares": [round(share, 4) for share in history.shares(END + PATIENCE)],
        }
    file.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
