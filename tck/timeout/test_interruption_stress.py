"""Calls that end at about their deadlines, on many threads at once: a wrong interruption would show here.

Would have caught: an interruption that arrives after its call, or in another one; a deadline that is left in a chain; a
lock of the standard library that stays held because of where the exception was raised.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from faulttolerance import Interrupted, TimeoutException, sleep, timeout, uninterruptible
from faulttolerance._deadline.threads import async_exception, main_thread
from faulttolerance._deadline.threads.chain import Entry, ThreadDeadlines, is_open, this_thread
from faulttolerance._platform.atomic import frames_of_threads
from kit.interpreter import switching_every

SECONDS = float(os.environ.get("STRESS_SECONDS", "12"))
THREADS = 4

pytestmark = [pytest.mark.stress, pytest.mark.timeout(SECONDS * 10 + 60)]


class BodyFailed(Exception):
    """The failure that a body raises by itself."""


def spin(until: float) -> int:
    turns = 0
    while time.monotonic() < until:
        turns += 1
    return turns


class Counting(logging.Handler):
    """A handler that formats nothing, writes nothing, and counts records."""

    lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1


class Load:
    """Bodies of all kinds, and the record of their ends on one thread."""

    def __init__(self, seed: int, shared: Load | None = None) -> None:
        self.random = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.shared = shared
        """The load that all threads use; ``None``: this is it."""
        self.items: queue.Queue[int] = queue.Queue()
        self.condition = threading.Condition()
        self.event = threading.Event()
        self.semaphore = threading.Semaphore(1)
        self.lock = threading.Lock()
        self.logger = logging.Logger(f"stress.{seed}")  # noqa: LOG001  # with no handlers but its own
        self.handler = Counting()
        self.logger.addHandler(self.handler)

    # Bodies: each is busy for *seconds* in its own way.

    def computes(self, seconds: float) -> str:
        spin(time.monotonic() + seconds)
        return "returned"

    def raises(self, seconds: float) -> str:
        spin(time.monotonic() + seconds)
        raise BodyFailed

    def swallows(self, seconds: float) -> str:
        try:
            spin(time.monotonic() + seconds)
        except BaseException as error:
            if not isinstance(error, Interrupted):
                raise
        return "returned"

    def replaces(self, seconds: float) -> str:
        try:
            spin(time.monotonic() + seconds)
        except Interrupted as error:
            raise BodyFailed from error
        return "returned"

    def sleeps(self, seconds: float) -> str:
        sleep(seconds)
        return "returned"

    def sleeps_by_itself(self, seconds: float) -> str:
        time.sleep(seconds)
        return "returned"

    def cleans_up(self, seconds: float) -> str:
        try:
            spin(time.monotonic() + seconds)
        finally:
            self.seen["cleaned up"] += 1
        return "returned"

    def generates(self, seconds: float) -> str:
        def steps() -> Iterator[int]:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                yield 1

        sum(steps())
        return "returned"

    def nests(self, seconds: float) -> str:
        try:
            call(
                self,
                self.random.choice((self.computes, self.raises, self.sleeps)),
                seconds,
                0.001 * self.random.random(),
            )
        except (TimeoutException, BodyFailed):
            self.seen["inner failed"] += 1
        return self.computes(seconds / 4)

    def masks(self, seconds: float) -> str:
        with uninterruptible():
            try:
                spin(time.monotonic() + seconds)
            except Interrupted:
                self.wrong.append("interrupted inside a mask")
                raise
        return "returned"

    def queues(self, seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.items.put(1)
            self.items.get()
        return "returned"

    def logs(self, seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.logger.info("busy %d", 1)
        return "returned"

    def sets_events(self, seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.event.set()
            self.event.wait(0.0005)
            self.event.clear()
        return "returned"

    def waits(self, seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self.condition:
                self.condition.wait(0.0005)
        return "returned"

    def acquires(self, seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.lock.acquire()
            try:
                len(self.seen)
            finally:
                self.lock.release()
            with self.semaphore, self.condition:
                self.condition.notify()
        return "returned"

    def borrows(self, seconds: float) -> str:
        @contextmanager
        def borrowed() -> Iterator[None]:
            self.lock.acquire()
            try:
                yield
            finally:
                self.lock.release()

        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with borrowed():
                len(self.seen)
        return "returned"

    def queues_with_others(self, seconds: float) -> str:
        return Load.queues(self.all, seconds)

    def logs_with_others(self, seconds: float) -> str:
        return Load.logs(self.all, seconds)

    def waits_with_others(self, seconds: float) -> str:
        return Load.waits(self.all, seconds)

    def notifies_others(self, seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self.all.condition:
                self.all.condition.notify_all()
            self.all.event.set()
        return "returned"

    def acquires_from_others(self, seconds: float) -> str:
        until = time.monotonic() + seconds
        lock = self.all.lock
        while time.monotonic() < until:
            if not lock.acquire(timeout=0.02):
                continue
            try:
                spin(time.monotonic() + 0.0005)
            finally:
                lock.release()
        return "returned"

    @property
    def all(self) -> Load:
        assert self.shared is not None
        return self.shared

    def held_locks(self) -> list[str]:
        """Return the locks that are held although no body runs."""
        plain = {
            "queue": self.items.mutex,
            "lock": self.lock,
            "event": self.event._cond._lock,  # type: ignore[attr-defined]
            "semaphore": self.semaphore._cond._lock,  # type: ignore[attr-defined]
        }
        held = [name for name, lock in plain.items() if lock.locked()]
        owned = {"condition": self.condition._lock, "logging": self.handler.lock}  # type: ignore[attr-defined]
        held += [name for name, lock in owned.items() if lock._is_owned()]
        if self.semaphore._value != 1:  # type: ignore[attr-defined]
            held.append("a permit of the semaphore")
        return held


BODIES = tuple(
    function for name, function in vars(Load).items() if callable(function) and name not in ("__init__", "held_locks")
)
GUARDED: dict[float, Callable[..., str]] = {}


def call(load: Load, body: Callable[[float], str], seconds: float, limit: float) -> str:
    """Run *body* for *seconds* under a deadline after *limit*, and check its end."""
    limit = max(0.0002, round(limit, 4))
    guarded = GUARDED.get(limit)
    if guarded is None:
        guarded = GUARDED[limit] = timeout(limit * 1000)(lambda body, seconds: body(seconds))
    began = time.monotonic()
    try:
        return guarded(body, seconds)
    except TimeoutException:
        if time.monotonic() - began < limit:
            load.wrong.append("timed out before its deadline")
        raise


def hammer(load: Load, until: float) -> None:
    outer = this_thread.deadlines.innermost
    while time.monotonic() < until:
        body = load.random.choice(BODIES)
        limit = load.random.choice((0.0005, 0.001, 0.002, 0.004))
        seconds = limit * load.random.uniform(0.7, 1.3)
        try:
            try:
                came = call(load, body.__get__(load), seconds, limit)
            except TimeoutException:
                came = "timed out"
            except BodyFailed:
                came = "failed"
            spin(time.monotonic() + 0.0002)  # where an interruption that is late would land
        except BaseException as error:
            load.wrong.append(f"escaped from {body.__name__}: {error!r}")
            continue
        load.seen[came] += 1
        load.seen["calls"] += 1
        if this_thread.deadlines.innermost is not outer:
            load.wrong.append(f"{body.__name__} left a deadline behind")
            this_thread.deadlines.innermost = outer
        held = load.held_locks()
        if held:
            load.wrong.append(f"{body.__name__} left held: {held}")
            return


def work_at_once(interval: float) -> Counter[str]:
    """Run bodies on all threads at once, and return what was seen; fail on anything wrong."""
    shared = Load(-1)
    loads = [Load(seed, shared) for seed in range(THREADS + 1)]
    until = time.monotonic() + SECONDS / 4
    threads = [threading.Thread(target=hammer, args=(load, until), daemon=True) for load in loads[1:]]
    with switching_every(interval):
        for thread in threads:
            thread.start()
        hammer(loads[0], until)
        while time.monotonic() < until + 20.0 and any(thread.is_alive() for thread in threads):
            time.sleep(0.01)
    frames = frames_of_threads()
    hanging = ["".join(traceback.format_stack(frames[one.ident])) for one in threads if one.ident in frames]
    seen = sum((load.seen for load in loads), Counter[str]())
    print(dict(seen), *hanging, sep="\n")

    assert [wrong for load in loads for wrong in load.wrong] == []
    assert hanging == []
    assert shared.held_locks() == []
    return seen


INTERVALS = pytest.mark.parametrize("interval", [0.005, 0.00001], ids=["usual", "frantic"])
"""Seconds between two switches of threads."""


@INTERVALS
def test_interruptions_hit_their_own_call_and_nothing_else(interval: float) -> None:
    """No interruption outside its call or too early, no deadline and no lock left behind, under any body and load."""
    seen = work_at_once(interval)

    assert seen["timed out"] > 50
    assert seen["returned"] > 50


@INTERVALS
def test_bodies_that_end_while_they_are_being_interrupted_are_let_go(
    interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with pauses between the watchdog's steps, in which bodies return and others begin."""
    chance = random.Random(11)

    def is_open_after_a_while(deadlines: ThreadDeadlines, entry: Entry) -> bool:
        if deadlines is not this_thread.deadlines:
            time.sleep(chance.random() * 0.002)
            came = is_open(deadlines, entry)
            time.sleep(chance.random() * 0.002)
            return came
        return is_open(deadlines, entry)

    monkeypatch.setattr(async_exception, "is_open", is_open_after_a_while)
    monkeypatch.setattr(main_thread, "is_open", is_open_after_a_while)

    seen = work_at_once(interval)

    assert seen["timed out"] > 50
