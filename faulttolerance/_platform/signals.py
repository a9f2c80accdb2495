"""Doing something when a signal comes, beside whatever it interrupts.

The handler itself only starts a thread. What it interrupts may stand anywhere, with locks held that are not reentrant:
in the middle of a reload, of a first call, of the application's own code. A thread waits for these as any other does.

The end of the process waits for a function that is being called, though not for ever: a thread that the interpreter
ends amidst code of a compiled extension, such as pydantic's, may take the process with it.
"""

from __future__ import annotations

import _thread
import atexit
import signal
import threading
from collections import deque
from collections.abc import Callable

from .._log import ERROR, log
from .fork import at_fork

_EXIT_SECONDS = 2.0
"""How long the end of the process waits for a function that is being called."""


class _Caller:
    """Calls a function after each signal, once for those that come while it is about to be called."""

    def __init__(self, signum: int, function: Callable[[], object]) -> None:
        self._signum = signum
        self._function = function
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what other threads are about to do: in the child of a fork they do not exist."""
        self._wanted: deque[None] = deque()
        self._calling = threading.Lock()

    def __call__(self, *_: object) -> None:
        """Handle the signal."""
        self._wanted.append(None)
        if not self._wanted:
            return  # a thread that is about to call has just seen it, or the process ends
        try:
            _thread.start_new_thread(self._serve, ())
        except RuntimeError as error:
            log(ERROR, "%s is left for the next one, there is no thread for it: %s", name_of(self._signum), error)

    def _serve(self) -> None:
        # Who finds the other calling leaves the rest to him: he looks again after he has let go.
        while self._wanted and self._calling.acquire(blocking=False):
            try:
                self._wanted.clear()
                self._function()
            finally:
                self._calling.release()

    def end(self) -> None:
        """Call no more, and wait for the function if it is being called."""
        self._wanted = deque(maxlen=0)  # which keeps nothing
        self._calling.acquire(timeout=_EXIT_SECONDS)


def call_on(signum: int, function: Callable[[], object]) -> bool:
    """Call *function*, which must not raise, on a thread of its own after each such signal.

    Returns:
        Whether a handler could be installed: Python allows it on the main thread of the main interpreter alone.
    """
    caller = _Caller(signum, function)
    try:
        signal.signal(signum, caller)
    except ValueError:
        return False
    at_fork(child=caller.begin_anew)
    atexit.register(caller.end)
    return True


def name_of(signum: int) -> str:
    """Return the signal as people know it, as in ``SIGHUP``."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
