"""Guards that are fleet-wide by a real server, in several processes, and while the server is away (rules F1 to F5)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from faulttolerance import RedisFleet, configure, explain, fleet_wide, health, rate_limit
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._extensions.fleet.health import FleetHealth
from faulttolerance.instrumentation import set_event_sinks
from faulttolerance.testing import reset
from kit.program import ALONE
from kit.redis_server import RedisServer, redis_server
from kit.waiting import wait_until

pytestmark = pytest.mark.outside

PATIENCE = 0.25
"""Seconds that a call waits for the server; on a busy machine a server may be slow without a hang."""


@fleet_wide
@rate_limit(1_000_000, type="smooth", burst=100_000)
def served() -> str:
    return "served"


@fleet_wide
@rate_limit(1_000_000, type="smooth", burst=100_000)
async def awaited() -> str:
    return "served"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test may end, and that this process uses."""
    with redis_server(tmp_path) as server:
        configure(fleet=RedisFleet(server.url, namespace="shop", poll=200, patience=PATIENCE * 1000))
        served()  # what a first call does, on many threads at once, is no concern of these tests
        asyncio.run(awaited())
        yield server
        reset()


class Traffic:
    """Calls from 4 threads and 16 tasks, each of which makes one call after the other."""

    def __init__(self) -> None:
        self.spent: list[float] = []
        self.failures: list[BaseException] = []
        self.is_over = False

    def call(self) -> None:
        while not self.is_over:
            began = time.monotonic()
            try:
                served()
            except BaseException as error:
                self.failures.append(error)
            self.spent.append(time.monotonic() - began)
            time.sleep(0.002)

    async def call_async(self) -> None:
        while not self.is_over:
            began = time.monotonic()
            try:
                await awaited()
            except BaseException as error:
                self.failures.append(error)
            self.spent.append(time.monotonic() - began)
            await asyncio.sleep(0.005)

    async def tasks(self) -> None:
        await asyncio.gather(*(self.call_async() for _ in range(16)))

    def __enter__(self) -> Self:
        self.threads = [threading.Thread(target=self.call) for _ in range(4)]
        self.threads.append(threading.Thread(target=lambda: asyncio.run(self.tasks())))
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize(
    ("leave", "come_back"),
    [(RedisServer.kill, RedisServer.start), (RedisServer.freeze, RedisServer.thaw)],
    ids=["killed", "frozen"],
)
def test_a_server_that_goes_costs_no_call_and_one_wait(
    redis: RedisServer, leave: Callable[[RedisServer], None], come_back: Callable[[RedisServer], None]
) -> None:
    """trap 27: waiting calls wait for the patience, others not at all; the server is asked again soon after."""
    with Traffic() as traffic:
        wait_until(lambda: fleet_link.current.health.is_up and len(traffic.spent) > 100)
        leave(redis)
        wait_until(lambda: not fleet_link.current.health.is_up)
        calls = len(traffic.spent)
        wait_until(lambda: len(traffic.spent) > calls + 300)
        assert health().status == "degraded"
        come_back(redis)
        back = time.monotonic()
        wait_until(lambda: fleet_link.current.health.is_up)
        regained = time.monotonic() - back
        calls = len(traffic.spent)
        wait_until(lambda: len(traffic.spent) > calls + 100)

    assert traffic.failures == []
    assert sum(spent > PATIENCE * 0.9 for spent in traffic.spent) <= 20
    assert max(traffic.spent) < PATIENCE + 1.0
    assert regained < 3.0


REFUSALS = {
    "a read-only replica": (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]),
    "no memory": (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
    "too few replicas": (
        ["CONFIG", "SET", "min-replicas-to-write", "1"],
        ["CONFIG", "SET", "min-replicas-to-write", "0"],
    ),
    "no right of a turn": (["ACL", "SETUSER", "default", "-set"], ["ACL", "SETUSER", "default", "+set"]),
    "no right to anything": (["ACL", "SETUSER", "default", "-evalsha"], ["ACL", "SETUSER", "default", "+evalsha"]),
}


@pytest.mark.parametrize(("refuse", "permit"), REFUSALS.values(), ids=REFUSALS)
def test_a_server_that_refuses_the_commands_of_calls_is_lost_once(
    redis: RedisServer, refuse: list[str], permit: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By rule F5: it is found again when it permits the commands, not because it answers; no call fails meanwhile."""
    news: list[str] = []
    misses: list[str] = []
    miss = FleetHealth.record_loss
    monkeypatch.setattr(
        FleetHealth, "record_loss", lambda self, reason, *more: misses.append(reason) or miss(self, reason, *more)
    )
    set_event_sinks([lambda event: news.append(type(event).__name__)])
    redis.ask(*refuse)
    wait_until(lambda: served() == "served" and not fleet_link.current.health.is_up)
    wait_until(lambda: served() == "served" and len(misses) > 2)
    assert news == ["FleetLost"]
    redis.ask(*permit)
    wait_until(lambda: fleet_link.current.health.is_up and len(news) == 2)

    assert news == ["FleetLost", "FleetRegained"]


def test_a_password_is_in_no_text_about_the_fleet(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the texts of a shared fleet nor those of a lost fleet show it."""
    redis.ask("CONFIG", "SET", "requirepass", "hunter2")
    for password in ("hunter2", "hunter3"):
        fleet = RedisFleet(f"redis://:{password}@127.0.0.1:{redis.port}", namespace="shop", patience=2000)
        configure(fleet=fleet)
        served()
        wait_until(lambda password=password: fleet_link.current.health.is_up == (password == "hunter2"))
        link = fleet_link.current
        told = f"{explain(served)} {explain(served).as_dict()} {health()} {link.description} {fleet!r} {fleet}"
        assert ("lost" in told) == (password == "hunter3")
        assert "hunter" not in told
    assert "hunter" not in caplog.text


REPLICA = """
import json, sys, time
from faulttolerance import CircuitBreakerOpenException, Guard, RateLimitException, RedisFleet, configure
from faulttolerance.policies import CircuitBreaker, FleetWide, RateLimit
configure(fleet=RedisFleet(sys.argv[1], namespace="replicas", poll=100, patience=2000))
limit = Guard(name="limit", rate_limit=RateLimit(100, window="1m", type="rolling"), fleet_wide=FleetWide())
circuit = Guard(
    name="circuit", circuit_breaker=CircuitBreaker(request_volume_threshold=4, delay=300, success_threshold=2),
    fleet_wide=FleetWide(),
)
begun = []

def backend(is_up):
    begun.append(is_up)
    if not is_up: raise ConnectionError("down")

def call(is_up):
    try: circuit.call(backend, is_up)
    except (ConnectionError, CircuitBreakerOpenException) as error: return type(error).__name__
    return "served"

print("ready", flush=True)
for line in sys.stdin:
    asked, *values = json.loads(line)
    if asked == "turns":
        answer = 0
        for _ in range(*values):
            try: limit.call(int)
            except RateLimitException: pass
            else: answer += 1
    elif asked == "calls": answer = [call(values[1]) for _ in range(values[0])]
    elif asked == "until":
        end, answer = time.monotonic() + 10, 0
        while call(True) != values[0] and time.monotonic() < end: time.sleep(0.02)
        answer = time.monotonic() < end
    elif asked == "begun": answer = len(begun)
    print(json.dumps(answer), flush=True)
"""


class Replica:
    """A process that calls guarded functions as it is told."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", textwrap.dedent(REPLICA), url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ALONE)

    def tell(self, *asked: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()

    def answer(self) -> object:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, *asked: object) -> object:
        self.tell(*asked)
        return self.answer()


@pytest.fixture(scope="module")
def replicas(running_redis: RedisServer) -> Iterator[list[Replica]]:
    running_redis.ask("FLUSHALL")
    started = [Replica(running_redis.url) for _ in range(3)]
    for replica in started:
        assert replica.process.stdout is not None
        assert replica.process.stdout.readline() == "ready\n"
    yield started
    for replica in started:
        replica.process.communicate("")


def test_processes_share_one_limit(replicas: list[Replica]) -> None:
    """Rule F2: processes that ask at once get exactly as many turns as the limit has."""
    for replica in replicas:
        replica.tell("turns", 80)

    assert sum(int(str(replica.answer())) for replica in replicas) == 100


def test_processes_share_one_circuit(replicas: list[Replica]) -> None:
    """Rules F3 and F4: one process opens it for all, and the probes of all close it."""
    one, *others = replicas
    assert [other.ask("calls", 1, True) for other in others] == [["served"]] * 2
    assert one.ask("calls", 4, False) == ["ConnectionError"] * 4

    assert [other.ask("until", "CircuitBreakerOpenException") for other in others] == [True, True]
    for replica in replicas:
        replica.tell("until", "served")
    assert [replica.answer() for replica in replicas] == [True] * 3
    for replica in replicas:  # a process without a probe hears of it by the next poll
        wait_until(lambda replica=replica: replica.ask("calls", 3, True) == ["served"] * 3)
