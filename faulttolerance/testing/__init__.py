"""Time, state and configuration under the control of tests: those of applications, and the library's own.

    with virtual_time(seed=7) as clock:
        client.charge()  # the delays between the attempts pass at once
        clock.run(main())  # and so they do in coroutines
        clock.advance(5.0)  # the circuit breaker's delay is over

``disabled("Retry")`` switches policies off for a block, ``no_wait()`` skips the delays on the real clock,
``force(target, "open")`` and ``exhaust(target)`` bring circuits and limits into a state, ``inject(target, error=...)``
and ``fail_times(n, error)`` cause attempts to fail, ``recorded(target)`` records calls, ``reset()`` clears the state
that earlier tests left, ``configured({...})`` sets configuration keys for a block. The pytest plugin offers the same as
the fixtures ``ft_clock``, ``ft_reset``, ``ft_configured``, ``ft_calls`` and ``ft_events``. A ``MemoryFleet`` stands for
other replicas and their server. ``simulate(scenario)`` runs callers in turns, in orders that seeds choose.
"""

from __future__ import annotations

from .._control.configure import configured, reset
from .active_clock import loop_factory as loop_factory, virtual_time
from .faults import fail_times, inject
from .forcing import exhaust, force
from .memory_fleet import MemoryFleet
from .recording import RecordedAttempt, RecordedCall, captured_events, recorded
from .simulation import Simulation, SimulationFailed, simulate
from .switching import disabled, no_wait
from .virtual_clock import VirtualClock
from .waiter import VirtualTimeStalled

__all__ = [
    "MemoryFleet",
    "RecordedAttempt",
    "RecordedCall",
    "Simulation",
    "SimulationFailed",
    "VirtualClock",
    "VirtualTimeStalled",
    "captured_events",
    "configured",
    "disabled",
    "exhaust",
    "fail_times",
    "force",
    "inject",
    "no_wait",
    "recorded",
    "reset",
    "simulate",
    "virtual_time",
]
