"""A fleet that seems to be outside of this process: several links meet in it, with delays and losses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from faulttolerance._extensions.fleet.protocol import Request, Response
from faulttolerance._extensions.fleet.server.memory import MemoryServer

__all__ = ["DistantFleet", "DistantSession"]


class DistantFleet:
    """One server, asked by any number of "processes", each with a session of its own.

    Args:
        poll: Seconds.
        patience: Seconds.
        now: The server's clock, in seconds.
    """

    is_immediate = False

    def __init__(
        self,
        namespace: str = "distant",
        poll: float = 0.05,
        patience: float = 0.2,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.namespace = namespace
        self.poll = poll
        self.patience = patience
        self.now = now
        self.memory = MemoryServer()
        self.silence: float | None = None
        """Seconds after which an exchange that is not answered fails; ``None``: the patience."""
        self.refuse: Callable[[Request], object] = lambda _: None
        """Is called with each question, and may raise: the server refuses it."""
        self.delay = 0.0
        """Real seconds that each exchange takes."""
        self.failure: Exception | None = None
        """What each exchange fails with, at once: the server is gone."""
        self.thawed = threading.Event()
        """While it is clear, no exchange is answered: the server is frozen."""
        self.thawed.set()
        self.asked: list[Request] = []
        """Every question that was answered, in order."""
        self.batches: list[int] = []
        """How many came at once."""

    def __repr__(self) -> str:
        return f"DistantFleet({self.namespace!r})"

    def connect(self, changed: Callable[[], object] | None = None) -> DistantSession:
        return DistantSession(self)

    def answer(self, question: Request) -> Response:
        """Ask as another process, at once and regardless of faults of the server."""
        return self.memory.exchange([question], round(self.now() * 1e6))[0]


class DistantSession:
    """The session that ``DistantFleet.connect`` returns."""

    def __init__(self, fleet: DistantFleet) -> None:
        self.fleet = fleet

    def exchange(self, questions: Sequence[Request]) -> Sequence[Response]:
        fleet = self.fleet
        if fleet.failure is not None:
            raise fleet.failure
        silence = fleet.patience if fleet.silence is None else fleet.silence
        if fleet.delay:
            time.sleep(min(fleet.delay, silence))
        if fleet.delay > silence or not fleet.thawed.wait(silence):
            raise TimeoutError("no answer in time")
        if fleet.failure is not None:
            raise fleet.failure
        for question in questions:
            fleet.refuse(question)
        fleet.batches.append(len(questions))
        fleet.asked += questions
        return fleet.memory.exchange(questions, round(fleet.now() * 1e6))

    def close(self) -> None: ...
