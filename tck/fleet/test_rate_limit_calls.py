"""Rules F2 and F5: a rate limit that processes share, in every way of calling, while its server fails."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import (
    Future,
    Guard,
    RateLimitException,
    RedisFleet,
    asynchronous,
    completed_future,
    configure,
    fleet_wide,
    hedge,
    partition_by,
    rate_limit,
)
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._extensions.fleet.protocol import TurnRequest
from faulttolerance.policies import FleetWide, RateLimit, Timeout
from faulttolerance.testing import MemoryFleet, configured, reset, virtual_time
from kit.fleet import DistantFleet
from kit.program import output_of
from kit.redis_server import RedisServer, redis_server
from kit.surroundings import PATCH, needs
from kit.waiting import wait_until

WAYS = ("blocking", "asyncio", "offloaded", "task", "block", "async block")
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def fleet() -> Iterator[DistantFleet]:
    """A fleet that is configured, and answers in a moment."""
    fleet = DistantFleet(poll=3600.0)
    configure(fleet=fleet)
    wait_until(lambda: bool(fleet.asked))
    fleet.asked.clear()
    yield fleet
    fleet.thawed.set()
    reset()


numbers = count()


@pytest.fixture
def patient(fleet: DistantFleet) -> DistantFleet:
    """A configured fleet for which calls wait long."""
    fleet.patience = 30.0
    configure(fleet=None)
    configure(fleet=fleet)
    wait_until(lambda: bool(fleet.asked))
    return fleet


def limited(way: str, **values: Any) -> Callable[..., Any]:
    """Return a function that makes a call, under a deadline if given, and returns "sent" or the name of the failure."""

    def send() -> str:
        return "sent"

    async def send_async() -> str:
        return "sent"

    def offload() -> Future[str]:
        return completed_future("sent")

    name = f"send{next(numbers)}"
    guard = Guard(rate_limit=RateLimit(**values), fleet_wide=FleetWide(), name=name)
    for function in (offload, send_async):
        function.__qualname__ = name
    offloaded = fleet_wide(rate_limit(**values)(asynchronous(offload)))
    task = fleet_wide(rate_limit(**values)(asynchronous(send_async)))

    def in_block() -> str:
        with guard.attempt():
            return "sent"

    async def in_async_block() -> str:
        async with guard.attempt():
            return "sent"

    made: dict[str, Callable[[], Any]] = {
        "blocking": lambda: guard.call(send),
        "block": in_block,
        "offloaded": lambda: offloaded().result(30),
        "asyncio": lambda: guard.call_async(send_async),
        "task": lambda: as_coroutine(task()),
        "async block": in_async_block,
    }
    make = made[way]

    def call(within: int | None = None) -> Any:
        outer = Guard(timeout=Timeout(within)) if within else Guard()
        try:
            if way in ("blocking", "block", "offloaded"):
                return outer.call(make)
            return asyncio.run(outer.call_async(make))
        except Exception as error:
            return type(error).__name__

    return call


async def as_coroutine(awaitable: Any) -> Any:
    return await awaitable


def questions(fleet: DistantFleet) -> list[TurnRequest]:
    """Return the questions for turns."""
    return [question for question in fleet.asked if isinstance(question, TurnRequest)]


@every_way
def test_a_turn_that_another_process_took_is_taken(way: str, fleet: DistantFleet) -> None:
    """By rule F2: the first process that asks gets the turn; a waiting call passes when the fleet has a turn."""
    call = limited(way, value=2, window=60, type="rolling")
    assert call() == "sent"
    (question,) = questions(fleet)
    assert question == (question.key, "rolling", 2, 60_000_000, 1, 0)
    assert fleet.answer(question) == 0
    assert call() == "RateLimitException"

    patient = limited(way, value=1, window=200, window_unit="millis", type="rolling", max_wait=5000)
    assert patient() == "sent"
    began = time.monotonic()
    assert fleet.answer(questions(fleet)[-1]) > 0
    assert patient() == "sent"
    assert time.monotonic() - began > 0.15


@every_way
def test_a_server_that_says_nothing_costs_one_call_its_patience(way: str, fleet: DistantFleet) -> None:
    """By rule F5, trap 27: no call waits again before the server is back; each process keeps its window."""
    call = limited(way, value=3, window=60, type="rolling")
    assert call() == "sent"
    fleet.thawed.clear()
    began = time.monotonic()
    assert call() == "sent"
    assert time.monotonic() - began >= 0.19  # the patience
    wait_until(lambda: not fleet_link.current.health.is_up)
    began = time.monotonic()
    assert [call(), call()] == ["sent", "RateLimitException"]
    assert time.monotonic() - began < 5.0
    fleet.thawed.set()
    if way == "blocking":  # it takes a second
        wait_until(lambda: fleet_link.current.health.is_up)
        assert call() == "RateLimitException"


@pytest.mark.stress
def test_threads_and_tasks_lose_nothing_whatever_the_server_does(fleet: DistantFleet) -> None:
    """By rule F5, target G9: at most one batch waits for a failed server, and the limit is shared again in 2 s."""
    guard = Guard(rate_limit=RateLimit(10_000_000), fleet_wide=FleetWide(), name="G9")
    slow: list[float] = []
    done: list[int] = []
    is_over = threading.Event()

    def in_thread() -> int:
        made = 0
        while not is_over.is_set():
            began = time.monotonic()
            made += guard.call(lambda: 1)
            note(began)
        return made

    def note(began: float) -> None:
        if time.monotonic() - began > 0.18:  # about the patience
            slow.append(time.monotonic() - began)

    async def in_task() -> int:
        async def one() -> int:
            return 1

        made = 0
        while not is_over.is_set():
            began = time.monotonic()
            made += await guard.call_async(one)
            note(began)
            await asyncio.sleep(0)  # without a fleet nothing waits
        return made

    async def tasks() -> None:
        done.extend(await asyncio.gather(*(in_task() for _ in range(64))))

    incidents: dict[str, tuple[int, float]] = {}
    with ThreadPoolExecutor(9) as threads:
        calls = [threads.submit(in_thread) for _ in range(8)] + [threads.submit(asyncio.run, tasks())]
        for name in ("killed", "frozen", "slow", "emptied"):
            before = len(slow)
            time.sleep(0.1)
            if name == "killed":
                fleet.failure = ConnectionError("gone")
            elif name == "frozen":
                fleet.thawed.clear()
            elif name == "slow":
                fleet.delay = 0.05
            else:
                fleet.memory.clear()
            time.sleep(0.4)
            fleet.failure, fleet.delay = None, 0.0
            fleet.thawed.set()
            came_back = time.monotonic()
            wait_until(lambda: fleet_link.current.health.is_up)
            asked = len(fleet.asked)
            wait_until(lambda asked=asked: len(fleet.asked) > asked)
            incidents[name] = len(slow) - before, time.monotonic() - came_back
        is_over.set()
        done += [call.result() or 0 for call in calls]

    assert min(done[:64]) > 0
    assert all(count <= 2 * 72 for count, _ in incidents.values()), incidents
    assert all(seconds < 5.0 for _, seconds in incidents.values()), incidents


# ended while the question is out


@every_way
def test_a_deadline_that_passes_before_the_answer_says_nothing_of_the_fleet(way: str, patient: DistantFleet) -> None:
    """By rule F2: the call ends at its deadline, and the fleet is not lost."""
    call = limited(way, value=1, window=60, type="rolling", max_wait=60_000)
    patient.thawed.clear()
    began = time.monotonic()
    assert call(within=150) == "TimeoutException"
    assert 0.1 < time.monotonic() - began < 10
    assert fleet_link.current.health.is_up
    patient.thawed.set()


def test_a_call_that_is_cancelled_before_the_answer_leaves_nothing(patient: DistantFleet) -> None:
    """By rules F2 and RL1: the other calls are answered, and calls in the line move up."""
    guard = Guard(
        rate_limit=RateLimit(1, window=80, window_unit="millis", type="rolling", max_wait=9000),
        fleet_wide=FleetWide(),
        name=f"cancelled{next(numbers)}",
    )

    async def one() -> str:
        return "sent"

    async def main() -> list[Any]:
        assert await guard.call_async(one) == "sent"
        patient.thawed.clear()
        calls = [asyncio.ensure_future(guard.call_async(one)) for _ in range(6)]
        await asyncio.sleep(0.1)
        calls[0].cancel()
        patient.thawed.set()
        await asyncio.sleep(0.04)
        calls[1].cancel()
        calls[3].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    ends = asyncio.run(main())
    assert [type(end).__name__ for end in ends].count("CancelledError") >= 1
    assert ends[2] == ends[4] == ends[5] == "sent"
    assert fleet_link.current.health.is_up


def test_a_loop_that_is_closed_before_the_answer_holds_nobody_up(patient: DistantFleet) -> None:
    """By rule F1: several loops ask by one link, and one of them may be gone."""
    guard = Guard(rate_limit=RateLimit(100), fleet_wide=FleetWide(), name=f"closed{next(numbers)}")

    async def one() -> str:
        return "sent"

    patient.thawed.clear()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begun(loop, guard, one))
    other = threading.Thread(target=lambda: ends.append(asyncio.run(guard.call_async(one))))
    ends: list[Any] = []
    other.start()
    time.sleep(0.1)
    loop.close()
    patient.thawed.set()
    other.join(20)
    assert ends == ["sent"]
    assert guard.call(lambda: "sent") == "sent"


kept: list[Any] = []


async def begun(loop: Any, guard: Guard, function: Any) -> None:
    kept.append(loop.create_task(guard.call_async(function)))
    await asyncio.sleep(0.05)


def test_a_handler_of_a_signal_may_call_the_guard_for_which_its_thread_waits(patient: DistantFleet) -> None:
    """By rule F1: nothing is held while the question is out."""
    guard = Guard(rate_limit=RateLimit(100), fleet_wide=FleetWide(), name=f"signal{next(numbers)}")
    seen: list[str] = []

    def handle(*_: object) -> None:
        patient.thawed.set()
        seen.append(guard.call(lambda: "in the handler"))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        patient.thawed.clear()
        timer = threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
        timer.start()
        assert guard.call(lambda: "sent") == "sent"
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == ["in the handler"]


@every_way
def test_another_fleet_comes_while_a_call_waits(
    way: str, patient: DistantFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waits for the old fleet decides alone; the next call asks the new one."""
    call = limited(way, value=2, window=60)
    patient.thawed.clear()
    other, send, is_asked = MemoryFleet(), fleet_link.current.send, threading.Event()

    def sent(question: Any, tell: Any) -> bool:
        is_sent = send(question, tell)
        is_asked.set()
        return is_sent

    def exchange() -> None:
        is_asked.wait(30)
        configure(fleet=other)

    monkeypatch.setattr(fleet_link.current, "send", sent)
    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    began = time.monotonic()
    assert call() == "sent"
    assert time.monotonic() - began < 20
    exchanging.join()
    assert fleet_link.current.health.is_up
    assert [call(), call(), call()] == ["sent", "sent", "RateLimitException"]


# beside other policies, in virtual time


class Counting(MemoryFleet):
    """A fleet that keeps the questions for turns."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[TurnRequest] = []

    def connect(self, changed: Any = None) -> Any:
        session = super().connect(changed)
        exchange = session.exchange

        def noting(asked: Any) -> Any:
            self.turns += [question for question in asked if isinstance(question, TurnRequest)]
            return exchange(asked)

        session.exchange = noting  # type: ignore[method-assign]
        return session


@pytest.fixture
def clocked() -> Iterator[tuple[Any, Counting]]:
    """Virtual time, and a fleet that answers at once."""
    with virtual_time() as clock:
        fleet = Counting()
        configure(fleet=fleet)
        yield clock, fleet
        reset()


def test_each_key_has_a_limit_of_the_fleet(clocked: tuple[Any, Counting]) -> None:
    """By rule N1: its name is that of the guard, and a text that stands for the key."""
    _, fleet = clocked

    @fleet_wide
    @rate_limit(1, window=60)
    @partition_by("customer")
    def send(customer: str) -> str:
        return customer

    assert [send("a"), send("b")] == ["a", "b"]
    with pytest.raises(RateLimitException):
        send("a")
    keys = [question.key for question in fleet.turns]
    assert len(set(keys)) == 2
    assert all("send#" in key and "customer" not in key for key in keys)


def test_an_observed_limit_asks_nobody(clocked: tuple[Any, Counting]) -> None:
    """By rule X7: a limit that is only observed stays local."""
    _, fleet = clocked
    with configured({"RateLimit/mode": "observe"}):
        guard = Guard(rate_limit=RateLimit(1), fleet_wide=FleetWide(), name=f"observed{next(numbers)}")
        assert [guard.call(lambda: 1) for _ in range(3)] == [1, 1, 1]
    assert fleet.turns == []


@pytest.mark.parametrize("kind", ["fixed", "rolling", "smooth"])
def test_a_refusal_says_a_time_that_is_long_enough(clocked: tuple[Any, Counting], kind: Any) -> None:
    """By rule F2: this process refuses in nanoseconds, or the fleet in whole microseconds."""
    clock, _ = clocked
    guard = Guard(rate_limit=RateLimit(7, type=kind), fleet_wide=FleetWide(), name=f"told{next(numbers)}")
    told: list[float] = []
    for step in range(300):
        clock.advance(step // 20 * 1.37e-4)
        try:
            guard.call(lambda: None)
        except RateLimitException as refusal:
            told.append(refusal.retry_after or 0.0)
            clock.advance(told[-1])
            guard.call(lambda: None)
    assert len(told) > 20
    assert max(told) < 1.0 + 1e-9, "longer than the window"


@pytest.mark.parametrize("kind", ["fixed", "rolling", "smooth"])
def test_rounding_does_not_shorten_the_longest_wait(clocked: tuple[Any, Counting], kind: Any) -> None:
    """By rule F2: a wait of exactly two windows lets three calls through, as in one process."""
    clock, _ = clocked
    for _ in range(20):
        clock.advance(0.12345678)
        limit = RateLimit(1, type=kind, max_wait="2s")
        guard = Guard(rate_limit=limit, fleet_wide=FleetWide(), name=f"exact{next(numbers)}")

        async def four(guard: Guard = guard) -> list[Any]:
            calls = (guard.call_async(asyncio.sleep, 0, True) for _ in range(4))
            return await asyncio.gather(*calls, return_exceptions=True)

        assert [result is True for result in clock.run(four())] == [True, True, True, False]


def test_a_hedge_asks_and_never_stands_in_line(clocked: tuple[Any, Counting]) -> None:
    """By rule F2: the first attempt may wait for its turn; the hedge is not sent without one."""
    clock, fleet = clocked

    @fleet_wide
    @hedge(delay=100)
    @rate_limit(1, window=10, max_wait=5000)
    async def send() -> str:
        await asyncio.sleep(1)
        return "sent"

    assert clock.run(send()) == "sent"
    assert len(fleet.turns) == 2


def test_new_values_hold_for_waiting_calls(clocked: tuple[Any, Counting]) -> None:
    """By rule RL1: a reload moves turns up; the fleet is asked for them under the new values."""
    clock, fleet = clocked
    through: list[float] = []

    @fleet_wide
    @rate_limit(1, type="smooth", max_wait=900_000)
    def send() -> None:
        through.append(round(clock.monotonic() - began))

    with configured({"RateLimit/window": "100"}):
        began = clock.monotonic()
        calls = [clock.start(send) for _ in range(4)]
        clock.sleep(5)
        with configured({"RateLimit/window": "10"}):
            clock.sleep(60)
            for call in calls:
                call.result(30)

    assert sorted(through) == [0, 23, 33, 43]  # the server hears of them when it is asked
    assert {question.window for question in fleet.turns} == {100_000_000, 10_000_000}


def test_a_process_without_a_fleet_has_its_own_limit() -> None:
    """By rule F5: the limit is silently local, so that development and tests need no server."""
    with virtual_time():
        guard = Guard(rate_limit=RateLimit(2), fleet_wide=FleetWide(), name=f"alone{next(numbers)}")
        assert [guard.call(lambda: 1) for _ in range(2)] == [1, 1]
        with pytest.raises(RateLimitException) as raised:
            guard.call(lambda: 1)
    assert raised.value.retry_after == pytest.approx(1.0)


# beside a real server

_REPLICA = """
import json, sys, time
from faulttolerance import RateLimitException, RedisFleet, configure, fleet_wide, rate_limit

configure(fleet=RedisFleet(sys.argv[1], namespace="replicas", patience=5000))

@fleet_wide
@rate_limit(200, type="smooth", burst=10)
def send():
    return time.monotonic()

sent, end = [], time.monotonic() + 1.6
while time.monotonic() < end:
    try:
        sent.append(send())
    except RateLimitException:
        pass
    time.sleep(0.0025)
print(json.dumps(sent))
"""


@pytest.mark.outside
@pytest.mark.alone  # else four processes may not ask for as much as they must
def test_four_processes_have_one_limit(running_redis: RedisServer) -> None:
    """By rule F2: a server that is asked for several times as much gives the value each second, and the burst once."""
    with ThreadPoolExecutor(4) as threads:
        replicas = [threads.submit(output_of, _REPLICA, arguments=(running_redis.url,)) for _ in range(4)]
        sent = sorted(moment for replica in replicas for moment in json.loads(replica.result()))
    seconds = sent[-1] - sent[0]

    assert 170 * seconds < len(sent) <= 200 * seconds + 10 + 10  # a call is told a moment after it was counted
    for first, beyond in zip(sent, sent[240:], strict=False):
        assert beyond - first >= 1.0


_GREENLETS = f"""{PATCH}
import gevent, sys, time
from faulttolerance import RateLimitException, RedisFleet, configure, fleet_wide, rate_limit
from faulttolerance._extensions.fleet.fleet_link import fleet_link

configure(fleet=RedisFleet(sys.argv[1], namespace="greenlets", patience=2000))
gevent.sleep(0.2)

@fleet_wide
@rate_limit(50, window=60, type="rolling")
def send():
    return 1

def call(_):
    try:
        return send()
    except RateLimitException:
        return 0

ticks = []
witness = gevent.spawn(lambda: [(ticks.append(time.monotonic()), gevent.sleep(0.005)) for _ in range(400)])
calls = [gevent.spawn(call, number) for number in range(100)]
print(sum(greenlet.get() for greenlet in calls), fleet_link.current.health.is_up)
witness.kill()
"""


@pytest.mark.outside
def test_greenlets_ask_without_blocking_their_hub(running_redis: RedisServer) -> None:
    """By rule F1: greenlets wait without their thread, and get as many turns as there are."""
    needs("gevent")
    assert output_of(_GREENLETS, arguments=(running_redis.url,)) == "50 True"


@pytest.mark.outside
def test_a_server_that_is_killed_frozen_or_started_again_loses_no_call(tmp_path: Path) -> None:
    """By rule F5, target G9: every call passes, and the limit is shared again soon after the server is back."""
    with redis_server(tmp_path) as server:
        configure(fleet=RedisFleet(server.url, namespace="incidents", poll=100, patience=100))
        try:
            guard = Guard(rate_limit=RateLimit(10_000_000), fleet_wide=FleetWide(), name=f"incidents{next(numbers)}")
            wait_until(lambda: fleet_link.current.health.is_up)
            is_over = threading.Event()
            slow: list[float] = []

            def work() -> int:
                made = 0
                while not is_over.is_set():
                    began = time.monotonic()
                    made += guard.call(lambda: 1)
                    if time.monotonic() - began > 0.09:
                        slow.append(began)
                    time.sleep(0.001)
                return made

            with ThreadPoolExecutor(8) as threads:
                calls = [threads.submit(work) for _ in range(8)]
                try:
                    for end, begin in ((server.kill, server.start), (server.freeze, server.thaw)):
                        time.sleep(0.2)
                        end()
                        wait_until(lambda: not fleet_link.current.health.is_up)
                        begin()
                        wait_until(lambda: fleet_link.current.health.is_up, 5.0)
                finally:
                    is_over.set()
                assert all(call.result() for call in calls)
            assert len(slow) < 100
        finally:
            reset()
