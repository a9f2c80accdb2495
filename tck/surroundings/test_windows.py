"""Windows, as far as another system can show what is different there."""

from __future__ import annotations

import sys
import time

import pytest

from faulttolerance._platform import unpatched
from kit.program import python

pytestmark = pytest.mark.outside

PAUSING = """
import sys
sys.platform = "win32"
import _thread, threading
from faulttolerance import retry

@retry(delay="50s", max_duration=0)
def fails():
    # As Ctrl-C there: it does not end the wait for a lock.
    threading.Timer(0.1, _thread.interrupt_main).start()
    raise OSError

fails()
"""


def test_ctrl_c_ends_a_pause() -> None:
    """It ends ``time.sleep`` on the main thread, but up to CPython 3.13 no wait for a lock."""
    assert "KeyboardInterrupt" in python(PAUSING, seconds=30).stderr


def test_a_time_out_may_be_shorter_than_a_tick_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to CPython 3.12 ``time.monotonic`` moves once in 16 ms there: a call of 0.1 ms may seem to take as long."""
    monkeypatch.setattr(sys, "platform", "win32")

    assert unpatched._Native().monotonic is time.perf_counter
