"""Steps of C code between which no other thread runs: the stacks of other threads are read in these steps."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, repeat
from types import FrameType

import pytest

from faulttolerance._platform.atomic import frames_of_threads, once, stack_of, uncollected, uncollected_once
from kit.program import python
from kit.tiers import few_and_many

ROUNDS = 20_000

LOOKS = {
    "the clock of tests": "thread_observer._Trace(frame)",
    "the watchdog": "safe_point.reason_unsafe(one_step.stack_of(frame), 9.0, exact=True)",
    "a loop": "inner_loop.find_loop(one_step.stack_of(frame), 1)",
    "a greenlet": "safe_point.is_of_call(one_step.stack_of(frame), None)",
}

LOOKED_AT = """
import asyncio, gc, os, random, sys, threading, time
from faulttolerance._platform import atomic as one_step
from faulttolerance._deadline.threads import inner_loop, safe_point
from faulttolerance.testing import thread_observer

class Garbage:
    def __init__(self): self.me = self
    def __del__(self): time.sleep(0.00005)

def function(size):
    names, found = " = ".join(f"v{number}" for number in range(size)), {}
    body = f" {names} = object()\\n if depth: ways[depth % 5](depth - 1, ways[1:] + ways[:1])"
    exec("def go(depth, ways):\\n" + body, found)
    return found["go"]

def work(seed):
    chance = random.Random(seed)
    while True:
        chance.choice(ways)(chance.randrange(30), ways)

until = time.monotonic() + float(sys.argv[1])
ways = [function(size) for size in (1, 2, 5, 11, 23)]  # where one frame was, others of all sizes come to lie
sys.setswitchinterval(0.00001)
gc.set_threshold(3)
for seed in range(3):
    threading.Thread(target=work, args=(seed,), daemon=True).start()
looks = 0
while looks < 100 or time.monotonic() < until:
    for frame in one_step.frames_of_threads().values():
        Garbage()
        LOOK
        looks += 1
print(True, flush=True)
os._exit(0)  # the others run on
"""


@pytest.mark.outside
@few_and_many("seconds", 0.6, 1.5)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_frames_of_other_threads_are_followed_while_no_thread_runs(look: str, seconds: float) -> None:
    """A collection during a look lets the threads go on, and the interpreter follows frames that are gone: a crash."""
    program = LOOKED_AT.replace("LOOK\n", look + "\n")

    done = python(program, arguments=(str(seconds),))

    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@contextmanager
def others_counting() -> Iterator[Callable[[], int]]:
    """Run other threads whenever possible; yield a function in C that returns how far they have come."""
    steps = count()
    is_over = threading.Event()

    def work() -> None:
        for step in steps:
            seen[0] = step
            if is_over.is_set():
                return

    seen = [0]
    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.000001)
    try:
        for thread in threads:
            thread.start()
        yield partial(seen.__getitem__, 0)
    finally:
        is_over.set()
        sys.setswitchinterval(usual)
        for thread in threads:
            thread.join()


def test_no_thread_runs_between_two_steps() -> None:
    """The code that sends an exception, or a signal, relies on it."""
    with others_counting() as come:
        moved = 0
        for _ in repeat(None, ROUNDS):
            first, step, last = once(come), uncollected_once(gc.isenabled), once(come)  # these are calls
            for before in first:
                for _ in step:
                    for after in last:
                        moved += before != after
                        break
                    break
                break

    assert moved == 0


def test_threads_do_run_between_two_calls() -> None:
    """Otherwise the test above would see nothing."""
    with others_counting() as come:
        until = time.monotonic() + 30
        moved = False
        while not moved and time.monotonic() < until:
            before = come()
            len([])
            moved = before != come()

    assert moved


def test_a_collector_that_is_off_stays_off_and_one_that_is_on_stays_on() -> None:
    """The application decides when its garbage is collected, also where the step fails."""
    was_collecting = gc.isenabled()
    try:
        for wanted in (gc.enable, gc.disable):
            wanted()
            expected = gc.isenabled()

            assert uncollected(gc.isenabled) is False
            assert gc.isenabled() is expected
            assert [*uncollected_once(gc.isenabled)] == [False]
            assert gc.isenabled() is expected
            with pytest.raises(SyntaxError):
                uncollected(partial(compile, "no program", "text", "exec"))
            assert gc.isenabled() is expected
    finally:
        (gc.enable if was_collecting else gc.disable)()


def test_a_stack_has_the_frames_that_a_walk_from_frame_to_frame_meets() -> None:
    frame: FrameType | None = sys._getframe()
    walked = []
    while frame is not None:
        walked.append(frame)
        frame = frame.f_back

    assert stack_of(sys._getframe()) == tuple(walked)


def test_the_thread_that_looks_is_not_looked_at() -> None:
    """Its frame would keep the mapping of all frames, and with it the objects on their stacks."""
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait, daemon=True)
    thread.start()
    try:
        frames = frames_of_threads()
    finally:
        waiting.set()

    assert thread.ident in frames
    assert threading.get_ident() not in frames
