"""The activity of a thread as the operating system reports it: whether it sleeps, and its processor time."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from itertools import repeat
from operator import attrgetter, itemgetter, methodcaller


def cpu_of(native_id: int) -> float:
    """Return the processor time of a thread, in seconds; 0.0 if the system does not report it.

    No other thread runs meanwhile, as another thread could while a file is read.
    """
    if _clock_gettime is None:
        return 0.0
    try:
        return _clock_gettime(~native_id << 3 | _OF_THREAD)
    except OSError:
        return 0.0


_OF_THREAD = 6
"""The lowest bits of the number of a thread's clock in the kernel of Linux; the other bits identify the thread."""
_clock_gettime = time.clock_gettime if sys.platform == "linux" else None

sleeps = methodcaller("count", b") S ")
"""Whether the system's status line of a thread says that the thread sleeps."""


class Activity:
    """The activity of the main thread: whether it sleeps, and the processor time that it has used.

    A thread that waits for the interpreter's lock sleeps as well, but wakes up at each switch interval. The wake-up
    uses processor time, or is at least about to. So a thread that has used no time for longer than the interval, and
    still sleeps, is blocked in a call.
    """

    def __init__(self, ident: int) -> None:
        import ctypes

        clock = time.pthread_getcpuclockid(ident)
        self.cpu = partial(time.clock_gettime, clock)
        """Returns the processor time, in seconds."""
        self.clocks = iter(self.cpu, None)
        """An endless iterator of the processor time."""
        self._file = os.open(f"/proc/self/task/{os.getpid()}/stat", os.O_RDONLY)
        read = ctypes.PyDLL(None).pread  # unlike ``os.pread``, it does not let other threads run
        read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
        read.restype = ctypes.c_ssize_t
        buffer = ctypes.create_string_buffer(512)
        reads = zip(map(read, repeat(self._file), repeat(buffer), repeat(511), repeat(0)), repeat(buffer))
        self.states = map(attrgetter("raw"), map(itemgetter(1), reads))
        """An endless iterator of the system's status line of the thread."""

    def close(self) -> None:
        """Close the file of the status line."""
        os.close(self._file)
