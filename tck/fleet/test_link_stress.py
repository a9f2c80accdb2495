"""One link under many threads and tasks while a fleet comes and goes: each caller is told once, or not at all."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from faulttolerance import configure
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._extensions.fleet.protocol import TurnRequest
from faulttolerance._extensions.fleet.server_link import ThreadedLink
from faulttolerance.testing import reset
from kit.crowd import press
from kit.fleet import DistantFleet
from kit.waiting import wait_until

pytestmark = pytest.mark.stress

SECONDS = 4.0
TURN = TurnRequest("limit", "rolling", 1_000_000_000, 1_000_000, 1)


class Asker:
    """A question, and the answers to it."""

    __slots__ = ("came", "told")

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.came: Any = lambda: None

    def __call__(self, answer: Any) -> None:
        self.told.append(answer)
        self.came()


class Askers:
    """All questions, by whether their callers stayed."""

    def __init__(self) -> None:
        self.stayed: list[Asker] = []
        self.left: list[Asker] = []
        self.alone: list[None] = []
        self.in_vain: list[None] = []

    def thread(self, dice: random.Random) -> None:
        """Ask, and wait for as long as a call would."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            asker, came = Asker(), threading.Event()
            asker.came = came.set
            if not fleet_link.current.send(TURN, asker):
                self.alone.append(None)
                time.sleep(dice.random() * 0.01)
            elif came.wait(5):
                self.stayed.append(asker)
            else:
                self.in_vain.append(None)

    async def task(self, dice: random.Random) -> None:
        """Do the same in a task that may be cancelled."""
        await asyncio.sleep(dice.random() * 0.05)
        asker, loop = Asker(), asyncio.get_running_loop()
        came = loop.create_future()
        asker.came = lambda: loop.call_soon_threadsafe(lambda: came.done() or came.set_result(None))
        if not fleet_link.current.send(TURN, asker):
            self.alone.append(None)
            return
        try:
            await came
        except asyncio.CancelledError:
            self.left.append(asker)
            raise
        self.stayed.append(asker)


def give_up() -> None:
    """Lose the fleet on this thread, as the watchdog does where connecting takes too long."""
    link = fleet_link.current
    if isinstance(link, ThreadedLink):
        link._give_up()


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[DistantFleet]:
    """A fleet that is asked again soon after it was lost."""
    monkeypatch.setattr("faulttolerance._extensions.fleet.health._SHORTEST_PAUSE", 0.05)
    fleet = DistantFleet(patience=0.3)
    configure(fleet=fleet)
    yield fleet
    fleet.thawed.set()
    reset()


@pytest.mark.timeout(120)
def test_each_question_is_told_once_or_not_at_all(fleet: DistantFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule F1: this holds while the fleet fails, freezes, is given up and swapped, and comes back."""
    askers, over = Askers(), threading.Event()
    other = DistantFleet("other")

    def shake() -> None:
        dice = random.Random(7)
        while not over.wait(dice.random() * 0.2):
            match dice.randrange(5):
                case 0:
                    fleet.failure = ConnectionError("gone")
                case 1:
                    fleet.thawed.clear()
                case 2:
                    give_up()
                case 3:
                    configure(fleet=dice.choice([fleet, other]))
                case 4:
                    fleet.failure = None
                    fleet.thawed.set()

    shaking = threading.Thread(target=shake, daemon=True)
    shaking.start()
    press(SECONDS, askers.thread, askers.task)
    over.set()
    shaking.join()
    fleet.failure = None
    fleet.thawed.set()
    configure(fleet=None)

    assert not askers.in_vain
    assert {len(asker.told) for asker in askers.stayed} == {1}
    wait_until(lambda: all(len(asker.told) == 1 for asker in askers.left))
    answers = {asker.told[0] for asker in askers.stayed}
    assert answers == {0, None}
    assert len(askers.stayed) > 5_000
    askers.stayed.clear()
    askers.left.clear()
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is Asker]


@pytest.mark.timeout(120)
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers that send signals")
def test_handlers_and_finalizers_ask_while_their_thread_does(fleet: DistantFleet) -> None:
    """They may come between any two steps of the thread; no lock is held for which they would wait."""
    told: list[Any] = []
    asked: list[None] = []

    def ask() -> None:
        if fleet_link.current.send(TURN, told.append):
            asked.append(None)

    class Last:
        def __del__(self) -> None:
            ask()

    def handle(*_: object) -> None:
        ask()
        if len(asked) % 7 == 0:
            give_up()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            ask()
            Last()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    wait_until(lambda: len(told) == len(asked))
    assert asked


@pytest.mark.timeout(120)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forks_lose_no_question(fleet: DistantFleet) -> None:
    """The questions of the parent go on after the fork, also those that came while its thread was away."""
    askers, over = Askers(), threading.Event()

    def thread() -> None:
        while not over.is_set():
            asker, came = Asker(), threading.Event()
            asker.came = came.set
            if fleet_link.current.send(TURN, asker):
                assert came.wait(10)
                askers.stayed.append(asker)

    threads = [threading.Thread(target=thread, daemon=True) for _ in range(8)]
    for one in threads:
        one.start()
    for _ in range(20):
        child = os.fork()
        if not child:
            status = 1
            with suppress(BaseException):
                asker = Asker()
                came = threading.Event()
                asker.came = came.set
                status = 0 if fleet_link.current.send(TURN, asker) and came.wait(10) else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    over.set()
    for one in threads:
        one.join(20)

    assert not [one for one in threads if one.is_alive()]
    assert {tuple(asker.told) for asker in askers.stayed} == {(0,)}
    assert fleet_link.current.health.is_up
