"""Putting the runtime's settings for the whole process back to how they began."""

from __future__ import annotations

import sys

__all__ = ["reset"]


def reset() -> None:
    """Forget what ``configure`` set: limits of the pool, modules, the signal."""
    from . import interruption

    interruption.reset()
    pool = sys.modules.get("faulttolerance._runtime.pool")
    if pool is not None:
        pool.pool.configure(max_threads=None)
