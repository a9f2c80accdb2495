"""A fleet in this process that answers at once, for the tests of applications."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..._deadline.clock import clock
from .protocol import CircuitFollower, Fleet, OnResponse, Request, TurnRequest
from .server_link import Circuits, ServerLink, reason_of


class DirectLink(ServerLink):
    """A fleet in this process, asked on the thread of the call; it reports its changes."""

    def __init__(self, fleet: Fleet, circuits: Circuits) -> None:
        super().__init__(fleet, circuits, lambda: clock.monotonic(), "")  # the clock of each moment
        self._connect = partial(fleet.connect, self.start)

    def start(self) -> None:
        """Read the circuits, or check whether a lost fleet answers again."""
        response = None if self._is_closed else self._exchange_one(self._poll)
        if response is not None:
            self._read(response)

    def send(self, request: Request, on_response: OnResponse) -> bool:
        """Send *request* now, and pass the answer to *on_response*; return false if the fleet is lost."""
        response = self._exchange_one(request) if self.health.is_up else None
        if response is None:
            return False
        on_response(response)
        if not isinstance(request, TurnRequest):
            self.start()
        return True

    def initialize(self, circuit: CircuitFollower) -> None:
        """Pass the state of the fleet to the new *circuit*."""
        if self.health.is_up:
            self.start()

    def shut_down(self) -> None:
        """Stop answering."""
        super().shut_down()
        self._close()

    def _exchange_one(self, request: Request) -> Any:
        """Return the answer to *request*; ``None`` if the fleet is lost."""
        was_up = self.health.is_up
        try:
            (response,) = self._exchange([request])
        except Exception as error:  # any error means that there is no answer
            self._lose(reason_of(error))
            return None
        if not was_up:
            self._regain()
        return response
