"""Virtual time, a clean slate and passing configuration: for the tests of applications, and for our own.

    with virtual_time(seed=7) as clock:
        client.charge()  # the delays between the attempts pass at once
        clock.run(main())  # and so they do in coroutines
        clock.advance(5.0)  # the circuit breaker's delay is over

``disabled("Retry")`` switches policies off for a block, ``no_wait()`` lets delays pass at once on the real clock,
``reset()`` forgets what earlier tests left behind, ``configured({...})`` sets configuration keys for a block. The
pytest plugin offers the same as the fixtures ``ft_clock``, ``ft_reset`` and ``ft_configured``. A ``MemoryFleet`` stands
for other replicas and their server.
"""

from __future__ import annotations

from .._guard.control import configured, reset
from .active_clock import loop_factory, virtual_time
from .forcing import exhaust, force
from .memory_fleet import MemoryFleet
from .switching import disabled, no_wait
from .virtual_clock import VirtualClock
from .waiter import VirtualTimeStalled

__all__ = [
    "MemoryFleet",
    "VirtualClock",
    "VirtualTimeStalled",
    "configured",
    "disabled",
    "exhaust",
    "force",
    "loop_factory",
    "no_wait",
    "reset",
    "virtual_time",
]
