"""Several processes of a fleet and its server, one step after the other: each has a breaker, its gate and shared state.

The server is the one that keeps a fleet in memory. Processes are asked and told by hand: questions reach the server
late, answers come late or never, in the order in which they were sent.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

from faulttolerance import CircuitBreakerOpenException
from faulttolerance._extensions.fleet.circuit import FleetCircuit
from faulttolerance._extensions.fleet.protocol import ABSENT, OnResponse, PollRequest, Request
from faulttolerance._extensions.fleet.server.memory import MemoryServer
from faulttolerance._strategy.circuit_breaker import CLOSED, CircuitBreaker, CircuitValues
from faulttolerance._strategy.gate import GateState
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, Verdict

__all__ = ["PATIENCE", "POLL", "READ", "Process", "World", "closed_again", "opened"]

POLL, PATIENCE = 1.0, 0.05
READ = PollRequest("", 1)


class World:
    """The server, the time, and the processes."""

    def __init__(self, processes: int = 2, *, latency: float = 0.0, delay: float = 5.0, **values: Any) -> None:
        self.now = 1000.0
        self.ahead = 1_000_000.0
        self.server = MemoryServer()
        self.latency = latency
        self.names = map(str, itertools.count())
        self.values = {"delay": delay, "request_volume_threshold": 2, "failure_ratio": 0.5, "success_threshold": 1}
        self.values |= values
        self.processes = [Process(self) for _ in range(processes)]
        for process in self.processes:
            process.read()

    def exchange(self, question: Request) -> Any:
        return self.server.exchange([question], round((self.now + self.ahead) * 1e6))[0]

    def advance(self, seconds: float) -> None:
        """Advance the time, and run what is due meanwhile."""
        end = self.now + seconds
        while True:
            due = min((process.due for process in self.processes), default=end)
            if due > end:
                break
            self.now = max(self.now, due)
            for process in self.processes:
                process.work()
        self.now = end

    @property
    def record(self) -> Any:
        return self.exchange(READ).circuits.get("key", ABSENT)

    @property
    def states(self) -> list[str]:
        return [process.breaker.state_name(self.now) for process in self.processes]


class Process:
    """One process of a fleet, and its way to the server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.current = self  # it is its own link
        self.patience = PATIENCE
        self.is_up = True
        self.asked: deque[tuple[float, Request, OnResponse]] = deque()
        self.answered: deque[tuple[float, Request, Any, OnResponse]] = deque()
        self.next_read = world.now + POLL
        self.sent: list[Request] = []
        self.breaker = CircuitBreaker("name", CircuitValues(**world.values), now=world.now)
        self.moves: list[tuple[str, str, str]] = []
        self.circuit = self.gate = FleetCircuit("key", self.breaker, self, lambda: next(world.names), self.deliver)
        self.running: dict[object, tuple[GateState, float, bool]] = {}
        """By attempt: its era, when it began, and whether the fleet knows of it."""

    def deliver(self, breaker: CircuitBreaker) -> None:
        breaker.deliver(lambda *move: self.moves.append(move))

    # The way to the server

    def send(self, question: Request, tell: OnResponse) -> bool:
        if not self.is_up:
            return False
        self.sent.append(question)
        if self.world.latency:
            self.asked.append((self.world.now + self.world.latency / 2, question, tell))
        else:
            self.hear(question, self.world.exchange(question), tell)
        return True

    def send_for(self, circuit: FleetCircuit, question: Request, tell: OnResponse) -> bool:
        return self.send(question, tell)

    def hear(self, question: Request, answer: Any, tell: OnResponse) -> None:
        if isinstance(question, PollRequest):
            answer = answer.circuits.get("key", ABSENT)
        self.circuit.follow(answer, self.world.now)
        tell(answer)

    @property
    def due(self) -> float:
        return min([self.next_read, *(queue[0][0] for queue in (self.asked, self.answered) if queue)])

    def work(self) -> None:
        now, world = self.world.now, self.world
        while self.asked and self.asked[0][0] <= now:
            _, question, tell = self.asked.popleft()
            self.answered.append((now + world.latency / 2, question, world.exchange(question), tell))
        while self.answered and self.answered[0][0] <= now:
            self.hear(*self.answered.popleft()[1:])
        if self.next_read <= now:
            self.next_read = now + POLL
            self.read()

    def read(self) -> None:
        self.send(READ, lambda _: None)

    def lose(self, arrives: bool = False) -> None:
        """Lose the fleet; if it *arrives*, the server still gets what was sent."""
        self.is_up = False
        lost = [tell for *_, tell in (*self.answered, *self.asked)]
        if arrives:
            for _, question, _ in self.asked:
                self.world.exchange(question)
        self.asked.clear()
        self.answered.clear()
        for tell in lost:
            tell(None)
        self.circuit.follow(None, self.world.now)

    def regain(self) -> None:
        if not self.is_up:
            self.is_up = True
            self.read()

    # Calls

    def begin(self) -> object | None:
        """Begin a call; return ``None`` if it is refused."""
        me, now = object(), self.world.now
        era = self.gate.state
        is_leased = False
        if not era.is_closed:
            if now < era.until:
                return None
            try:
                before = len(self.circuit._probes)
                era = self.gate.admit(me, 1, now)
                is_leased = len(self.circuit._probes) > before
            except CircuitBreakerOpenException:
                return None
        self.running[me] = era, now, is_leased
        return me

    def end(self, me: object, verdict: Verdict) -> None:
        era, _, _ = self.running.pop(me)
        if not (era.is_clean if verdict == SUCCESS else verdict == NEUTRAL and era.is_closed):
            self.gate.settle(era, me, verdict, self.world.now, "OSError" if verdict == FAILURE else "")
        self.deliver(self.breaker)

    def call(self, verdict: Verdict = SUCCESS) -> bool:
        """Make a call that takes no time; return whether it was admitted."""
        me = self.begin()
        if me is not None:
            self.end(me, verdict)
        return me is not None

    def fail(self) -> None:
        """Open the circuit here, if it is closed."""
        for _ in range(2):
            self.call(FAILURE)


def opened(*, after: float = 5.0, **values: Any) -> World:
    """Return a fleet whose circuit was opened by its first process, with every process informed."""
    world = World(**values)
    world.processes[0].fail()
    world.advance(after)
    return world


def closed_again() -> World:
    """Return a fleet whose circuit was open, and was closed by a probe."""
    world = opened()
    world.processes[0].call()
    world.processes[0].call()
    world.advance(POLL)
    assert world.states == [CLOSED, CLOSED]
    return world
