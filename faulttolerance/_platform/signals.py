"""Functions that run when a signal arrives, beside the code that the signal interrupts.

The handler itself only starts a thread. The interrupted code may stand anywhere, and hold locks that are not reentrant:
in the middle of a reload, of a first call, of the application's own code. The thread waits for these locks as any
other.

The end of the process waits for a running function, with a limit. A thread that the interpreter ends in the middle of a
compiled extension's code, such as pydantic's, may crash the process.
"""

from __future__ import annotations

import _thread
import atexit
import signal
from collections import deque
from collections.abc import Callable

from .._log import ERROR, log
from .background import Aside
from .fork import at_fork

_EXIT_SECONDS = 2.0
"""Seconds for which the end of the process waits for a running function."""


class _Caller(Aside):
    """The handler that has a function called after each signal, and once for all that arrive before the call."""

    def __init__(self, signum: int, function: Callable[[], object]) -> None:
        super().__init__()
        self._signum = signum
        self._function = function

    def __call__(self, *_: object) -> None:
        """Handle the signal."""
        if not self._waiting:
            self._waiting.append(self._function)
        try:
            _thread.start_new_thread(self.serve, ())
        except RuntimeError as error:
            log(ERROR, "%s waits for the next signal: no thread can be started: %s", name_of(self._signum), error)

    def end(self) -> None:
        """Stop further calls, and wait for the function if it is running."""
        self._waiting.clear()
        self._waiting = deque(maxlen=0)  # keeps no items
        self._serving.acquire(timeout=_EXIT_SECONDS)


def call_on(signum: int, function: Callable[[], object]) -> bool:
    """Call *function*, which must not raise, on a thread of its own after each signal *signum*.

    Returns:
        Whether a handler could be installed: Python allows it only on the main thread of the main interpreter.
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
    """Return the name of the signal, as in ``SIGHUP``, where *signum* is more than a number."""
    return getattr(signum, "name", f"signal {signum}")
