"""Greenlets instead of threads: gevent patches before the library is imported, after it declared, or later."""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import faulttolerance
from kit import surroundings
from kit.program import LIBRARY
from kit.surroundings import GREENLETS, PATCH, gunicorn, needs
from kit.waiting import wait_until

pytestmark = pytest.mark.outside

PREAMBLE = """
import faulttolerance, time
from faulttolerance import (
    TimeoutException, asynchronous, bulkhead, circuit_breaker, completed_future, deadline, on_deadline, rate_limit,
    remaining, retry, shutdown, timeout, uninterruptible,
)

@timeout(100)
def wait(seconds):
    time.sleep(seconds)
    return "waited"

@timeout(100)
def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return "computed"

@retry(max_retries=3, delay=200, jitter=0)
def flaky(failures):
    if failures:
        raise OSError(failures.pop())
    return "done"

@asynchronous
@retry(max_retries=1, delay=20, jitter=0)
@timeout(2000)
@bulkhead(2, waiting_task_queue=100)
def offloaded(number, failures=None):
    if failures:
        raise OSError(failures.pop())
    time.sleep(0.02)
    return completed_future(number)

def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__ + ": " + "; ".join(getattr(error, "__notes__", ()))
"""

USE = """
assert outcome(wait, 10).startswith("TimeoutException: it ended")
assert flaky([1]) == "done"
assert offloaded(1).result(10) == 1
"""

WITNESS = """
import gevent
ticks = []

def witness():
    while True:
        gevent.sleep(0.005)
        ticks.append(1)

gevent.spawn(witness)
"""


def run(program: str, **environment: str) -> list[str]:
    """Run *program* where gevent is imported, and the library if that comes first in the program."""
    first = LIBRARY + GREENLETS if program.lstrip().startswith("import faulttolerance") else GREENLETS
    return surroundings.run(program, after=first, **environment)


@pytest.fixture(autouse=True)
def needs_gevent() -> None:
    needs("gevent")


INTERRUPTED = r"TimeoutException: it ended \S+ s after its deadline(?!.*it was (interrupted|not interrupted:))"
"""The message about a call that was interrupted once, with its line where the machine was busy."""


@pytest.fixture(params=["patched-first", "declared-first", "used-first"])
def patched(request: pytest.FixtureRequest) -> str:
    """Return the beginning of a program that uses gevent, with a greenlet that notes whether it runs."""
    return {
        "patched-first": PATCH + PREAMBLE,
        "declared-first": PREAMBLE + PATCH,
        "used-first": PREAMBLE + USE + PATCH,
    }[request.param] + WITNESS


def test_a_call_of_the_first_greenlet_that_waits_is_interrupted(patched: str) -> None:
    """S4: the hub's timer interrupts it, as in any other greenlet; other greenlets run meanwhile."""
    (waited, again, seconds) = run(
        patched
        + """
began = time.perf_counter()
print(outcome(wait, 30))
assert ticks
print(outcome(wait, 0.001))
print(time.perf_counter() - began)
"""
    )

    assert re.match(INTERRUPTED, waited)
    assert again == "waited"
    assert float(seconds) < 15


def test_a_call_of_the_first_greenlet_that_computes_is_interrupted(patched: str) -> None:
    """Its stack is on its thread, as without greenlets."""
    (computed,) = run(patched + "print(outcome(compute, 30))")

    assert re.match(INTERRUPTED, computed)


def test_a_call_in_a_greenlet_is_interrupted_where_it_waits(patched: str) -> None:
    """By rule S4: each of many at its own deadline; a call that never yields ends late, and nothing is logged."""
    lines = run(
        """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
"""
        + patched
        + """
import queue, threading

@timeout(100)
def wait_for(what):
    what()

waits = [queue.Queue().get, threading.Event().wait, threading.Semaphore(0).acquire, lambda: faulttolerance.sleep(30)]
began = time.perf_counter()
greenlets = [gevent.spawn(outcome, wait, 30) for _ in range(50)]
greenlets += [gevent.spawn(outcome, wait_for, one) for one in waits]
gevent.joinall(greenlets)
print(*{one.value[:16] + one.value.partition("; ")[2] for one in greenlets}, time.perf_counter() - began < 15)
print(gevent.spawn(outcome, compute, 0.3).get().rpartition("; ")[2])
print(outcome(lambda: gevent.spawn(outcome, wait, 0).get()))
"""
    )

    assert lines == [
        "TimeoutException True",
        "it was not interrupted: it ran in a greenlet",
        "waited",
    ]


def test_nested_deadlines_of_greenlets_go_to_their_owners(patched: str) -> None:
    """S4, R2: the guard whose deadline passed times out; the next attempt of a retry begins anew."""
    lines = run(
        patched
        + """
attempts = []

@timeout(500)
def outer():
    @retry(max_retries=9, delay=0, jitter=0)
    @timeout(100)
    def inner():
        attempts.append(1)
        time.sleep(30)
    inner()

@timeout(100)
def held_back():
    with uninterruptible():
        time.sleep(0.2)
        attempts.append("held")
    attempts.append("never")

for function in (outer, held_back):
    attempts.clear()
    try:
        gevent.spawn(function).get()
    except TimeoutException as error:
        print(error, set(attempts), len(attempts) > 1)
print(remaining())
"""
    )

    assert lines == [
        "__main__.outer: timed out after 0.5 s {1} True",
        "__main__.held_back: timed out after 0.1 s {'held'} False",
        "None",
    ]


def test_a_timer_that_comes_after_its_call_does_nothing(patched: str) -> None:
    """S4: it affects neither the greenlet that goes on nor the hub, which ends after all greenlets."""
    lines = run(
        patched
        + """
@timeout(100)
def quick():
    gevent.sleep(0)

@timeout(60_000)
def long():
    gevent.sleep(0)

def work():
    quick()
    gevent.sleep(0.2)
    return "undisturbed"

print(gevent.spawn(work).get())
began = time.perf_counter()
gevent.joinall(kept := [gevent.spawn(long) for _ in range(1000)])
import gc
gevent.killall([one for one in gc.get_objects() if isinstance(one, gevent.Greenlet)])
gevent.wait(timeout=30)
print(time.perf_counter() - began < 25)
"""
    )

    assert lines == ["undisturbed", "True"]


def test_many_greenlets_that_end_at_about_their_deadlines_do_not_disturb_others(patched: str) -> None:
    """S4, R2: exactly one cause ends a call, once: its deadline, that of an enclosing call, or gevent."""
    lines = run(
        patched
        + """
import random, collections
found = collections.Counter()

def work(seed):
    chance = random.Random(seed)

    @bulkhead(1)
    @timeout(10)
    def inner():
        time.sleep(chance.uniform(0, 0.02))

    @timeout(25)
    def outer():
        for _ in range(chance.randrange(1, 4)):
            try:
                inner()
            except TimeoutException:
                found["inner"] += 1
            gevent.sleep(chance.uniform(0, 0.01))

    for _ in range(20):
        try:
            with gevent.Timeout(chance.uniform(0.005, 0.1), False):
                outer()
        except TimeoutException as error:
            found["outer" if "outer" in str(error) else "wrong"] += 1
        try:
            gevent.sleep(chance.uniform(0, 0.005))
        except gevent.GreenletExit:
            raise  # it was killed
        except BaseException as error:
            found["stray"] += 1
    if remaining() is not None:
        found["kept"] += 1
    return True

greenlets = [gevent.spawn(work, seed) for seed in range(100)]
killed = [gevent.spawn(work, seed) for seed in range(100, 150)]
gevent.sleep(0.1)
gevent.killall(killed)
gevent.joinall(greenlets)
print(all(one.value for one in greenlets), sorted(found))
"""
    )

    assert lines == ["True ['inner', 'outer']"]


def test_on_deadline_calls_its_function_in_a_greenlet(patched: str) -> None:
    """S1 in a hub: the function may wait, and the block waits for it."""
    lines = run(
        patched
        + """
order = []

def cancel():
    gevent.sleep(0.01)
    order.append("called")

@timeout(100)
def work():
    with on_deadline(cancel):
        time.sleep(30)

for _ in range(2):
    print(outcome(lambda: gevent.spawn(outcome, work).get())[:16])
    order.append("left")
print(order)
"""
    )

    assert lines == ["TimeoutException", "TimeoutException", "['called', 'left', 'called', 'left']"]


def test_a_timeout_of_gevent_stands_beside_a_deadline(patched: str) -> None:
    """It rules for as long as the deadline allows; the earlier of the two ends the call."""
    (ended,) = run(
        patched
        + """
@retry(max_retries=1, delay=0, jitter=0)
@timeout(100)
def wait_in_time():
    with gevent.Timeout(remaining(), TimeoutError):
        time.sleep(60)

began = time.perf_counter()
try:
    gevent.spawn(wait_in_time).get()
except TimeoutError as error:
    print(time.perf_counter() - began)
"""
    )

    assert 0.15 < float(ended) < 30


def test_delays_between_attempts_let_other_greenlets_run(patched: str) -> None:
    """Two calls wait for their next attempts side by side, and the hub goes on."""
    (results, seen, seconds) = run(
        patched
        + """
began = time.perf_counter()
greenlets = [gevent.spawn(flaky, [1, 2, 3]) for _ in range(10)]
gevent.joinall(greenlets)
print(*{one.value for one in greenlets})
print(len(ticks))
print(time.perf_counter() - began)
"""
    )

    assert results == "done"
    assert int(seen) > 10
    assert float(seconds) < 10 * 0.6


def test_a_sleep_lets_other_greenlets_run_and_ends_at_the_deadline(patched: str) -> None:
    """``faulttolerance.sleep`` is interrupted in greenlets, too; each has its own deadlines."""
    lines = run(
        patched
        + """
@timeout(200)
def rest(seconds):
    faulttolerance.sleep(seconds)

began = time.perf_counter()
greenlets = [gevent.spawn(outcome, rest, 60) for _ in range(5)]
gevent.joinall(greenlets)
assert len(ticks) > 3, ticks
print(*{re for one in greenlets for re in [one.value.partition("; it was not interrupted:")[1]]})
print(outcome(rest, 60).partition("; it was not interrupted:")[1])
assert time.perf_counter() - began < 30
"""
    )

    assert lines == ["", ""]


def test_offloaded_calls_are_made_and_waited_for_by_greenlets(patched: str) -> None:
    """Their bodies are greenlets, as all threads of ``threading`` are; the bulkhead makes them wait."""
    lines = run(
        patched
        + """
print([offloaded(number).result(30) for number in range(3)])
futures = [offloaded(number) for number in range(20)]
print([future.result(30) for future in futures] == list(range(20)), len(ticks) > 3)
greenlets = [gevent.spawn(lambda n: offloaded(n, [1]).result(30), number) for number in range(20)]
gevent.joinall(greenlets)
print([one.value for one in greenlets] == list(range(20)))
print(offloaded(1, [1, 2, 3]).exception(30))
"""
    )

    assert lines == ["[0, 1, 2]", "True True", "True", "2"]


def test_nobody_waits_for_an_offloaded_body_beyond_its_deadline(patched: str) -> None:
    """The caller goes on; the body is interrupted where it waits, and the next call is served at once."""
    lines = run(
        patched
        + """
@asynchronous
@timeout(500)
@bulkhead(1, waiting_task_queue=1)
def stubborn(seconds):
    time.sleep(seconds)
    return completed_future("ended")

began = time.perf_counter()
print(type(stubborn(20).exception()).__name__, time.perf_counter() - began < 10)
print(stubborn(0).result())
"""
    )

    assert lines == ["TimeoutException True", "ended"]


def test_cancelling_a_call_wakes_its_body(patched: str) -> None:
    """It ends a sleep of the library in any greenlet."""
    lines = run(
        patched
        + """
woken = []

@asynchronous
def rest(sleep=faulttolerance.sleep):
    try:
        sleep(60)
    except BaseException as error:
        woken.append(type(error).__name__)
        raise

for sleep in (faulttolerance.sleep, time.sleep):
    future = rest(sleep)
    time.sleep(0.1)
    print(future.cancel(), future.cancelled())
    time.sleep(0.1)
print(woken)
"""
    )

    assert lines == ["True True", "True True", "['Interrupted', 'Interrupted']"]


def test_an_awaitable_is_awaited_for_a_caller_that_is_a_greenlet(patched: str) -> None:
    """The library's own loop runs beside the hub, and its end is no end of a thread, for which all would wait."""
    lines = run(
        patched
        + """
import asyncio
from collections.abc import Awaitable
from faulttolerance._platform.unpatched import native

@asynchronous
@timeout(5000)
def ask(number) -> Awaitable[int]:
    async def answer():
        await asyncio.sleep(0.05)
        return number
    return answer()

greenlets = [gevent.spawn(lambda n: ask(n).result(30), number) for number in range(3)]
gevent.joinall(greenlets)
native.sleep = None
print([one.value for one in greenlets], len(ticks) > 2, shutdown())
"""
    )

    assert lines == ["[0, 1, 2] True True"]


def test_greenlets_wait_for_permits_and_turns_side_by_side(patched: str) -> None:
    """Rule S4: up to ``max_wait``, while others run; a killed or interrupted greenlet leaves its place to the next."""
    lines = run(
        patched
        + """
@bulkhead(1, waiting_task_queue=10, max_wait=20_000)
def permit(seconds):
    time.sleep(seconds)
    return "permit"

@rate_limit(1, window=0.2, max_wait=20_000)
def turn(seconds):
    return "turn"

@timeout(100)
def impatient(function):
    return function(0.05)

for function in (permit, turn):
    del ticks[:]
    greenlets = [gevent.spawn(outcome, function, 0.2) for _ in range(4)]
    gevent.sleep(0.05)
    greenlets[2].kill()
    if function is permit:
        print(outcome(impatient, function).partition(":")[0])
    gevent.joinall(greenlets, timeout=30)
    assert len(ticks) > 10, ticks
    print(*(one.value for one in greenlets), function(0))

pool = gevent.get_hub().threadpool
made = [pool.spawn(outcome, permit, 0.02) for _ in range(3)] + [gevent.spawn(outcome, permit, 0.02) for _ in range(3)]
print(*{one.get(timeout=30) for one in made})
"""
    )

    assert lines == ["TimeoutException", "permit permit  permit permit", "turn turn  turn turn", "permit"]


def test_a_greenlet_that_is_killed_releases_its_permits(patched: str) -> None:
    """``GreenletExit`` and ``gevent.Timeout`` are control flow: no attempt follows, and no permit is lost."""
    lines = run(
        patched
        + """
attempts = []

@retry(max_retries=3, delay=0, jitter=0)
@circuit_breaker(request_volume_threshold=2)
@timeout(60_000)
@bulkhead(1)
def hold():
    attempts.append(1)
    time.sleep(60)

for _ in range(3):
    killed = gevent.spawn(hold)
    time.sleep(0.02)
    killed.kill()
    with gevent.Timeout(0.02, False):
        hold()
print(len(attempts), remaining())
"""
    )

    assert lines == ["6 None"]


def test_greenlets_of_one_thread_have_deadlines_of_their_own(patched: str) -> None:
    """A deadline of a greenlet does not rule another that runs meanwhile, in whatever order they end."""
    lines = run(
        patched
        + """
def within(milliseconds, seconds, found):
    @timeout(milliseconds)
    def look():
        found.append(remaining())
        time.sleep(seconds)
        with uninterruptible():
            time.sleep(0.001)
        found.append(remaining())
    look()
    found.append(remaining())

short, long = [], []
greenlets = [gevent.spawn(within, 10_000, 0.1, short), gevent.spawn(within, 90_000, 0.05, long)]
time.sleep(0.02)
print(remaining())
gevent.joinall(greenlets, raise_error=True)
print(all(5 < one < 10 for one in short[:2]), all(80 < one < 90 for one in long[:2]), short[2], long[2])
"""
    )

    assert lines == ["None", "True True None None"]


def test_calls_from_real_threads_are_guarded_as_always(patched: str) -> None:
    """In threads of gevent's pool, each task is a greenlet; other code may start threads beside it."""
    lines = run(
        patched
        + """
pool = gevent.get_hub().threadpool
print(pool.apply(outcome, (wait, 0.2)).rpartition("; ")[2])
print(pool.apply(lambda: offloaded(7).result(30)))
print(pool.apply(flaky, ([1, 2],)))
print(len(ticks) > 3)

found = []
start = gevent.monkey.get_original("_thread", "start_new_thread")
start(lambda: found.append(outcome(compute, 30).partition("; it was not interrupted:")[1]), ())
while not found:
    gevent.sleep(0.01)
print(found)
"""
    )

    assert lines == ["it was not interrupted: it ran in a greenlet", "7", "done", "True", "['']"]


def test_code_of_gevent_itself_is_never_interrupted() -> None:
    """Its locks are Python code, as those of ``threading`` are.

    From 3.13 on, an exception sent to a thread before a call may arrive at the beginning of the callee.
    """
    lines = run(
        PATCH
        + PREAMBLE
        + """
import dis, gevent.thread

@timeout(10)
def loop():
    while True:
        gevent.thread.get_ident()

struck = set()
for _ in range(20):
    try:
        loop()
    except TimeoutException as error:
        trace = error.__cause__.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            has_begun = dis.opname[code.co_code[trace.tb_lasti]] != "RESUME"
            if has_begun:
                struck.add(trace.tb_frame.f_globals["__name__"].partition(".")[0])
            trace = trace.tb_next
print(sorted(struck))
"""
    )

    assert lines == ["['__main__', 'faulttolerance']"]


def test_threads_may_be_left_as_they_are() -> None:
    """With ``patch_all(thread=False)`` delays let other greenlets run, and offloaded calls have real threads."""
    for beginning in (
        PATCH.replace("patch_all()", "patch_all(thread=False)") + PREAMBLE,
        PREAMBLE + PATCH.replace("patch_all()", "patch_all(thread=False)"),
    ):
        lines = run(
            beginning
            + WITNESS
            + """
greenlets = [gevent.spawn(flaky, [1, 2, 3]) for _ in range(10)]
gevent.joinall(greenlets)
print(*{one.value for one in greenlets}, len(ticks) > 10)
print(sorted(offloaded(number, [1]).result(30) for number in range(10)) == list(range(10)))

@asynchronous
def rest():
    faulttolerance.sleep(60)

future = rest()
gevent.sleep(0.05)
print(future.cancel(), shutdown(20))
print(outcome(compute, 30).partition("; it was not interrupted:")[1] == "")
"""
        )

        assert lines == ["done True", "True", "True True", "True"]


def test_a_program_that_only_imports_gevent_is_interrupted_as_always() -> None:
    """Error reporters import it where it is installed; no code runs in greenlets then."""
    lines = run(
        "import logging, sys\nlogging.basicConfig(stream=sys.stdout)\n"
        + PREAMBLE
        + """
import gevent, threading
print(outcome(compute, 30).partition("; it was not interrupted: ")[2])
print(outcome(wait, 30).partition("; it was not interrupted: ")[2])
thread = threading.Thread(target=lambda: print(outcome(compute, 30).partition("; it was not interrupted: ")[2]))
thread.start()
thread.join()
"""
    )

    # A busy machine may end a call late, which is logged.
    assert [line for line in lines if "after its deadline" not in line] == ["", "", ""]


def test_a_deadline_of_one_greenlet_never_strikes_another() -> None:
    """The main greenlet waits while another one computes on its thread, under a guard of its own."""
    for thread in ("run()", "import threading; one = threading.Thread(target=run); one.start(); one.join()"):
        lines = run(
            PREAMBLE
            + """
import greenlet

@timeout(60_000)
def other():
    end = time.thread_time() + 0.5  # on a machine that stands still, nobody would look at the greenlet meanwhile
    while time.thread_time() < end:
        pass
    return "undisturbed"

@timeout(100)
def first():
    global found
    found = greenlet.greenlet(outcome).switch(other)

def run():
    print(outcome(first).rpartition("; ")[2])
    print(found)

"""
            + thread
        )

        assert lines == ["it was not interrupted: other greenlets ran in its thread", "undisturbed"]


def test_a_handler_that_calls_the_same_waits_for_no_call_below_it() -> None:
    """Rule CO5: greenlets of one thread do wait for one another, and the handler of a signal still does not."""
    lines = run(
        """
import greenlet
from faulttolerance import coalesce
from kit.struck import strikes

@coalesce(key=lambda: 1)
def load():
    return 7

load()
answers = []
for strike in strikes("coalesce/layer.py", "coalesce/strategy.py", handle=lambda: answers.append(load())):
    with strike:
        assert load() == 7
print(len(answers) > 8, set(answers))
""",
        PYTHONPATH=str(Path(__file__).parents[1]),
    )

    assert lines == ["True {7}"]


# Served by gunicorn

APPLICATION = (
    PREAMBLE
    + """
import logging, os
logging.basicConfig()

@retry(max_retries=2, delay=50, jitter=0)
@bulkhead(100)
@timeout(100)
def answer(path, failures):
    if failures:
        raise OSError(failures.pop())
    if path == "/slow":
        time.sleep(0.3)
    return path

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/worker":
        found = str(os.getpid())
    elif path == "/offloaded":
        found = str(offloaded(7).result(30))
    elif path == "/patched":
        import socket
        found = socket.socket.__module__
    else:
        found = outcome(answer, path, [1] if path == "/flaky" else [])
    start_response("200 OK", [("Content-Length", str(len(found.encode())))])
    return [found.encode()]
"""
)
EXPECTED = {
    "/fast": "/fast",
    "/flaky": "/flaky",
    "/offloaded": "7",
    "/slow": "TimeoutException: it ended",
}


@pytest.mark.parametrize("preloaded", [(), ("--preload",)], ids=["each-loads", "preloaded"])
def test_gunicorn_serves_guarded_calls_by_greenlets(preloaded: tuple[str, ...], tmp_path: Path) -> None:
    """The master may load the application, which is then patched after its declarations."""
    needs("gunicorn")
    with gunicorn(APPLICATION, tmp_path, "--worker-class=gevent", "--workers=2", *preloaded) as service:
        assert service.get("/patched").startswith("gevent")

        def ask(path: str) -> bool:
            return service.get(path).startswith(EXPECTED[path])

        with ThreadPoolExecutor(16) as customers:
            served = Counter(zip(paths := [*EXPECTED] * 40, customers.map(ask, paths), strict=True))
        assert served == {(path, True): 40 for path in EXPECTED}

        workers = {service.get("/worker") for _ in range(50)}
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: service.get("/worker") not in workers)
        assert all(map(ask, EXPECTED))
    assert "Traceback" not in service.log
    assert "deadlines do not interrupt a call" not in service.log


def test_a_block_under_a_deadline_ends_in_each_greenlet(patched: str) -> None:
    """They share the object, and each has its own moment (rules D1, S4)."""
    lines = run(
        patched
        + """
import gevent
one = deadline(100)

def block(seconds):
    try:
        with one:
            time.sleep(seconds)
        return "in time"
    except TimeoutException as error:
        return str(error).partition(": ")[2]

jobs = [gevent.spawn(block, seconds) for seconds in (0.01, 5, 0.02, 5)]
gevent.joinall(jobs)
print(sorted(job.value for job in jobs), block(5), remaining())
"""
    )

    late = "deadline of 0.1 s passed"
    assert lines == [f"{[late, late, 'in time', 'in time']} {late} None"]


def test_eventlet_that_has_replaced_threads_is_refused_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4: each call raises while the patch holds."""
    patcher = SimpleNamespace(is_monkey_patched=lambda module: module == "thread")
    guarded = faulttolerance.retry(lambda: "called")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "eventlet.patcher", patcher)
        for _ in range(2):
            with pytest.raises(faulttolerance.FaultToleranceException, match="eventlet has replaced threads"):
                guarded()

    assert guarded() == "called"
