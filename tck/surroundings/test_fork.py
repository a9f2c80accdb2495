"""Rule L5: the effects of a fork in the parent and in the child, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kit.program import LIBRARY, QUIET, python

pytestmark = [pytest.mark.outside, pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")]

PREAMBLE = """
import asyncio, os, sys, threading, time
from faulttolerance import (
    BulkheadException, CircuitBreakerOpenException, Future, TimeoutException, asynchronous, bulkhead,
    circuit_breaker, circuit_breakers, completed_future, guards, rate_limit, remaining, retry,
    shutdown, sleep, timeout,
)
from faulttolerance import guards as all_guards

def child(work):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + 20
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return "hangs"
        time.sleep(0.005)
"""


def run(program: str) -> None:
    """Run *program* with warnings as errors; it succeeds silently."""
    imports = f"{LIBRARY}; import asyncio"
    done = python(QUIET + PREAMBLE + textwrap.dedent(program), "-W", "error", seconds=50, after=imports)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_thread_of_the_library_makes_a_fork_warn() -> None:
    """L5: the watchdog, idle threads of the pool and the library's loop have stopped; both sides start them anew."""
    run("""
        import warnings

        @timeout(100)
        def slow():
            sleep(30)

        @asynchronous
        @timeout(10_000)
        def offloaded() -> Future[str]:
            return completed_future("served")

        @asynchronous
        def on_the_loop() -> "Awaitable[int]":
            async def inner():
                return 5
            return inner()

        def use():
            try:
                slow()
            except TimeoutException:
                pass
            else:
                raise AssertionError("was not interrupted")
            assert offloaded().result(10) == "served"
            assert on_the_loop().result(10) == 5
            assert asyncio.run(offloaded_from_a_loop()) == "served"

        async def offloaded_from_a_loop():
            return await offloaded()

        use()
        with warnings.catch_warnings(record=True) as warned:  # before Python 3.15, -W error drops this warning
            warnings.simplefilter("always")
            for _ in range(3):
                assert child(use) == 0
                use()
        assert not warned, warned[0].message
    """)


def test_a_fork_waits_for_a_thread_that_has_just_ended_its_call() -> None:
    """L5: who has the result of a call may fork at once, before the thread of the pool, or the loop, has no work."""
    run("""
        import warnings
        from faulttolerance._execution import thread
        warnings.simplefilter("always")

        @asynchronous
        def offloaded() -> Future[str]:
            return completed_future("served")

        @asynchronous
        def on_the_loop() -> "Awaitable[str]":
            async def inner():
                return "served"
            return inner()

        thread._LOOKS = 20_000  # a moment may be long on a busy machine
        pool = thread.pool
        submit = pool.submit

        def submit_and_pause(*job, **options):
            submit(*job, **options)
            time.sleep(0.002)  # the loop goes on behind the thread to which it passed the call

        pool.submit = submit_and_pause
        for call in (offloaded, on_the_loop) * 10:
            future = call()
            future.add_done_callback(lambda _: time.sleep(0.002))
            assert future.result(10) == "served"
            assert child(lambda: None) == 0
    """)


def test_a_fork_in_a_body_or_beside_one_does_not_wait_for_its_thread() -> None:
    """L5: that thread is there at the fork in any case."""
    run("""
        import warnings
        from faulttolerance._execution import thread

        @asynchronous
        def forks() -> Future[int]:
            return completed_future(child(lambda: None))

        @asynchronous
        def waits() -> Future[bool]:
            begun.set()
            return completed_future(go.wait(30))

        warnings.simplefilter("ignore", DeprecationWarning)
        thread._LOOKS = 20_000
        begun, go = threading.Event(), threading.Event()
        assert forks().result(10) == 0
        waiting = waits()
        assert begun.wait(10)
        start = time.monotonic()
        assert child(lambda: None) == 0
        assert time.monotonic() - start < 10
        go.set()
        assert waiting.result(10)
    """)


def test_permits_of_other_threads_are_free_in_the_child() -> None:
    """L5: so are places in the queue and probes of threads that do not exist there."""
    run("""
        go = threading.Event()

        class Client:
            @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0, delay=2000)  # a probe keeps its place
            @bulkhead(1)
            def service(self, failing=False, wait=None):
                if failing:
                    raise OSError
                if wait is not None:
                    entered.set()
                    wait.wait(20)
                return "served"

        client = Client()
        try:
            client.service(True)
        except OSError:
            pass
        time.sleep(2.05)
        entered = threading.Event()
        probe = threading.Thread(target=client.service, args=(False, go), daemon=True)
        probe.start()
        entered.wait(10)
        name = "__main__.Client.service"
        assert circuit_breakers.state(name) == "half-open"

        def in_child():
            assert client.service() == "served"
            assert circuit_breakers.state(name) == "closed"

        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the application's own thread lives
            assert child(in_child) == 0
        try:
            client.service()
        except (BulkheadException, CircuitBreakerOpenException):
            pass
        else:
            raise AssertionError("the parent lost its probe")
        go.set()
        probe.join()
        assert circuit_breakers.state(name) == "closed"
    """)


def test_forking_thread_keeps_its_permits_and_its_deadline() -> None:
    """L5: a call that forks stays guarded on both sides."""
    run("""
        class Client:
            @timeout(300)
            @bulkhead(1)
            def service(self, inner=None):
                return inner() if inner else "served"

        client = Client()

        def fork_inside():
            def in_child():
                assert remaining() is not None
                try:
                    client.service()
                except BulkheadException:
                    pass
                else:
                    raise AssertionError("the forking call holds no permit")
                sleep(30)

            pid = os.fork()
            if pid == 0:
                in_child()
                os._exit(3)
            waited, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)

        parent = os.getpid()
        began = time.monotonic()
        try:
            status = client.service(fork_inside)
        except TimeoutException:
            if os.getpid() != parent:
                os._exit(7 if client.service() == "served" else 8)
            status = 7  # the parent's own deadline passed while it waited for the child
        if os.getpid() != parent:
            os._exit(9)
        assert status == 7, status
        assert time.monotonic() - began < 10
        assert client.service() == "served"
    """)


def test_counts_start_at_zero_in_the_child() -> None:
    """L5: counts of the parent stay with the parent."""
    run("""
        @retry(max_retries=0)
        def service():
            return 1

        def total():
            (mine,) = [one for one in all_guards() if one.method is service]
            return sum(count for (metric, tags), count in mine.counts.items() if metric == "ft.invocations.total")

        for _ in range(5):
            service()

        def in_child():
            assert total() == 0, total()
            service()
            assert total() == 1, total()

        assert child(in_child) == 0
        assert total() == 5
    """)


def test_locks_that_another_thread_held_are_new_in_the_child() -> None:
    """L5: threads that are inside the library's locks at the moment of the fork leave none of them held."""
    run("""
        import warnings
        warnings.simplefilter("ignore")
        stop = threading.Event()

        class Client:
            @retry(max_retries=2, delay=0, jitter=0)
            @circuit_breaker(request_volume_threshold=4, delay="1ms")
            @rate_limit(1_000_000, window=1)
            @timeout(1000)
            @bulkhead(2)
            def service(self):
                raise OSError

        client = Client()

        def load():
            while not stop.is_set():
                try:
                    client.service()
                except Exception:
                    pass

        threads = [threading.Thread(target=load, daemon=True) for _ in range(4)]
        for one in threads:
            one.start()

        def in_child():
            for _ in range(20):
                try:
                    client.service()
                except Exception:
                    pass
            circuit_breakers.reset_all()
            try:
                client.service()
            except OSError:
                pass

        outcomes = [child(in_child) for _ in range(10)]
        stop.set()
        for one in threads:
            one.join()
        assert outcomes == [0] * 10, outcomes
    """)


def test_a_fork_waits_for_the_module_that_the_first_time_out_imports() -> None:
    """L5: a module that another thread imports at the fork would stay locked in the child."""
    run("""
        import importlib.abc

        name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
        sys.modules.pop(name, None)
        importing = threading.Event()

        class Slow(importlib.abc.MetaPathFinder):
            def find_spec(self, module, path=None, target=None):
                if module == name:
                    importing.set()
                    time.sleep(0.5)

        sys.meta_path.insert(0, Slow())

        @timeout(1000)
        def service():
            return 1

        other = threading.Thread(target=service)
        other.start()
        assert importing.wait(10)
        assert child(service) == 0
        other.join()
    """)


def test_a_lock_of_an_empty_table_that_another_thread_held_is_new_in_the_child() -> None:
    """L5: of keys that have no partition yet, and of calls that share a result and are over meanwhile."""
    run("""
        import warnings
        from faulttolerance import coalesce, partition_by
        from faulttolerance._extensions.coalesce.strategy import Flights
        from faulttolerance._extensions.partition_by import strategy

        warnings.simplefilter("ignore", DeprecationWarning)  # the application's own threads live
        inside, go = threading.Event(), threading.Event()
        create = strategy.Partition.__init__

        def create_late(self, strategies, *of_key):
            if of_key:
                inside.set()
                go.wait(30)
            create(self, strategies, *of_key)

        @partition_by("key")
        @circuit_breaker
        def divided(key):
            return key

        strategy.Partition.__init__ = create_late
        threading.Thread(target=divided, args=("a",), daemon=True).start()
        assert inside.wait(20)
        assert child(lambda: go.set() or divided("b")) == 0
        go.set()

        class Key:
            __hash__ = lambda self: 1

            def __eq__(self, other):
                if threading.current_thread().name == "follower":
                    comparisons.append(self)
                    if len(comparisons) == 2:  # the first is made without the lock
                        compared.set()
                        end.wait(30)
                return True

        comparisons = []
        compared, end, is_led, lead_on = (threading.Event() for _ in range(4))

        @coalesce("key")
        def shared(key):
            is_led.set()
            lead_on.wait(30)
            return "result"

        def call(name="leader"):
            thread = threading.Thread(target=shared, args=(Key(),), name=name, daemon=True)
            thread.start()
            return thread

        leader = call()
        assert is_led.wait(20)
        call("follower")
        assert compared.wait(20)
        lead_on.set()
        leader.join(20)
        assert not Flights._lock.acquire(blocking=False)

        def share():
            is_led.clear(), lead_on.clear()
            call()
            assert is_led.wait(20)
            threading.Timer(0.2, lead_on.set).start()
            shared(Key())

        assert child(share) == 0
        end.set()
    """)


def test_fork_amidst_the_first_call_of_another_thread_locks_no_module_in_the_child() -> None:
    """L5: the modules of a first call are imported at the moment of the fork, or their import has not begun."""
    run("""
        import warnings

        warnings.simplefilter("ignore", DeprecationWarning)  # the application's own threads live
        entered = threading.Event()

        class Slow:
            def find_spec(self, name, path, target=None):
                if name == "faulttolerance._call.syntax_tree":
                    entered.set()
                    time.sleep(0.3)

        sys.meta_path.insert(0, Slow())

        @retry
        def one():
            pass

        @timeout(1000)
        def another():
            pass

        first = threading.Thread(target=one)
        first.start()
        entered.wait()
        outcome = child(another)
        first.join()
        assert outcome == 0, outcome
    """)


def test_hung_call_never_holds_the_exit() -> None:
    """R7c: neither does a call on a thread, nor an awaitable on the library's loop, nor the watchdog."""
    run("""
        began = time.monotonic()

        @asynchronous
        @timeout(100)
        @retry(max_retries=-1)
        def hung() -> Future[None]:
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    pass

        @asynchronous
        def hung_awaitable() -> "Awaitable[None]":
            async def inner():
                await asyncio.sleep(60)
            return inner()

        futures = [hung(), hung_awaitable()]
        time.sleep(0.3)
        assert time.monotonic() - began < 10
    """)


def test_shutdown_drains_and_the_next_call_opens_the_pool_again() -> None:
    """R7c: calls under way end, retries included; the next life of the application begins as the first one did."""
    run("""
        attempts = []

        @asynchronous
        @retry(max_retries=2, delay=50, jitter=0)
        def service() -> Future[str]:
            attempts.append(threading.current_thread().name)
            if len(attempts) < 3:
                raise OSError
            return completed_future("served")

        for life in range(3):
            attempts.clear()
            future = service()
            assert shutdown(10)
            assert future.done() and future.result() == "served"
            assert all(name.startswith("faulttolerance-") for name in attempts), attempts
        assert not [one for one in threading.enumerate() if one.name.startswith("faulttolerance-") and one.is_alive()
                    and "watchdog" not in one.name]
    """)


PROGRAM = """
import os, sys
from faulttolerance import retry
assert "logging" not in sys.modules
@retry
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(fork())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_first_fork_of_a_program_that_does_not_log_is_quiet(tmp_path: Path) -> None:
    """No module is imported between two halves of a fork, of whose hooks only half would run (rule L5)."""
    program = tmp_path / "forks.py"
    program.write_text(PROGRAM)

    found = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=30)

    assert (found.stdout, found.stderr) == ("0\n", "")
