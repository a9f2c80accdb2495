"""One of the processes of the fleet: it offers calls, and tells what becomes of them.

    python -m examples.fleet.worker threads|asyncio PORT REDIS_URL

A number on its standard input says how many calls per second are offered from then on, whether or not earlier ones have
ended; it stops when that input ends. Each line of JSON that it prints is a count of half a second, or a piece of news:
of its circuit, or that it lost or regained the fleet.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from faulttolerance import CircuitBreakerOpenException, RateLimitException, RedisFleet, circuit_breakers, configure
from faulttolerance.instrumentation import FleetLost, FleetRegained, get_event_sinks, set_event_sinks

from .service import Unavailable, price, price_async, prices

NAMESPACE = "example"
POLL, PATIENCE = 0.5, 0.15
"""Seconds after which the circuits are read again, and that a call waits for the Redis server at most."""
STEP = 0.5
"""Seconds between two counts."""


class Counts:
    """What became of calls since the last time it was told; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0
        self._forget()

    def _forget(self) -> None:
        self._ends = {"good": 0, "failed": 0, "limited": 0, "refused": 0, "lost": 0}
        self._longest = 0.0
        self._error = ""

    @contextmanager
    def call(self) -> Iterator[Callable[[], None]]:
        """Count a call by how it ends; what is given is to be called when the guard has let it through."""
        came = time.monotonic()
        with self._lock:
            self._under_way += 1
        try:
            yield lambda: self._add("", time.monotonic() - came)
        except RateLimitException:
            self._add("limited", time.monotonic() - came)
        except CircuitBreakerOpenException:
            self._add("refused", time.monotonic() - came)
        except Unavailable:
            self._add("failed")
        except BaseException as error:  # noqa: BLE001  # whatever it is: the fleet is to cause none
            self._add("lost", error=repr(error))
        else:
            self._add("good")
        finally:
            with self._lock:
                self._under_way -= 1

    def _add(self, end: str, held: float = 0.0, error: str = "") -> None:
        with self._lock:
            if end:
                self._ends[end] += 1
            self._longest = max(self._longest, held)
            self._error = self._error or error

    def taken(self) -> dict[str, object]:
        """Give what there is, and begin anew."""
        with self._lock:
            found: dict[str, object] = {
                **self._ends,
                "longest": self._longest,
                "error": self._error,
                "open": self._under_way,
            }
            self._forget()
        return found


counts = Counts()
rate = 0.0
"""Calls per second that are offered now."""


def tell(**news: object) -> None:
    """Print a line of JSON, whole, whoever else prints."""
    sys.stdout.write(json.dumps({"at": time.monotonic(), **news}) + "\n")
    sys.stdout.flush()


def listen() -> None:
    """Tell of what happens to the circuit and to the fleet."""

    def sink(event: object) -> None:
        if isinstance(event, FleetLost):
            tell(fleet="lost", why=event.reason)
        elif isinstance(event, FleetRegained):
            tell(fleet="shared", why=f"after {event.seconds:.1f} s")

    set_event_sinks([*get_event_sinks(), sink])
    circuit_breakers.on_state_change(prices.name, lambda name, old, new: tell(circuit=new))


def pace(ended: threading.Event, act: Callable[[], object]) -> None:
    """Have calls come at random, so many per second as are offered, each on time although the one before was late."""
    chance, due = random.Random(), time.monotonic()
    while not ended.is_set():
        if not rate:
            time.sleep(0.01)
            due = time.monotonic()
            continue
        due += chance.expovariate(rate)
        time.sleep(max(0.0, due - time.monotonic()))
        act()


def with_threads(port: int, ended: threading.Event) -> None:
    """Serve each call on a thread, as most servers of WSGI do."""

    def one() -> None:
        with counts.call() as begun:
            price(port, begun)

    with ThreadPoolExecutor(16) as pool:
        pace(ended, lambda: pool.submit(one))


def with_asyncio(port: int, ended: threading.Event) -> None:
    """Serve each call in a task, as servers of ASGI do."""
    tasks: set[asyncio.Task[None]] = set()  # a loop refers to its tasks weakly

    async def one() -> None:
        with counts.call() as begun:
            await price_async(port, begun)

    def begin() -> None:
        task = asyncio.create_task(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(pace, ended, lambda: loop.call_soon_threadsafe(begin))
        await asyncio.gather(*tasks)

    asyncio.run(main())


def obey(ended: threading.Event) -> None:
    """Do as the standard input says, until it ends."""
    global rate  # one service per process
    for line in sys.stdin:
        rate = float(line)
    ended.set()


def report(ended: threading.Event) -> None:
    """Print counts until the end, one for each step."""
    while not ended.wait(STEP):
        tell(counts=counts.taken())
    tell(counts=counts.taken())


def main(kind: str, port: str, url: str) -> None:
    configure(fleet=RedisFleet(url, namespace=NAMESPACE, poll=POLL * 1000, patience=PATIENCE * 1000))
    listen()
    tell(circuit=circuit_breakers.state(prices.name), fleet="shared")
    ended = threading.Event()
    threading.Thread(target=obey, args=(ended,), daemon=True).start()
    telling = threading.Thread(target=report, args=(ended,))
    telling.start()
    {"threads": with_threads, "asyncio": with_asyncio}[kind](int(port), ended)
    telling.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
