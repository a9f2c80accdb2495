"""Rule F1: a call that blocks its thread asks a distant fleet on that thread, unless another call does so."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import Mock
from weakref import ref

import pytest

from faulttolerance import Guard, TimeoutException, configure, timeout
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._extensions.fleet.protocol import Request, Response, TurnRequest
from faulttolerance._extensions.fleet.server.memory import MemoryServer
from faulttolerance._extensions.fleet.server_link import ThreadedLink
from faulttolerance.policies import FleetWide, RateLimit
from faulttolerance.testing import reset
from kit.fleet import DistantFleet, DistantSession
from kit.struck import Struck, strikes
from kit.waiting import wait_until

FREE = TurnRequest("free", "rolling", 1_000_000, 1_000_000, 1)
FULL = TurnRequest("full", "rolling", 1, 3_600_000_000, 1)


class Asked(DistantFleet):
    """A fleet whose sessions answer calls; each session is one stream of answers, like a connection."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.memory = MemoryServer()
        self.sessions: list[ref[Session]] = []
        self.senders: list[int] = []
        """The threads that have sent a question themselves."""
        self.waits: list[float] = []
        """The seconds for which each of them waits at most."""
        self.sent = threading.Event()
        self.breaks = False

    def connect(self, changed: Callable[[], object] | None = None) -> Session:
        session = Session(self)
        self.sessions.append(ref(session))
        return session


class Session(DistantSession):
    fleet: Asked

    def __init__(self, fleet: Asked) -> None:
        super().__init__(fleet)
        self.stream: deque[Response] = deque()
        self.is_closed = False

    def ask(self, question: TurnRequest, seconds: float) -> int | None:
        if self.is_closed or self.fleet.breaks:
            raise ConnectionError("closed")
        self.fleet.senders.append(threading.get_ident())
        self.fleet.waits.append(seconds)
        self.stream.append(self.fleet.answer(question))
        self.fleet.sent.set()
        if not self.fleet.thawed.wait(seconds):
            return None
        answer = self.stream.popleft()
        assert type(answer) is int
        return answer

    def exchange(self, questions: Sequence[Request]) -> Sequence[Response]:
        assert not self.stream
        return super().exchange(questions)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """A fleet that is configured, and has lent a session to calls."""
    monkeypatch.setattr("faulttolerance._extensions.fleet.session_pool._AGAIN_SECONDS", 0.0)
    fleet = Asked(poll=3600.0, patience=5.0)
    configure(fleet=fleet)
    wait_until(lambda: bool(fleet.batches))
    lend()
    yield fleet
    fleet.thawed.set()
    reset()


def lend() -> None:
    """Ask until the link has a session for calls."""
    link = fleet_link.current
    assert isinstance(link, ThreadedLink)
    told: list[Any] = []
    if not fleet_link.current.send_here(FREE, told.append):
        assert fleet_link.current.send(FREE, told.append)
    wait_until(lambda: told == [0] and bool(link._session_pool._idle))


def newest(fleet: Asked) -> Session:
    session = fleet.sessions[-1]()
    assert session is not None
    return session


def ask(question: TurnRequest) -> Any:
    """Ask as a call that blocks its thread, and return the answer."""
    told: list[Any] = []
    assert fleet_link.current.send_here(question, told.append) or fleet_link.current.send(question, told.append)
    wait_until(lambda: bool(told))
    (answer,) = told
    return answer


def limited(**more: Any) -> Guard:
    return Guard(rate_limit=RateLimit(1000, window=1000), fleet_wide=FleetWide(), name="asked by calls", **more)


def test_a_call_asks_on_its_own_thread(fleet: Asked) -> None:
    before = len(fleet.batches)
    assert limited().call(lambda: "done") == "done"

    assert fleet.senders[-1] == threading.get_ident()
    assert len(fleet.batches) == before


def test_a_coroutine_never_waits_for_the_server_on_its_loop(fleet: Asked) -> None:
    guard, before = limited(), list(fleet.senders)

    async def done() -> str:
        return "done"

    assert asyncio.run(guard.call_async(done)) == "done"
    assert fleet.senders == before


def test_a_single_call_asks_on_its_thread_and_others_go_in_batches(fleet: Asked) -> None:
    """Two connections are enough for both."""
    fleet.thawed.clear()
    told: list[Any] = []
    one = threading.Thread(target=lambda: fleet_link.current.send_here(FREE, told.append))
    fleet.sent.clear()
    one.start()
    assert fleet.sent.wait(5)
    for _ in range(20):
        assert not fleet_link.current.send_here(FREE, told.append)
        assert fleet_link.current.send(FREE, told.append)
    fleet.thawed.set()
    one.join()
    wait_until(lambda: len(told) == 21)

    assert told == [0] * 21
    assert len(fleet.sessions) == 2


def test_a_late_answer_is_told_and_is_no_answer_to_the_next_question(fleet: Asked) -> None:
    """A call waits no longer than its deadline; the question goes with the next batch, and the session is closed."""
    assert ask(FULL) == 0
    fleet.thawed.clear()
    told: list[Any] = []

    @timeout("1ms", interrupt=False)
    def late() -> None:
        fleet_link.current.send_here(FULL, told.append)

    try:
        late()
    except TimeoutException:
        pass
    assert told == []
    assert fleet.waits[-1] <= 0.001
    # The link may just be taking the question from its queue.
    wait_until(lambda: fleet_link.current.has_pending_requests)
    fleet.thawed.set()
    wait_until(lambda: bool(told))

    assert told[0] > 0
    lend()
    assert [ask(FREE), ask(FULL) > 0, ask(FREE)] == [0, True, 0]
    assert [session is None or session.is_closed for session in (one() for one in fleet.sessions)] == [
        False,
        True,
        False,
    ]


def test_a_call_whose_patience_is_over_decides_alone(fleet: Asked) -> None:
    fleet.patience = 0.01
    configure(fleet=None)
    configure(fleet=fleet)
    wait_until(lambda: fleet_link.current.processes == 2)  # the same process again, under another name
    lend()
    fleet.thawed.clear()
    guard = limited()
    assert guard.call(lambda: "done") == "done"

    assert fleet_link.current.health.is_up
    wait_until(lambda: not fleet_link.current.is_prompt)
    before = list(fleet.senders)
    assert guard.call(lambda: "done") == "done"
    assert fleet.senders == before


def test_a_session_that_breaks_costs_no_call_and_not_the_fleet(fleet: Asked) -> None:
    """The question goes with the next batch, which would find out that the server is gone."""
    fleet.breaks = True
    assert ask(FREE) == 0
    assert fleet_link.current.health.is_up

    fleet.breaks = False
    lend()
    before = list(fleet.senders)
    assert ask(FREE) == 0
    assert len(fleet.senders) == len(before) + 1


@pytest.mark.parametrize("error", [ConnectionError, Struck])
def test_a_session_with_an_exchange_that_failed_is_never_lent_again(fleet: Asked, error: type[BaseException]) -> None:
    """Its next answer may be that to the question of this call."""
    lent = newest(fleet)
    with pytest.MonkeyPatch.context() as patch, suppress(Struck):
        patch.setattr(fleet.thawed, "wait", Mock(side_effect=error))
        fleet_link.current.send_here(FULL, lambda answer: None)

    assert lent.is_closed
    lend()
    assert newest(fleet) is not lent


def test_an_outage_ends_the_session_of_calls(fleet: Asked) -> None:
    lent = newest(fleet)
    fleet.failure = ConnectionError("gone")
    told: list[Any] = []
    assert fleet_link.current.send(FREE, told.append)
    wait_until(lambda: told == [None])

    assert lent.is_closed
    assert not fleet_link.current.send_here(FREE, told.append)
    assert not fleet_link.current.health.is_up


def test_a_fork_copies_no_session_that_a_call_uses(fleet: Asked) -> None:
    """The call asks with the next batch: on a connection that two processes read, each takes the other's answers."""
    lent, told = newest(fleet), list[Any]()
    fleet.thawed.clear()
    fleet.sent.clear()

    def call() -> None:
        fleet_link.current.send_here(FREE, told.append)

    one = threading.Thread(target=call)
    one.start()
    assert fleet.sent.wait(5)
    fleet_link.current.stop()
    assert lent.is_closed
    fleet.thawed.set()
    one.join()
    fleet_link.current.start()
    lend()

    assert newest(fleet) is not lent
    assert ask(FREE) == 0


def test_a_strike_amidst_an_exchange_drops_the_session(fleet: Asked) -> None:
    """Wherever the handler strikes, no answer meets another question, and later calls ask on their threads again."""
    assert ask(FULL) == 0
    for strike in strikes("fleet/server_link.py", "session_pool.py"):
        lend()
        try:
            with strike:
                fleet_link.current.send_here(FULL, lambda answer: None)
        except Struck:
            pass
        assert [ask(FREE), ask(FULL) > 0, ask(FREE)] == [0, True, 0], strike.where
    lend()
    assert len([one for one in fleet.sessions if one() is not None]) == 2
