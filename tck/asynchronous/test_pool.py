"""Threads that run calls apart from their callers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from faulttolerance._execution import pool as pool_module
from faulttolerance._execution.pool import Pool
from kit.program import python
from kit.waiting import wait_until

PATIENCE = 20.0
"""Seconds after which something that must happen did not."""


@pytest.fixture
def make() -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def make_pool(max_threads: int | None = None) -> Pool:
        made.append(Pool(max_threads))
        return made[-1]

    yield make_pool
    for pool in made:
        assert pool.shutdown(PATIENCE)


class Gate:
    """A job that tells when it has begun, and ends when it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> None:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.open.wait(PATIENCE)


def run(pool: Pool) -> threading.Thread:
    """Run a job to its end, until its thread is parked again, and return the thread."""
    gate = Gate()
    pool.submit(gate)
    assert gate.begun.wait(PATIENCE)
    gate.open.set()
    wait_until(lambda: rests(pool, gate))
    assert gate.thread is not None
    return gate.thread


def rests(pool: Pool, gate: Gate) -> bool:
    """Return whether the thread of *gate* is parked, or has left the pool."""
    workers = {worker.thread: worker for worker in pool._workers.copy()}
    return gate.thread not in workers or workers[gate.thread] in pool._parked


def test_threads_are_named_daemons(make: Callable[..., Pool]) -> None:
    """A thread of the pool is recognised in a dump, and never delays the interpreter's exit."""
    thread = run(make())

    assert thread.name.startswith("faulttolerance-")
    assert thread.daemon


def test_a_parked_thread_is_used_again(make: Callable[..., Pool]) -> None:
    """A sequence of jobs needs one thread."""
    pool = make()

    assert run(pool) is run(pool)


def test_the_last_thread_parked_is_used_first(make: Callable[..., Pool]) -> None:
    """Superfluous threads come to their end, because the others are preferred."""
    pool = make()
    first, second = Gate(), Gate()
    for gate in (first, second):
        pool.submit(gate)
        assert gate.begun.wait(PATIENCE)
    first.open.set()
    wait_until(lambda: rests(pool, first))
    second.open.set()
    wait_until(lambda: rests(pool, second))

    assert run(pool) is second.thread


def test_every_job_gets_a_thread_without_a_limit(make: Callable[..., Pool]) -> None:
    """Jobs that wait for each other all run."""
    pool = make()
    together = threading.Barrier(21)

    for _ in range(20):
        pool.submit(lambda: together.wait(PATIENCE))

    together.wait(PATIENCE)


def test_jobs_beyond_the_limit_wait_first_in_first_out(make: Callable[..., Pool]) -> None:
    """With a limit, work runs in the order in which it came."""
    pool = make(1)
    gate, ran, done = Gate(), list[int](), threading.Event()
    pool.submit(gate)

    for number in range(10):
        pool.submit(partial(ran.append, number))
    pool.submit(done.set)

    assert gate.begun.wait(PATIENCE)
    assert not ran
    gate.open.set()
    assert done.wait(PATIENCE)
    assert ran == list(range(10))
    assert not pool.is_crowded


def test_an_urgent_job_does_not_wait_for_a_thread(make: Callable[..., Pool]) -> None:
    """A job that frees a caller at its deadline must not stand behind the late body."""
    pool = make(1)
    gate, freed = Gate(), threading.Event()
    pool.submit(gate)

    pool.submit(freed.set, urgent=True)

    assert freed.wait(PATIENCE)
    gate.open.set()
    wait_until(lambda: not pool.is_crowded)


def test_urgent_jobs_that_come_together_share_a_thread(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a thread starts for one of them, no other thread does: hundreds of calls may end their delays at once."""
    pool = make(1)
    gate, started, done = Gate(), list[threading.Thread](), list[int]()
    pool.submit(gate)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda thread: started.append(thread))
        for number in range(100):
            pool.submit(partial(done.append, number), urgent=True)
    assert len(started) == 1
    started[0].start()

    wait_until(lambda: len(done) == 100)
    gate.open.set()


def test_a_raised_limit_starts_waiting_jobs(make: Callable[..., Pool]) -> None:
    """A new limit holds at once."""
    pool = make(1)
    first, second, third = Gate(), Gate(), Gate()
    for gate in (first, second, third):
        pool.submit(gate)
    assert first.begun.wait(PATIENCE)

    pool.configure(3)

    assert second.begun.wait(PATIENCE)
    assert third.begun.wait(PATIENCE)
    for gate in (first, second, third):
        gate.open.set()


def test_a_lowered_limit_ends_threads(make: Callable[..., Pool]) -> None:
    """Threads beyond a new limit end when they have no job."""
    pool = make()
    gates = [Gate() for _ in range(4)]
    for gate in gates:
        pool.submit(gate)
        assert gate.begun.wait(PATIENCE)
    gates[0].open.set()
    wait_until(lambda: rests(pool, gates[0]))

    pool.configure(1)

    for gate in gates:
        gate.open.set()
    wait_until(lambda: not pool.is_crowded)


def test_a_thread_ends_after_having_nothing_to_do(make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool shrinks by itself."""
    monkeypatch.setattr(pool_module, "_IDLE_SECONDS", 0.01)
    pool = make()

    thread = run(pool)

    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_job_that_raises_is_reported_and_costs_no_thread(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in one job does not reach the next one."""
    pool = make()
    reported: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    gate = Gate()
    pool.submit(lambda: (gate(), 1 // 0))
    gate.open.set()
    wait_until(lambda: bool(reported))
    wait_until(lambda: rests(pool, gate))

    assert run(pool) is gate.thread
    assert reported == [ZeroDivisionError]


def test_work_waits_for_other_threads_where_none_can_be_started(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The existing threads run the jobs where the system refuses another thread."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = make()
    gate, done = Gate(), threading.Event()
    pool.submit(gate)
    assert gate.begun.wait(PATIENCE)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    pool.submit(done.set)

    assert not done.is_set()
    gate.open.set()
    assert done.wait(PATIENCE)


def test_submitting_fails_where_no_thread_can_be_started_at_all(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job would never run, and its submitter learns that."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = make(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)

        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(print)

    assert run(pool)  # the thread that did not start takes nobody's place


def test_shutdown_waits_for_work_and_ends_the_threads(make: Callable[..., Pool]) -> None:
    """The result tells in time whether all threads have ended."""
    pool = make()
    gate = Gate()
    idle = run(pool)
    pool.submit(gate)
    assert gate.begun.wait(PATIENCE)

    in_time = pool.shutdown(0.01)

    gate.open.set()
    assert not in_time
    assert pool.shutdown(PATIENCE)
    assert not idle.is_alive()
    assert gate.thread is not None
    assert not gate.thread.is_alive()


def test_shutdown_waits_for_calls_that_hold_no_thread(make: Callable[..., Pool]) -> None:
    """A call between two attempts is under way, and its remaining work is done."""
    pool = make()
    ran = threading.Event()
    assert pool.register("call")

    assert not pool.shutdown(0.01)
    pool.submit(ran.set)
    assert ran.wait(PATIENCE)
    pool.unregister("call")

    assert pool.shutdown(PATIENCE)


def test_a_pool_refuses_calls_while_it_is_shut_down_and_is_open_afterwards(make: Callable[..., Pool]) -> None:
    """It takes no call for which a shutdown would not wait; each of several at once waits for all calls under way."""
    pool = make()
    assert pool.register("under way")
    ended: list[bool] = []
    waiting = [threading.Thread(target=lambda: ended.append(pool.shutdown(PATIENCE))) for _ in range(2)]
    for one in waiting:
        one.start()
    wait_until(lambda: len(pool._shutdowns) == 2)

    refused = not pool.register("late")
    pool.unregister("under way")
    for one in waiting:
        one.join()

    assert refused
    assert ended == [True, True]
    assert pool.register("next life")
    pool.unregister("next life")
    thread = run(pool)
    assert pool.shutdown(PATIENCE)
    assert not thread.is_alive()


def test_shutdown_refuses_to_wait_for_its_own_thread(make: Callable[..., Pool]) -> None:
    """The wait would never end."""
    pool = make()
    raised: list[str] = []
    done = threading.Event()

    def shut_down() -> None:
        try:
            pool.shutdown()
        except RuntimeError as error:
            raised.append(str(error))
        done.set()

    pool.submit(shut_down)

    assert done.wait(PATIENCE)
    assert raised == ["faulttolerance.shutdown() was called by one of the threads for which it waits"]


def test_a_hung_job_does_not_hold_the_interpreter() -> None:
    """A program ends when its main thread does."""
    ended = python(
        """
import threading
from faulttolerance._execution.pool import pool

begun = threading.Event()
pool.submit(lambda: (begun.set(), threading.Event().wait()))
begun.wait()
print("last line")
"""
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "last line\n", "")


def test_work_at_exit_runs_or_is_refused() -> None:
    """At the end of the interpreter, an existing thread runs a job, or it is refused; no job is lost."""
    ended = python(
        """
import atexit, threading
from faulttolerance._execution.pool import pool

def at_exit():
    done = threading.Event()
    try:
        pool.submit(done.set)
    except RuntimeError:
        print("refused")
    else:
        print("done" if done.wait(10) else "lost")

atexit.register(at_exit)
"""
    )

    assert ended.stdout.strip() in ("done", "refused"), ended.stderr
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform does not fork")
def test_a_fork_finds_no_idle_thread_and_the_child_begins_anew() -> None:
    """Python does not warn about threads, and the child runs jobs as any process does."""
    ended = python(
        """
import os, threading, time
from faulttolerance._execution.thread import pool

def work():
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(10)

work()
while not pool._parked:
    time.sleep(0.001)
child = os.fork()
if not child:
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)
_, status = os.waitpid(child, 0)
assert not status, status
work()
""",
        "-W",
        "error",
    )

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform does not fork")
def test_a_child_forked_by_a_job_keeps_that_thread_and_no_queue() -> None:
    """Jobs that wait for threads of the parent run once."""
    ended = python(
        """
import os, threading, warnings
from faulttolerance._execution.pool import pool

warnings.simplefilter("ignore")
pool.configure(1)
ran, statuses, done = [], [], threading.Event()

def fork():
    pool.submit(lambda: (ran.append(os.getpid()), done.set()))
    child = os.fork()
    if not child:
        try:
            pool.shutdown(0)
        except RuntimeError:  # which would wait for this thread, since it is one of the pool's
            pool.configure(2)
            later = threading.Event()
            pool.submit(later.set)
            os._exit(0 if later.wait(10) and not ran else 1)
        os._exit(1)
    statuses.append(os.waitpid(child, 0)[1])

pool.submit(fork)
assert done.wait(10)
assert (ran, statuses) == ([os.getpid()], [0]), (ran, statuses)
"""
    )

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("limit", [1, 3, None])
def test_no_job_is_lost_or_done_twice(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """Many submit while threads park, end for want of work, and start.

    Without the second look at the queue, a job that comes while the only thread ends would wait for ever.
    """
    monkeypatch.setattr(pool_module, "_IDLE_SECONDS", 0.0001)
    pool = make(limit)
    each, ran, go = 400, list[tuple[int, int]](), threading.Barrier(4)

    def submit(who: int) -> None:
        go.wait(PATIENCE)
        for number in range(each):
            pool.submit(partial(ran.append, (who, number)))
            if number % 7 == 0:
                done = threading.Event()
                pool.submit(done.set)
                assert done.wait(PATIENCE)

    threads = [threading.Thread(target=submit, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    wait_until(lambda: len(ran) >= 4 * each)
    assert sorted(ran) == [(who, number) for who in range(4) for number in range(each)]
    assert not pool.is_crowded


def test_a_job_does_not_wait_for_an_urgent_one_that_was_submitted_just_before(make: Callable[..., Pool]) -> None:
    """A retry that is due is independent of the call for which a thread was woken last."""
    for _ in range(20):
        pool = make()
        run(pool)
        run(pool)  # on the thread that is parked now
        long, done = Gate(), threading.Event()

        pool.submit(long, urgent=True)
        pool.submit(done.set)

        assert done.wait(PATIENCE)
        long.open.set()


def test_a_thread_does_not_keep_the_context_of_the_call_that_started_it() -> None:
    """Free-threaded builds of Python and an option let threads inherit it, with a request and its deadline."""
    result = python(
        """
        from contextvars import ContextVar
        from threading import Event
        from faulttolerance._execution.pool import pool

        request, seen, done = ContextVar("request"), [], Event()
        request.set("served")
        pool.submit(lambda: (seen.append(request.get("none")), done.set()))
        done.wait(20)
        print(*seen)
        """,
        "-X",
        "thread_inherit_context=1",
    )

    assert result.stdout == "none\n"
