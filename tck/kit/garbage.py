"""Collecting garbage in a process with thousands of tests, most of which is none."""

from __future__ import annotations

import gc
from itertools import count

__all__ = ["collect_garbage"]

_collections = count()


def collect_garbage(*, everywhere: bool = False) -> None:
    """Collect garbage among what came since the last time; among everything now and then, or if it is *everywhere*."""
    if everywhere or next(_collections) % 100 == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
