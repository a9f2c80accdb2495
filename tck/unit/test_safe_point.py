"""Where an interruption may be raised, and where not."""

from __future__ import annotations

import gc
import sys

from faulttolerance._runtime.safe_point import objection


def test_a_callback_of_the_collector_is_no_safe_point() -> None:
    """What such a callback raises is lost, and the collector may have come amidst a call that holds a lock."""
    heard: list[str | None] = []

    def callback(phase: str, info: dict[str, int]) -> None:
        heard.append(objection(sys._getframe(), 10.0, exact=True))
        heard.append(deeper())

    def deeper() -> str | None:
        return objection(sys._getframe(), 10.0, exact=True)

    gc.callbacks.append(callback)
    try:
        gc.collect(0)
    finally:
        gc.callbacks.remove(callback)

    assert set(heard) == {"it was in a callback of the garbage collector"}
