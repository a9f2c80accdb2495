"""What a fleet lets through under ordinary trouble, and how soon it shares again after an outage.

``python -m benchmarks.fleet_trouble`` starts a Redis of its own and four processes that offer eight times what a limit
allows. It pauses the server, keeps the processors busy, takes the server away for a while and lets it refuse writes. It
prints what was let through for one of what is allowed, and the longest wait. Without ``redis-server`` it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from examples.fleet.server import Server, running
from faulttolerance import Guard, RateLimitException, RedisFleet, configure
from faulttolerance.instrumentation import FleetLost, FleetRegained, set_event_sinks
from faulttolerance.policies import FleetWide, RateLimit

PROCESSES, VALUE, BURST, LOAD = 4, 200, 10, 8
SECONDS = 6.0
PATIENCE = 0.05
MOST = 1.1
"""The most that is let through under ordinary trouble, for one of what is allowed."""
AGAIN = 2.0
"""Seconds after which processes share again, at most, once the server is back."""
_THREADS = 4


class Run(NamedTuple):
    """What four processes did together."""

    let: list[float]
    """When calls were let through."""
    longest: float
    """Seconds that a call waited at most, be it let through or refused."""
    news: list[tuple[float, str]]
    """When a process lost the fleet, or found it again."""

    kind: str

    @property
    def part(self) -> float:
        """What was let through, for one of what is allowed; seconds lie in one fixed window more than they are."""
        return len(self.let) / (VALUE * SECONDS + (BURST if self.kind == "smooth" else VALUE))

    @property
    def busiest(self) -> int:
        """The most that were let through within one second."""
        moments, first, most = sorted(self.let), 0, 0
        for last, moment in enumerate(moments):
            while moment - moments[first] >= 1.0:
                first += 1
            most = max(most, last - first + 1)
        return most

    def __str__(self) -> str:
        lost = sum(word == "lost" for _, word in self.news)
        return (
            f"{len(self.let):5} let through, {self.part:.2f} of what is allowed, {self.busiest} in the busiest second, "
            f"waited {self.longest * 1000:.0f} ms at most, lost {lost} times"
        )


def work(url: str, kind: str, seconds: float) -> None:
    """Be one of the processes: offer calls for so many seconds, and print what became of them."""
    news: list[tuple[float, str]] = []
    words: dict[type, str] = {FleetLost: "lost", FleetRegained: "shared"}

    def hear(event: object) -> None:
        if word := words.get(type(event)):
            news.append((time.monotonic(), word))

    set_event_sinks([hear])
    configure(fleet=RedisFleet(url, namespace="trouble", patience=round(PATIENCE * 1000)))
    burst = {"burst": BURST} if kind == "smooth" else {}
    limit = RateLimit(VALUE, window=1000, window_unit="millis", type=kind, **burst)
    guard = Guard(name="trouble", rate_limit=limit, fleet_wide=FleetWide())
    guard.call(bool)
    time.sleep(1.5)  # until each has seen the others
    print("ready", flush=True)
    end = float(sys.stdin.readline())
    interval = PROCESSES * _THREADS / (LOAD * VALUE)

    def offer(number: int) -> tuple[list[float], float]:
        let, longest, due = list[float](), 0.0, end - seconds + interval * number / _THREADS
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            came = time.monotonic()
            try:
                guard.call(lambda: let.append(time.monotonic()))
            except RateLimitException:
                pass
            longest = max(longest, time.monotonic() - came)
            due = max(due + interval, time.monotonic() - 0.1)
        return let, longest

    with ThreadPoolExecutor(_THREADS) as threads:
        done = list(threads.map(offer, range(_THREADS)))
    print(json.dumps([[at for let, _ in done for at in let], max(longest for _, longest in done), news]))


def together(server: Server, act: Callable[[float], object], kind: str = "smooth", seconds: float = SECONDS) -> Run:
    """Let four processes offer calls, and *act* meanwhile, which is told when they begin."""
    url = f"redis://127.0.0.1:{server.port}"
    command = [sys.executable, "-m", "benchmarks.fleet_trouble", "--work", url, kind, str(seconds)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    begin = time.monotonic() + 0.2
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{begin + seconds}\n")
        process.stdin.flush()
    act(begin)
    found = [json.loads(process.communicate()[0]) for process in processes]
    let = [moment for one, _, _ in found for moment in one]
    return Run(let, max(longest for _, longest, _ in found), [tuple(one) for _, _, news in found for one in news], kind)


def pauses(server: Server) -> Callable[[float], None]:
    """Pause the server twice for 70 ms and once for 200 ms."""

    def act(begin: float) -> None:
        for at, seconds in ((1.0, 0.07), (2.7, 0.2), (4.4, 0.07)):
            time.sleep(max(0.0, begin + at - time.monotonic()))
            server.freeze()
            time.sleep(seconds)
            server.thaw()

    return act


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Keep processors busy."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def after(server: Server, seconds: float) -> tuple[Run, float]:
    """Freeze the server for so many seconds; tell how long it took until all shared again."""
    back: list[float] = []

    def act(begin: float) -> None:
        time.sleep(max(0.0, begin + 1.0 - time.monotonic()))
        server.freeze()
        time.sleep(seconds)
        server.thaw()
        back.append(time.monotonic())

    run = together(server, act, seconds=seconds + 6.0)
    shared = [at for at, word in run.news if word == "shared" and at >= back[0]]
    return run, max(shared) - back[0] if len(shared) == PROCESSES else float("nan")


REFUSING: dict[str, list[list[str]]] = {
    "a read-only replica": [["REPLICAOF", "127.0.0.1", "1"]],
    "OOM": [["CONFIG", "SET", "maxmemory", "1"]],
    "NOREPLICAS": [["CONFIG", "SET", "min-replicas-to-write", "1"]],
    "MISCONF": [["CONFIG", "SET", "save", "3600 1"], ["BGSAVE"]],
    "no right to SET": [["ACL", "SETUSER", "default", "-set"]],
    "no right to EVALSHA": [["ACL", "SETUSER", "default", "-evalsha"]],
}


def refused(server: Server, commands: list[list[str]]) -> Run:
    """Let the server refuse what calls do, while it answers ``PING``."""
    import redis

    def act(begin: float) -> None:
        client = redis.Redis(port=server.port)
        # A snapshot cannot take the name of a folder.
        os.makedirs(os.path.join(client.config_get("dir")["dir"], "dump.rdb"))
        time.sleep(max(0.0, begin + 1.0 - time.monotonic()))
        for command in commands:
            client.execute_command(*command)

    return together(server, act)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_trouble", description=__doc__)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=["pauses", "processors", "outages", "refusals"])
    parser.add_argument("--outages", type=float, nargs="*", default=[1, 4, 8, 30], help="seconds")
    options = parser.parse_args()
    if options.work:
        url, kind, seconds = options.work
        work(url, kind, float(seconds))
        return 0
    if shutil.which("redis-server") is None:
        print("there is no redis-server")
        return 0
    failed = 0

    def told(what: str, said: object, is_kept: bool) -> None:
        nonlocal failed
        failed += not is_kept
        print(f"{what}: {said}{'' if is_kept else '  NOT KEPT'}", flush=True)

    if options.only in (None, "pauses"):
        for kind in ("smooth", "fixed", "rolling"):
            with running() as server:
                run = together(server, pauses(server), kind)
            told(f"pauses, {kind}", run, run.part <= MOST)
    if options.only in (None, "processors"):
        with running() as server, burning(4):
            run = together(server, lambda _: None)
        told("busy processors", run, run.part <= MOST)
    for seconds in options.outages if options.only in (None, "outages") else ():
        with running() as server:
            run, took = after(server, seconds)
        told(f"{seconds:g} s without an answer", f"shared again after {took:.2f} s", took <= AGAIN)
    for name, commands in REFUSING.items() if options.only in (None, "refusals") else ():
        with running() as server:
            run = refused(server, commands)
        words = [word for _, word in run.news]
        told(name, f"lost {words.count('lost')}, shared {words.count('shared')}", words == ["lost"] * PROCESSES)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
