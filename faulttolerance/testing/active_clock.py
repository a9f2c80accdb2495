"""The virtual clock in use: one at a time, for the whole process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .._deadline.clock import clock as shared_clock
from .._execution.loop_thread import loop_thread
from .._platform.fork import at_fork
from .virtual_clock import Seed, VirtualClock
from .virtual_loop import VirtualLoop

_claim = threading.Lock()
"""Held while a virtual clock is in use."""


at_fork(child=lambda: None if VirtualClock.in_use is None else VirtualClock.in_use._reset_in_child())


@contextmanager
def virtual_time(seed: Seed = 0) -> Iterator[VirtualClock]:
    """Run a block in virtual time: delays, deadlines and windows pass at once and in order, in threads and coroutines.

    The whole process is on this clock for the length of the block. Nothing of Python is patched: ``time.sleep``, locks
    and real input keep taking real time, and hold virtual time where they do so inside a guard.

    Args:
        seed: The source of jitter; the same seed gives the same numbers.

    Raises:
        RuntimeError: Another ``virtual_time()`` block is active.

    >>> import faulttolerance
    >>> with virtual_time() as clock:
    ...     began = clock.monotonic()
    ...     faulttolerance.sleep(60)
    ...     clock.monotonic() - began
    60.0
    """
    with exclusive_clock():
        clock = VirtualClock.in_use = VirtualClock(seed)
        try:
            for loop in [*VirtualLoop.running]:
                loop.follow(clock)
            shared_clock.use(clock)
            loop_thread.stop_if_idle()
            loop_thread.loop_factory = clock.loop_factory
            yield clock
        finally:
            VirtualClock.in_use = None
            loop_thread.loop_factory = None
            loop_thread.stop_if_idle()
            shared_clock.use_system()
            clock._end()


@contextmanager
def exclusive_clock() -> Iterator[None]:
    """Reserve the right to replace the system's clock; only one block at a time has it."""
    if not _claim.acquire(blocking=False):
        raise RuntimeError("virtual_time() or simulate() is active already; one clock serves the whole process")
    try:
        yield
    finally:
        _claim.release()


def loop_factory() -> asyncio.AbstractEventLoop:
    """Return a new event loop that follows each virtual clock while it is active, and runs in real time otherwise.

    For test frameworks that create the loops themselves: ``{"virtual": loop_factory}`` from pytest-asyncio's hook
    ``pytest_asyncio_loop_factories``, ``("asyncio", {"loop_factory": loop_factory})`` from anyio's ``anyio_backend``.
    """
    return VirtualLoop(VirtualClock.in_use)
