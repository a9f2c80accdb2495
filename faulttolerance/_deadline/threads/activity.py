"""The activity of a thread as the operating system sees it: whether it sleeps, and its processor time."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from itertools import repeat
from operator import attrgetter, itemgetter, methodcaller


def cpu_of(native_id: int) -> float:
    """Return the processor time of a thread, in seconds; 0.0 where the system does not tell.

    No other thread gets to run meanwhile, as one would while a file is read.
    """
    if _clock_gettime is None:
        return 0.0
    try:
        return _clock_gettime(~native_id << 3 | _OF_THREAD)
    except OSError:
        return 0.0


_OF_THREAD = 6
"""The lowest bits of the number that the kernel of Linux gives the clock of a thread; the others tell which thread."""
_clock_gettime = time.clock_gettime if sys.platform == "linux" else None

sleeps = methodcaller("count", b") S ")
"""Whether the system's line on a thread says that it sleeps."""


class Activity:
    """The activity of the main thread: whether it sleeps, and the processor time that it has used.

    A thread that waits for the interpreter's lock sleeps as well, but wakes up each switch interval, which takes some
    of that time, or is at least on its way to. So one that has used none for longer than that, and still sleeps, is
    blocked in a call.
    """

    def __init__(self, ident: int) -> None:
        import ctypes

        clock = time.pthread_getcpuclockid(ident)
        self.cpu = partial(time.clock_gettime, clock)
        """The processor time, in seconds."""
        self.clocks = iter(self.cpu, None)
        """The same, again and again."""
        self._file = os.open(f"/proc/self/task/{os.getpid()}/stat", os.O_RDONLY)
        read = ctypes.PyDLL(None).pread  # unlike that of ``os``, it does not let other threads run
        read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
        read.restype = ctypes.c_ssize_t
        buffer = ctypes.create_string_buffer(512)
        reads = zip(map(read, repeat(self._file), repeat(buffer), repeat(511), repeat(0)), repeat(buffer))
        self.states = map(attrgetter("raw"), map(itemgetter(1), reads))
        """The system's line on the thread, again and again."""

    def close(self) -> None:
        """Look no more."""
        os.close(self._file)
