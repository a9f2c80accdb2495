"""Putting the runtime's settings for the whole process back to how they began."""

from __future__ import annotations

import sys

__all__ = ["reset"]


def reset() -> None:
    """Forget what ``configure`` set: limits of the pool, modules, the signal."""
    from .interrupting import main_thread, safe_point

    safe_point.forget_added_modules()
    main_thread.set_interrupt_signal()
    pool = sys.modules.get("faulttolerance._runtime.pool")
    if pool is not None:
        pool.pool.configure(max_threads=None)
