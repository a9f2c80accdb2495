"""What is different on Windows, as far as another system can show it."""

from __future__ import annotations

import pytest

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
