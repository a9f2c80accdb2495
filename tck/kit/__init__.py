"""The vocabulary of the tests under ``spec``: time, calling conventions, barriers, failures, on public names only."""

from __future__ import annotations

from .barrier import Barrier, wait_ignoring_interruptions
from .calls import Call, Calls
from .clock import Clock, RealClock, Stopwatch, VirtualClock
from .convention import CONVENTIONS, INTERRUPTION, Invoke, conventions
from .failure import E0, E0S, E1, E1S, E2, E2S, Error, TestException
from .service import Service, key
from .stacked import stacked

__all__ = [
    "CONVENTIONS",
    "E0",
    "E0S",
    "E1",
    "E1S",
    "E2",
    "E2S",
    "INTERRUPTION",
    "Barrier",
    "Call",
    "Calls",
    "Clock",
    "Error",
    "Invoke",
    "RealClock",
    "Service",
    "Stopwatch",
    "TestException",
    "VirtualClock",
    "conventions",
    "key",
    "stacked",
    "wait_ignoring_interruptions",
]
