"""Collecting garbage in a process with thousands of tests, most of which is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

__all__ = ["collect_garbage", "uncollected"]

_collections = count(1)


def collect_garbage(*, everywhere: bool = False) -> None:
    """Collect garbage among the objects made since the last time; among all now and then, or if it is *everywhere*."""
    if everywhere or next(_collections) % 400 == 0:
        gc.unfreeze()
    before = _times_collected()
    while _times_collected() == before:
        gc.collect()  # does nothing while another thread is in the middle of it, as in a callback of hypothesis
    gc.freeze()


def _times_collected() -> int:
    return gc.get_stats()[-1]["collections"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave the objects that the block creates out of garbage collections: they are many, and stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
