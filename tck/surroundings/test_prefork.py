"""Servers that fork workers, from any thread, and before or after greenlets replace threads."""

from __future__ import annotations

import os

import pytest

from kit.program import LIBRARY
from kit.surroundings import GREENLETS, PATCH, needs, run

pytestmark = [pytest.mark.outside, pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")]

PREAMBLE = """
import os, sys, threading, time
from faulttolerance import *

@timeout(100)
def wait(seconds=30):
    time.sleep(seconds)

@timeout(100)
def compute(seconds=30):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

@asynchronous
@retry(max_retries=2, delay=10, jitter=0)
@timeout(5000)
@bulkhead(1, waiting_task_queue=50)
def offloaded(number, failures):
    if failures:
        raise OSError(failures.pop())
    time.sleep(0.01)
    return completed_future(number)

def outcome(function, *arguments):
    began = time.perf_counter()
    try:
        return function(*arguments)
    except Exception as error:
        return f"{type(error).__name__} {'in time' if time.perf_counter() - began < 15 else 'late'}"

def in_child(*functions):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 1
        try:
            for function in functions:
                print(function())
            sys.stdout.flush()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_child_of_a_thread_that_forks_is_interrupted() -> None:
    """The forking thread is the main one of the child; on CPython 3.13 signals alone do not reach it."""
    for used in ("", "outcome(wait)\n"):
        lines = run(
            PREAMBLE
            + used
            + """
def fork():
    print(in_child(lambda: outcome(wait), lambda: outcome(compute), lambda: outcome(wait)))

thread = threading.Thread(target=fork)
thread.start()
thread.join()
""",
            "-W",
            "ignore",
            after=LIBRARY,
        )

        assert lines == ["TimeoutException in time"] * 3 + ["0"]


# Until the watchdog rests: while a thread waits for the interpreter, a child that C code forks hangs in any program.
@pytest.mark.parametrize("used", ["", "outcome(compute, 0)\ntime.sleep(0.5)"], ids=["unused", "used"])
def test_calls_in_a_process_that_c_code_forked_beside_threads_end_late_and_say_why(used: str) -> None:
    """uWSGI forks so by default: the frames of the lost threads are garbage, and a look at them ended the process."""
    lines = run(
        PREAMBLE
        + f"""
import ctypes, queue

for _ in range(3):
    threading.Thread(target=queue.Queue().get, daemon=True).start()
{used}
child = ctypes.PyDLL(None).fork()
if not child:
    for _ in range(4):  # they are given the stacks of the lost threads
        thread = threading.Thread(target=list, args=(range(100_000),))
        thread.start()
        thread.join()
    try:
        compute(0.3)
    except TimeoutException as late:
        print(late.__notes__[0].partition("; ")[2], flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        "-W",
        "ignore",
        after=LIBRARY,
    )

    why = "C code forked its process beside threads, without Python's hooks; in uWSGI set py-call-uwsgi-fork-hooks"
    assert lines == [f"it was not interrupted: {why}", "0"]


def test_calls_in_a_process_that_c_code_forked_without_threads_end_in_time() -> None:
    """Threads that such a process has started itself, as in a hook of uWSGI, are not taken for lost ones."""
    lines = run(
        PREAMBLE
        + """
import ctypes, queue

child = ctypes.PyDLL(None).fork()
if not child:
    threading.Thread(target=queue.Queue().get, daemon=True).start()
    print(outcome(compute), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        after=LIBRARY,
    )

    assert lines == ["TimeoutException in time", "0"]


@pytest.mark.parametrize("first", ["patched", "declared", "used"])
def test_workers_that_greenlets_fork_serve_guarded_calls(first: str) -> None:
    """A pool of Celery does so: each worker makes its own calls, and the parent continues its own."""
    needs("gevent")
    use = "assert offloaded(1, [1]).result(10) == 1\noutcome(wait)\n"
    beginning = {"patched": PATCH + PREAMBLE, "declared": PREAMBLE + PATCH, "used": PREAMBLE + use + PATCH}[first]

    lines = run(
        beginning
        + """
import gevent

def work():
    futures = [offloaded(number, [1]) for number in range(10)]
    return [future.result(20) for future in futures] == list(range(10))

assert work()
gevent.spawn(outcome, wait, 0.2)
for _ in range(2):
    print(in_child(lambda: gevent.spawn(work).get(), lambda: outcome(wait, 0.2), lambda: outcome(compute)))
print(work(), outcome(compute))
""",
        "-W",
        "ignore",
        after=GREENLETS if first == "patched" else LIBRARY + GREENLETS,
    )

    assert lines == ["True", "TimeoutException in time", "TimeoutException in time", "0"] * 2 + [
        "True TimeoutException in time"
    ]
