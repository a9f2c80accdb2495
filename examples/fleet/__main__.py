"""Run the backend, the server and the fleet; break one after the other; compare what comes of it with the promises."""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from . import __doc__ as about
from .promises import promises
from .record import KINDS, Record
from .server import Server, running, what_is_missing
from .service import VALUE
from .view import Show, view

ROOT = Path(__file__).resolve().parents[2]
EVEN, UNEVEN = (0.25, 0.25, 0.25, 0.25), (0.6, 0.2, 0.1, 0.1)
"""How calls are spread over the processes: uneven, so that most of them see few failures of their own."""
KILLED, FROZEN = 2.2, 2.4
"""Seconds without the server. A process looks for it after 1 s and after 2 s more, give or take a fifth."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--plain", action="store_true", help="a line for each second, also in a terminal")
    parser.add_argument("--seconds", type=int, default=30, help="how long the limit is watched; the rest takes 27 s")
    options = parser.parse_args()
    if missing := what_is_missing():
        print(missing, file=sys.stderr)
        return 2
    record = Record()
    with contextlib.ExitStack() as until_the_end:
        stage = Stage(record, until_the_end)
        stage.show = until_the_end.enter_context(
            view(record, time.monotonic(), live=sys.stdout.isatty() and not options.plain)
        )
        stage.play(options.seconds)
    print()
    verdicts = list(promises(record))
    for promise in verdicts:
        print(f"{'kept  ' if promise.kept else 'BROKEN'} {promise.text} ({promise.measured})")
    return 0 if all(promise.kept for promise in verdicts) else 1


class Stage:
    """The processes, and what is done to them."""

    show: Show

    def __init__(self, record: Record, until_the_end: contextlib.ExitStack) -> None:
        self._record = record
        self._said: queue.SimpleQueue[tuple[int | None, str]] = queue.SimpleQueue()
        self._redis: Server = until_the_end.enter_context(running())
        self._backend = until_the_end.enter_context(child("backend"))
        port = self._hear(None, self._backend)
        url = f"redis://127.0.0.1:{self._redis.port}"
        self._fleet = [until_the_end.enter_context(child("worker", kind, port, url)) for kind in KINDS]
        for number, process in enumerate(self._fleet):
            self._record.heard(number, json.loads(self._hear(number, process)))

    def _hear(self, number: int | None, process: subprocess.Popen[str]) -> str:
        """Give the first line, and put the others where they are waited for."""
        said = _piped(process.stdout)
        first = said.readline()
        if not first:
            raise SystemExit("a process did not start; it has said why")

        def listen() -> None:
            with said:
                for line in said:
                    self._said.put((number, line))

        threading.Thread(target=listen, name="ear", daemon=True).start()
        return first.strip()

    def play(self, seconds: int) -> None:
        """Go through all of it."""
        self._offer(8 * VALUE, EVEN)
        self._wait(2, "offered 8 times the limit")
        self._mark("limited")
        self._wait(seconds, "offered 8 times the limit")
        self._mark("failing soon")
        self._offer(0.8 * VALUE, UNEVEN)
        self._wait(3, "offered 0.8 of the limit")
        self._mark("failing")
        self._tell("fail")
        self._wait(4, "the backend fails")
        self._mark("healed")
        self._tell("work")
        self._wait(3, "the backend works again")
        self._mark("killed soon")
        self._offer(8 * VALUE, EVEN)
        self._wait(1, "offered 8 times the limit")
        self._mark("killed")
        self._redis.kill()
        self._wait(KILLED, "the Redis server is killed")
        self._redis.start()
        self._mark("back")
        self._wait(4, "the Redis server is back, empty")
        self._mark("frozen")
        self._redis.freeze()
        self._wait(FROZEN, "the Redis server is frozen")
        self._redis.thaw()
        self._mark("thawed")
        self._wait(4, "the Redis server goes on")
        self._mark("over")
        self._offer(0, EVEN)
        self._wait(1, "the end")

    def _mark(self, name: str) -> None:
        self._record.marks[name] = time.monotonic()

    def _tell(self, word: str) -> None:
        print(word, file=_piped(self._backend.stdin), flush=True)

    def _offer(self, rate: float, shares: tuple[float, ...]) -> None:
        for process, share in zip(self._fleet, shares, strict=True):
            print(rate * share, file=_piped(process.stdin), flush=True)

    def _wait(self, seconds: float, what: str) -> None:
        """Listen, and show what is heard."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                number, line = self._said.get(timeout=min(left, 0.1))
            except queue.Empty:
                pass
            else:
                self._record.heard(number, json.loads(line))
            self.show(time.monotonic(), what)


@contextlib.contextmanager
def child(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module of this package in a process that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,  # so that Ctrl-C is left to this process
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        _piped(process.stdin).close()


def _piped(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


if __name__ == "__main__":
    for ending in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(ending, signal.default_int_handler)  # so that the Redis server never outlives this process
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nstopped")
        sys.exit(130)
