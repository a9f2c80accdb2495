"""The turns of a window, as a server counts them: the twin of ``turn.lua``, to check it, and to simulate a server.

All moments and lengths are whole microseconds, and rounding never favours a caller. A refused call leaves no trace. The
moment of the last turn reveals whether the server's clock was set back; then moments in its future are cut to the
latest possible values.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from faulttolerance._extensions.fleet.protocol import TurnRequest
from faulttolerance._extensions.fleet.server.memory import MemoryServer

__all__ = ["TwinServer", "take_turn"]

WindowState: TypeAlias = tuple[int, ...]
"""The data of a window; the key under which it is kept contains its kind."""

_IDLE: Final = 3_600_000_000
"""The time after its end for which a fixed window determines the start of the next windows."""


def take_turn(state: WindowState | None, request: TurnRequest, now: int) -> tuple[WindowState | None, int]:
    """Return the new data in place of *state*, and the time until there may be room; 0: the turn is taken."""
    count = {"fixed": _fixed, "rolling": _rolling, "smooth": _smooth}[request.kind]
    return count(state, request, now)


def _smooth(state: WindowState | None, request: TurnRequest, now: int) -> tuple[WindowState | None, int]:
    """Count by GCRA: one theoretical arrival time, in microseconds and a fraction with the limit as its denominator.

    The data also contains the limit and the length of the window, the maximum number of missing turns, and the last
    turn.
    """
    limit, window, burst = request.limit, request.window, request.burst
    arrival, part, old_limit, old_window, most, last = state or (now, 0, limit, window, burst, now - request.spacing)
    is_kept = last <= now and (old_limit, old_window) == (limit, window)
    if (old_limit, old_window) != (limit, window):  # the number of turns that are still missing stays the same
        missing = min(float(max(0, arrival + (part > 0) - now)) * old_limit / old_window, most)
        arrival, part = now + math.ceil(missing * window / limit), 0
    if last > now:
        last = now
        arrival, part = min((arrival, part), (now + _times(burst, request)[0] + 1, 0))
    if arrival + (part > 0) < now:  # the fraction that was rounded up is not lost
        arrival, part = now, 0
    ahead, ahead_part = _times(burst - 1, request)
    wait = max(arrival - ahead + (part > ahead_part), last + request.spacing) - now
    if wait > 0:
        return state if is_kept else (arrival, part, limit, window, max(most, burst), last), wait
    step, step_part = divmod(window, limit)
    carried, part = divmod(part + step_part, limit)
    return (arrival + step + carried, part, limit, window, burst, now), 0


def _times(turns: int, request: TurnRequest) -> tuple[int, int]:
    """Return the time in which *turns* come back, in microseconds and a fraction with the limit as its denominator."""
    step, part = divmod(request.window, request.limit)
    whole, part = divmod(turns * part, request.limit)
    return turns * step + whole, part


def _fixed(state: WindowState | None, request: TurnRequest, now: int) -> tuple[WindowState | None, int]:
    """Count from the start of the window; the windows follow each other without gaps."""
    begin, count, last = state or (now, 0, now - request.spacing)
    is_kept = last <= now
    if not is_kept:
        begin, last = min(begin, now), now
    if now >= begin + request.window + _IDLE:
        begin, count = now, 0
    elif now >= begin + request.window:
        begin, count = now - (now - begin) % request.window, 0
    end = begin + request.window if count >= request.limit else now
    wait = max(end, last + request.spacing) - now
    if wait > 0:
        return state if is_kept else (begin, count, last), wait
    return (begin, count + 1, now), 0


def _rolling(state: WindowState | None, request: TurnRequest, now: int) -> tuple[WindowState | None, int]:
    """Keep a moment for each turn, the oldest first; each new turn removes at most two expired moments."""
    moments = state or ()
    if moments and moments[-1] > now:
        moments = tuple(min(moment, now) for moment in moments)
    due = moments[-request.limit] + request.window if len(moments) >= request.limit else now
    spaced = moments[-1] + request.spacing if moments else now
    wait = max(due, spaced) - now
    if wait > 0:
        return moments, wait
    over = sum(moment + request.window <= now for moment in moments[:2])
    return (*moments[over:], now), 0


class TwinServer(MemoryServer):
    """A server in this process whose clock may be set back, and whose callers may disagree on a limit."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, str], WindowState | None] = {}

    def clear(self) -> None:
        super().clear()
        self._windows.clear()

    def _take_turn_locked(self, request: TurnRequest, now: int) -> int:
        place = request.kind, request.key
        self._windows[place], wait = take_turn(self._windows.get(place), request, now)
        return wait
