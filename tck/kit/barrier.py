"""Places at which a body waits until the test releases it.

They are futures of the library: a wait for one does not hold virtual time.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import InvalidStateError
from contextlib import suppress

from faulttolerance import Future, Interrupted, sleep

__all__ = ["Barrier", "wait_ignoring_interruptions"]

_BODY_SECONDS = 30
"""The seconds after which a body gives up, so that no failed test leaves one behind for ever."""
_LOOK_SECONDS = 0.05
"""The sleep of a body that waits interruptibly, before it looks again."""
_PIECE_SECONDS = 3
"""The longest single wait of a body that ignores its interruptions."""


class Barrier:
    """A place at which a body arrives and waits until the test opens it."""

    def __init__(self) -> None:
        self._arrived: Future[None] = Future()
        self._opened: Future[None] = Future()

    def pass_through(self) -> None:
        """Wait at the barrier, in a body that runs on a thread."""
        _let_go(self._arrived)
        self._opened.result(_BODY_SECONDS)

    def pass_through_interruptibly(self) -> None:
        """Wait at the barrier, in a body that runs on a thread, so that an interruption ends the wait.

        A wait for a lock cannot be interrupted off the main thread; ``faulttolerance.sleep`` can.
        """
        _let_go(self._arrived)
        for _ in range(int(_BODY_SECONDS / _LOOK_SECONDS)):
            if self._opened.done():
                return
            sleep(_LOOK_SECONDS)
        raise TimeoutError("the barrier was never opened")

    async def pass_through_async(self) -> None:
        """Wait at the barrier, in a body that is a coroutine."""
        _let_go(self._arrived)
        await asyncio.shield(self._opened)

    @property
    def is_reached(self) -> bool:
        """Whether a body has arrived."""
        return self._arrived.done()

    def await_arrival(self, seconds: float) -> None:
        """Wait for a body to arrive; raise ``TimeoutError`` if that takes longer than so many real seconds."""
        self._arrived.result(seconds)

    def open(self) -> None:
        """Release the body; further calls change nothing."""
        _let_go(self._opened)


def _let_go(future: Future[None]) -> None:
    with suppress(InvalidStateError):
        future.set_result(None)


def wait_ignoring_interruptions(future: Future[None]) -> None:
    """Wait for *future* in a body that nothing can stop."""
    while True:
        try:
            while not future.done():
                try:
                    future.result(_PIECE_SECONDS)
                except TimeoutError:
                    pass
            return
        except Interrupted:
            continue
