"""Places at which an interruption may be raised, and others at which it may not."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from faulttolerance import Guard, TimeoutException, timeout
from faulttolerance._deadline.threads import safe_point
from faulttolerance._deadline.threads.safe_point import reason_unsafe
from faulttolerance._platform.atomic import stack_of
from faulttolerance.policies import Timeout
from kit.tiers import few_and_many
from kit.waiting import wait_until

WHERE = pytest.mark.parametrize("on_main", [True, False], ids=["main", "other"])
"""The thread on which a body is interrupted."""
BUSY = "it was acquiring or releasing something in "


def run(function: Callable[[], object], on_main: bool) -> None:
    """Call *function*, whose deadline passes."""

    def call() -> None:
        with contextlib.suppress(TimeoutException):
            function()

    if on_main:
        call()
    else:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(60.0)
        assert not thread.is_alive()


def test_a_callback_of_the_collector_is_no_safe_point() -> None:
    """The exception of such a callback is lost, and the collector may run in a call that holds a lock."""
    heard: list[str | None] = []

    def callback(phase: str, info: dict[str, int]) -> None:
        here(heard, 10.0)
        deeper()

    def deeper() -> None:
        here(heard, 10.0)

    gc.callbacks.append(callback)
    try:
        gc.collect(0)
    finally:
        gc.callbacks.remove(callback)

    assert set(heard) == {"it was in a callback of the garbage collector"}


# Taking and giving back, by way of helpers


def here(found: list[str | None], late_by: float, **options: Any) -> None:
    """Add to *found* the objection to an interruption of the caller, which uses no result of this call."""
    found.append(reason_unsafe(stack_of(sys._getframe(1)), late_by, exact=True, stuck=True, **options))


class Rites:
    """A context manager that takes and gives back by helpers, in which it looks around."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.look = look

    def help(self) -> None:
        self.look()

    def __enter__(self) -> None:
        self.help()

    def __exit__(self, *_: object) -> None:
        self.help()

    async def __aenter__(self) -> None:
        self.help()

    async def __aexit__(self, *_: object) -> None:
        self.help()

    acquire = __enter__
    release = __enter__

    def renamed(self) -> None:
        self.help()


def by_with(rites: Rites) -> None:
    with rites:
        pass


def by_async_with(rites: Rites) -> None:
    async def main() -> None:
        async with rites:
            pass

    with contextlib.suppress(StopIteration):
        main().send(None)


def by_exit_stack(rites: Rites) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(rites)
        stack.callback(rites.help)


def by_generator(rites: Rites) -> None:
    @contextlib.contextmanager
    def manager() -> Iterator[None]:
        rites.help()
        try:
            yield
        finally:
            rites.help()

    with manager():
        pass


def by_names(rites: Rites) -> None:
    rites.acquire()
    rites.release()


def by_names_of_others(rites: Rites) -> None:
    class Renamed:
        acquire = release = rites.renamed

    Renamed.acquire()
    Renamed.release()


@pytest.mark.parametrize(
    "use",
    [by_with, by_async_with, by_exit_stack, by_generator, by_names, by_names_of_others],
    ids=lambda one: one.__name__,
)
def test_helpers_of_a_context_manager_are_left_in_peace_for_a_second(use: Callable[[Rites], None]) -> None:
    """R2a: at any depth of the thread in them."""
    at_first: list[str | None] = []
    later: list[str | None] = []

    def look() -> None:
        here(at_first, 0.9)
        here(later, 1.1)

    use(Rites(look))

    assert len(at_first) >= 2
    for early, late in zip(at_first, later, strict=True):
        assert early is not None
        assert early.startswith(BUSY)
        assert late is None


def test_call_that_only_looks_like_the_end_of_a_block_is_none() -> None:
    """Many functions are called with three times ``None``."""
    seen: list[str | None] = []

    def search(*_: object) -> None:
        here(seen, 0.0)

    search(None, None, None)
    search("books", None, None, None)

    assert seen == [None, None]


def test_an_attribute_that_only_has_such_a_name_is_like_any_other() -> None:
    """A descriptor may load it, as that of a lazy foreign key named ``release``."""
    seen: list[str | None] = []

    class ForeignKey:
        def __get__(self, track: object, owner: object) -> None:
            here(seen, 0.0)

    class Track:
        release = ForeignKey()

    assert Track().release is None

    assert seen == [None]


def test_only_code_inside_the_call_that_is_interrupted_is_left_in_peace() -> None:
    """A guard inside ``__enter__`` ends its own call; the guard around it waits until ``__enter__`` is over."""
    seen: list[str | None] = []

    @timeout(60_000)
    def inner() -> None:
        for depth in (1, 2, 3):
            here(seen, 0.0, depth=depth)

    @timeout(60_000)
    def outer() -> None:
        with Rites(inner):
            pass

    by_with(Rites(outer))

    assert [one is None for one in seen[:3]] == [True, False, False]


def test_thread_that_waits_for_others_is_interrupted_at_once_but_not_amidst_helpers() -> None:
    """Code that is made for waiting has taken nothing while it waits; its caller may have."""
    variables: dict[str, Any] = {
        "__name__": "threading",
        "look": lambda: reason_unsafe(stack_of(sys._getframe(1)), 0.0, exact=True, blocked=True),
    }
    exec("def acquire(self=None):\n    return look()\n", variables)
    acquire = variables["acquire"]
    seen: list[str | None] = []

    assert acquire() is None

    for use in (by_with, by_generator):
        use(Rites(lambda: seen.append(acquire())))
    assert seen
    assert all(one is not None and one.startswith(BUSY) for one in seen)


def test_a_generator_of_installed_code_that_waits_is_interrupted_as_its_functions_are() -> None:
    """Such as ``engine.begin()`` of SQLAlchemy, while its pool has no connection, or ``client.stream()`` of httpx."""
    seen: list[str | None] = []
    standard: dict[str, Any] = {
        "__name__": "threading",
        "look": lambda: seen.append(reason_unsafe(stack_of(sys._getframe(1)), 0.0, exact=True, blocked=True)),
    }
    exec("def wait():\n    look()\n", standard)
    pool = {"__name__": "pool", "__file__": "/site-packages/pool.py", "wait": standard["wait"]}
    exec("def connection():\n    wait()\n    yield\n    wait()\n", pool)

    with contextlib.contextmanager(pool["connection"])():
        pass

    entering, leaving = seen
    assert entering is None
    assert leaving is not None
    assert leaving.startswith(BUSY)


class Pool:
    """A pool like those of database drivers: it takes and gives back by way of helpers."""

    def __init__(self) -> None:
        self.free = ["one", "other"]
        self.lock = threading.Lock()
        self.taken: list[str] = []

    def check(self) -> None:
        for _ in range(30):
            pass

    def take(self) -> str:
        self.check()
        with self.lock:
            taken = self.free.pop()
        self.check()
        return taken

    def give(self, one: str) -> None:
        self.check()
        with self.lock:
            self.free.append(one)
        self.check()

    def __enter__(self) -> str:
        self.taken.append(self.take())
        self.check()
        return self.taken[-1]

    def __exit__(self, *_: object) -> None:
        self.give(self.taken.pop())


def fast_call() -> None:
    for _ in range(10):
        pass


@WHERE
@few_and_many("times", 8, 40)
def test_nothing_is_taken_and_not_given_back(on_main: bool, times: int) -> None:
    """R2a: by the context managers of a loop that does little else."""
    lost = []

    for _ in range(times):
        pool = Pool()

        @timeout(5)
        def use(pool: Pool = pool) -> None:
            while True:
                with pool:
                    fast_call()

        run(use, on_main)
        lost.append((len(pool.taken), 2 - len(pool.free), pool.lock.locked()))

    assert lost == [(0, 0, False)] * times


# Interruptions that can only be raised behind an acquisition


def ended_late(body: Callable[[], object], limit: float = 50) -> str:
    """Run *body* on another thread until it ends by itself, and return the notes of its time-out."""
    notes: list[str] = []

    def call() -> None:
        try:
            timeout(limit)(body)()
        except TimeoutException as error:
            notes.extend(error.__notes__)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60.0)
    return "".join(notes)


@pytest.mark.parametrize("way", ["acquire", "with"])
def test_thread_that_waits_for_a_lock_is_never_interrupted_behind_it(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R2a: the lock that it takes then would be lost; so it ends late, however long it waited."""
    monkeypatch.setattr(safe_point, "_PATIENCE", 0.02)
    monkeypatch.setattr(safe_point, "_LONG_PATIENCE", 0.02)
    lock = threading.Lock()
    entered: list[bool] = []

    def take() -> None:
        lock.acquire()
        try:
            entered.append(True)
        finally:
            lock.release()

    def enter() -> None:
        with lock:
            entered.append(True)

    lock.acquire()
    threading.Timer(0.4, lock.release).start()
    notes = ended_late(take if way == "acquire" else enter)

    assert "it was acquiring or releasing something" in notes
    assert entered
    assert not lock.locked()


@pytest.mark.parametrize("late_by", [0.0, 60.0])
@pytest.mark.parametrize("asleep", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_thread_in_a_call_is_not_interrupted_behind_it_if_the_result_is_used(
    exact: bool, asleep: bool, late_by: float
) -> None:
    """R2a: the result would be lost, such as an item of a queue; the thread may be about to go on."""
    items: queue.SimpleQueue[str] = queue.SimpleQueue()
    taken: list[str] = []

    def take() -> None:
        item = items.get()
        time.sleep(0)
        taken.append(item)

    def why() -> str | None:
        stack = stack_of(sys._current_frames()[thread.ident or 0])
        why = reason_unsafe(stack, late_by, exact=exact, asleep=asleep, may_wait=True)
        return why if stack[0].f_code is take.__code__ else None

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    wait_until(lambda: "it was about to use what a call returned" in (why() or ""))
    items.put("item")
    thread.join(20.0)

    assert taken == ["item"]


def test_items_that_come_long_after_the_deadlines_of_waiting_threads_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R2a: a thread that has just got one, and waits for the interpreter, is not taken for one that goes round."""
    monkeypatch.setattr(safe_point, "_PATIENCE", 0.02)
    monkeypatch.setattr(safe_point, "_LONG_PATIENCE", 0.02)
    queues: list[queue.SimpleQueue[int]] = [queue.SimpleQueue() for _ in range(30)]
    taken: list[int] = []
    is_over = threading.Event()

    def take(items: queue.SimpleQueue[int]) -> None:
        item = items.get()
        taken.append(item)

    def compute() -> None:
        while not is_over.is_set():
            sum(range(100))

    waiting = [threading.Thread(target=run, args=(timeout(20)(partial(take, one)), True)) for one in queues]
    others = [threading.Thread(target=compute) for _ in range(3)]
    for thread in waiting:
        thread.start()
    time.sleep(0.3)
    for thread in others:
        thread.start()
    for number, items in enumerate(queues):
        time.sleep(0.02)
        items.put(number)
    for thread in waiting:
        thread.join(20.0)
    is_over.set()

    assert sorted(taken) == [*range(len(queues))]


@dataclass
class Prices:
    by_name: dict[str, int]

    def add_up(self) -> None:
        number = 0
        while number < 100_000_000:
            number += self.by_name.get("one")


def read_clock() -> None:
    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        pass


def split() -> None:
    words = [""]
    while len(words) < 5:
        words = " one two ".strip().split()


@WHERE
@pytest.mark.parametrize("body", [read_clock, split, Prices({"one": 1}).add_up], ids=["clock", "text", "dict"])
def test_loop_that_only_uses_what_harmless_calls_return_is_interrupted_in_time(
    body: Callable[[], object], on_main: bool
) -> None:
    """R2: nothing is lost behind them, so they need not end first."""
    durations = []
    for _ in range(3):
        began = time.monotonic()
        run(timeout(50)(lambda: body()), on_main)
        durations.append(time.monotonic() - began)

    assert min(durations) < 2.0


def test_interruption_that_comes_late_names_its_obstacle() -> None:
    lock = threading.Lock()

    def wait_and_work() -> None:
        with lock:
            pass
        while True:
            fast_call()

    lock.acquire()
    threading.Timer(0.4, lock.release).start()

    assert "; it was not interrupted earlier: it was acquiring or releasing something" in ended_late(wait_and_work)


def test_thread_that_waits_outside_a_call_is_not_interrupted_behind_the_next_acquisition() -> None:
    """R2a: a loop over a pipe waits in such an instruction; the next place is behind the call."""
    reading, writing = os.pipe()
    lock = threading.Lock()

    def read() -> None:
        with open(reading, encoding="ascii") as lines:
            for _ in lines:
                lock.acquire()
                lock.release()

    def write() -> None:
        os.write(writing, b"one\n")
        os.close(writing)

    threading.Timer(0.3, write).start()
    notes = ended_late(read)

    assert re.search("acquir(e|ing) or releas(e|ing) something", notes)  # it may have been seen behind the call, too
    assert not lock.locked()


@WHERE
def test_block_around_a_loop_is_left_in_order_wherever_the_loop_is_interrupted(on_main: bool) -> None:
    """R2a: at the jump of a loop, 3.13 raises an exception as if it came from outside the block."""
    held = []

    for _ in range(5):
        lock = threading.Lock()

        @timeout(5)
        def count(lock: threading.Lock = lock) -> None:
            number = 0
            with lock:
                while number < 1_000_000:
                    number += 1

        run(count, on_main)
        held.append(lock.locked())

    assert held == [False] * 5


def test_loop_inside_a_block_is_interrupted_where_it_calls_something() -> None:
    """Only the jump is no place for an interruption."""
    lock = threading.Lock()

    @timeout(5)
    def turn() -> None:
        until = time.monotonic() + 20.0
        with lock:
            while time.monotonic() < until:
                fast_call()

    began = time.monotonic()
    run(turn, on_main=True)

    assert time.monotonic() - began < 10.0
    assert not lock.locked()


def test_body_that_is_about_to_return_may_be_interrupted_however_it_was_called() -> None:
    """R2a: an exception that comes one check later may reach the caller of the body, which expects it."""
    seen: list[str | None] = []

    def look() -> None:
        seen.append(reason_unsafe(stack_of(sys._getframe(1)), 0.0, exact=False))

    def body() -> None:
        look()

    timeout(60_000)(body)()
    Guard(timeout=Timeout(60_000)).call(body)
    Guard(timeout=Timeout(60_000))(body)()

    assert seen == [None, None, None]


class SlowThread(threading.Thread):
    """A thread that takes its time to begin."""

    def _bootstrap(self) -> None:
        time.sleep(0.2)
        super()._bootstrap()  # type: ignore[misc]


@WHERE
def test_a_call_that_waits_for_a_thread_to_begin_is_not_interrupted(on_main: bool) -> None:
    """R2a: nothing would know of that thread; on 3.11 the exception might even have hit it."""
    ran = threading.Event()
    notes: list[str] = []

    def start() -> None:
        try:
            timeout(20)(lambda: SlowThread(target=ran.set, daemon=True).start())()
        except TimeoutException as error:
            notes.extend(error.__notes__)

    run(start, on_main)

    assert ran.wait(20.0)
    assert "it was not interrupted: it was in threading.Condition.wait" in "".join(notes)
