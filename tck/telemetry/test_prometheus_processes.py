"""Prometheus with several worker processes, which share one scrape by the files of ``PROMETHEUS_MULTIPROC_DIR``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from kit.surroundings import Service, gunicorn as serving
from kit.waiting import wait_until

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.outside

WORKER = """
import sys, time
from prometheus_client import Counter
from faulttolerance import bulkhead, circuit_breaker, retry
Counter("served", "a metric of the application's own").inc()
@retry(max_retries=1, jitter=0)
@circuit_breaker(failure_ratio=1.0)
@bulkhead(2)
def charge(fails):
    if fails: raise ValueError
for number in range(int(sys.argv[1])):
    try: charge(number % 2)
    except ValueError: pass
"""
HEDGING = """
import asyncio, sys
import prometheus_client
from faulttolerance import hedge
@hedge(delay=int(sys.argv[1]))
async def ask(): return 1
asyncio.run(ask())
"""
ENDS = "\nprint('ended', flush=True)\n"
IS_KILLED = "\nprint('working', flush=True)\ntime.sleep(60)\n"


def start(folder: Path, program: str, calls: int, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, str(calls), *more],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def scraped(folder: Path) -> dict[str, float]:
    """Return the values of a scrape that adds up all workers, each series once."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))
    return each_once(registry.collect())


def each_once(families: Iterable[Metric]) -> dict[str, float]:
    """Return the value of each series, none of which is there twice."""
    found: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            tags = ",".join(value for label, value in sorted(sample.labels.items()) if label != "method")
            series = f"{sample.name}{{{tags}}}"
            assert series not in found, f"{series} is there twice"
            found[series] = sample.value
    return found


def end(worker: subprocess.Popen[str]) -> None:
    with worker:
        assert worker.wait(30) == 0


def test_counts_of_all_workers_add_up(tmp_path: Path) -> None:
    """Counters, histograms and times in states are sums; a second generation of workers continues the first one's."""
    for calls in ([10, 20], [30]):
        for worker in [start(tmp_path, WORKER + ENDS, one) for one in calls]:
            end(worker)

    shown = scraped(tmp_path)
    assert shown["served_total{}"] == 3
    assert shown["ft_invocations_total{notDefined,valueReturned}"] == 30
    assert shown["ft_invocations_total{notDefined,exceptionThrown}"] == 30
    assert shown["ft_retry_retries_total{}"] == 30
    assert shown["ft_retry_calls_total{true,maxRetriesReached}"] == 30
    assert shown["ft_retry_calls_total{true,valueReturned}"] == 0
    assert shown["ft_bulkhead_runningDuration_seconds_count{}"] == 90
    assert shown["ft_bulkhead_runningDuration_seconds_bucket{+Inf}"] == 90
    assert shown["ft_bulkhead_executionsRunning{}"] == 0
    assert shown["ft_circuitbreaker_state_total{closed}"] > 0


def test_the_highest_of_the_levels_of_workers_is_shown(tmp_path: Path) -> None:
    """The levels are no amounts: two workers that hedge after 0.1 and 0.3 s do not hedge after 0.4 s."""
    for worker in [start(tmp_path, HEDGING, delay) for delay in (100, 300)]:
        end(worker)

    assert scraped(tmp_path)["ft_hedge_delay_seconds{}"] == 0.3


SHARING = """
import sys
import prometheus_client
from faulttolerance import configure, fleet_wide, rate_limit
from faulttolerance.testing import MemoryFleet
@fleet_wide
@rate_limit(10)
def ask(): ...
fleet = MemoryFleet(namespace="shop")
configure(fleet=fleet)
if sys.argv[1] == "1":
    fleet.lose()
ask()
"""


def test_a_worker_that_decides_alone_shows_for_all(tmp_path: Path) -> None:
    """The least of the levels is shown; a worker that has left its fleet does not count."""
    for program, shown in ((SHARING + "configure(fleet=None)", 1), (SHARING, 0)):
        for worker in [start(tmp_path, program, alone) for alone in (0, 1, 0)]:
            end(worker)

        assert scraped(tmp_path)["ft_fleet_up{shop}"] == shown


def test_killed_worker_loses_a_second_at_most(tmp_path: Path) -> None:
    """Counts are written while it works, and not only at its end."""
    worker = start(tmp_path, WORKER + IS_KILLED, 10)
    with worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "working\n"
        for _ in range(100):
            if scraped(tmp_path).get("ft_invocations_total{notDefined,valueReturned}") == 5:
                break
            with pytest.raises(subprocess.TimeoutExpired):
                worker.wait(0.1)
        worker.kill()

    shown = scraped(tmp_path)
    assert shown["ft_invocations_total{notDefined,valueReturned}"] == 5
    assert shown["ft_bulkhead_runningDuration_seconds_count{}"] == 15


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this platform")
@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_workers_forked_from_a_process_that_counted_add_their_own_calls_only(tmp_path: Path, how: str) -> None:
    """As under ``gunicorn --preload``, calls of the master count for the master alone."""
    fork = """
import os
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        charge(0)
        sys.exit()
    children.append(pid)
for pid in children: assert os.waitpid(pid, 0)[1] == 0
"""
    processes = """
import multiprocessing
context = multiprocessing.get_context("fork")
children = [context.Process(target=charge, args=(0,)) for _ in range(2)]
for child in children: child.start()
for child in children: child.join(); assert child.exitcode == 0
"""
    end(start(tmp_path, WORKER + (fork if how == "os.fork" else processes), 4))

    shown = scraped(tmp_path)
    assert shown["ft_invocations_total{notDefined,valueReturned}"] == 4
    assert shown["ft_retry_retries_total{}"] == 2


TURNED_OFF = """
from faulttolerance import configure
charge(0)
configure(prometheus_registry=None)
charge(0)
"""


def test_a_process_that_turned_prometheus_off_adds_nothing_at_its_end(tmp_path: Path) -> None:
    """``multiprocessing`` has functions of its own for the end of a process, which know nothing of ``atexit``."""
    end(start(tmp_path, "from multiprocessing import util" + WORKER + TURNED_OFF, 0))

    assert scraped(tmp_path)["ft_invocations_total{notDefined,valueReturned}"] == 1


def test_a_process_that_turned_prometheus_off_has_no_levels_until_it_is_on_again(tmp_path: Path) -> None:
    program = HEDGING + "from faulttolerance import configure; configure(prometheus_registry=None)"
    for then, shown in (("", 0), ("; configure(prometheus_registry='auto')", 0.1)):
        end(start(tmp_path, program + then, 100))

        assert scraped(tmp_path)["ft_hedge_delay_seconds{}"] == shown


def test_a_worker_that_no_thread_was_available_for_shows_its_counts_later(tmp_path: Path) -> None:
    """The files are written twice a second from the next first call on, or the next change of the configuration."""
    program = """
import os, threading, time, prometheus_client
from faulttolerance import reload, retry
def refuse(thread):
    raise RuntimeError("can't start new thread")
start, threading.Thread.start = threading.Thread.start, refuse
charge = retry(lambda: None)
charge()
threading.Thread.start = start
reload()
charge()
time.sleep(2)
os._exit(0)
"""
    end(start(tmp_path, program, 0))

    assert scraped(tmp_path)["ft_invocations_total{notDefined,valueReturned}"] == 2


APPLICATION = """
import os
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from faulttolerance import bulkhead, circuit_breaker, fallback, retry, timeout

class Shop:
    @fallback(lambda context: "later")
    @retry(max_retries=1, jitter=0, delay=0)
    @circuit_breaker(failure_ratio=1.0, request_volume_threshold=1000)
    @timeout(60000)
    @bulkhead(2)
    def order(self, fails):
        if fails: raise ConnectionError
        return "taken"

shop = Shop()

def application(environ, start_response):
    if environ["PATH_INFO"] == "/metrics":
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        answer = generate_latest(registry)
    else:
        shop.order(environ["PATH_INFO"] == "/fails")
        answer = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]
"""
SETTINGS = """
from prometheus_client.multiprocess import mark_process_dead

workers = 2

def child_exit(server, worker):
    mark_process_dead(worker.pid)
"""


class Gunicorn:
    """Two workers of gunicorn that serve guarded calls, and the number of requests to them."""

    def __init__(self, service: Service) -> None:
        self.process = service.process
        self.get = service.get
        self.workers: Counter[int] = Counter()
        """Calls by the worker that served them."""
        self.failing = 0

    def order(self) -> int:
        """Request one good and one failing call, and return the worker of the latter."""
        self.workers[int(self.get("/order"))] += 1
        worker = int(self.get("/fails"))
        self.workers[worker] += 1
        self.failing += 1
        return worker

    def order_until(self, fulfilled: Callable[[], bool]) -> None:
        wait_until(lambda: self.order() > 0 and fulfilled())

    @property
    def served(self) -> dict[str, float]:
        """Return the values that a scrape has to show of the calls so far."""
        calls, failing = self.workers.total(), self.failing
        attempts = calls + failing
        return {
            "ft_invocations_total{notApplied,valueReturned}": calls - failing,
            "ft_invocations_total{applied,valueReturned}": failing,
            "ft_retry_retries_total{}": failing,
            "ft_retry_calls_total{true,maxRetriesReached}": failing,
            "ft_circuitbreaker_calls_total{success}": calls - failing,
            "ft_circuitbreaker_calls_total{failure}": 2 * failing,
            "ft_bulkhead_calls_total{accepted}": attempts,
            "ft_bulkhead_executionsRunning{}": 0,
            "ft_timeout_executionDuration_seconds_count{}": attempts,
            "ft_timeout_executionDuration_seconds_bucket{+Inf}": attempts,
        }

    def shown(self) -> dict[str, float]:
        """Return the same values, as any of the workers shows them now."""
        found = each_once(text_string_to_metric_families(self.get("/metrics")))
        return {series: found.get(series, -1) for series in self.served}

    def assert_all_is_shown(self) -> None:
        with contextlib.suppress(AssertionError):  # which says less than the next line
            wait_until(lambda: self.shown() == self.served)
        assert self.shown() == self.served


@pytest.fixture(params=[False, True], ids=["each-loads", "preloaded"])
def gunicorn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gunicorn]:
    pytest.importorskip("gunicorn")
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    settings = f"{SETTINGS}\npreload_app = {request.param}\n"
    with serving(
        APPLICATION, tmp_path, "--log-level=warning", settings=settings, PROMETHEUS_MULTIPROC_DIR=str(metrics)
    ) as service:
        yield Gunicorn(service)


@pytest.mark.timeout(180)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="gunicorn needs fork")
def test_workers_of_gunicorn_add_up_over_restarts(gunicorn: Gunicorn) -> None:
    """One of two workers is killed and replaced, a SIGHUP replaces two: no count is lost or shown twice."""
    gunicorn.order_until(lambda: len(gunicorn.workers) == 2)
    gunicorn.assert_all_is_shown()

    # A killed worker had its counts in the files, but for those of the last half second.
    first = set(gunicorn.workers)
    os.kill(min(first), signal.SIGKILL)
    wait_until(lambda: not is_alive(min(first)))
    gunicorn.order_until(lambda: len(gunicorn.workers) == 3)
    gunicorn.assert_all_is_shown()

    # Workers that end as they are told take over what is left.
    second = set(gunicorn.workers)
    gunicorn.order()
    gunicorn.process.send_signal(signal.SIGHUP)
    wait_until(lambda: not any(map(is_alive, second)))
    gunicorn.order_until(lambda: len(gunicorn.workers) == 5)
    gunicorn.assert_all_is_shown()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


DROPPED = """
import gc, sys
import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from faulttolerance import Guard
from faulttolerance.policies import Retry
from faulttolerance._metrics.counters import MAX_DEPARTED_NAMES, ledger
from faulttolerance._telemetry.multiprocess import MultiprocessExporter
exporter = MultiprocessExporter()
def call(name, times=1):
    guard = Guard(retry=Retry(), name=name)
    for _ in range(times):
        guard.call(int)
    guard.close()
before, when = int(sys.argv[1]), sys.argv[2]
call("back", before)
exporter.write(levels=when != "off")
for number in range(MAX_DEPARTED_NAMES + 1):
    call(f"tenant {number}")
if when != "between": exporter.write()
assert "back" not in ledger.read().counts
call("back", 7)
exporter.write()
registry = CollectorRegistry()
MultiProcessCollector(registry)
tags = {"method": "back", "result": "valueReturned", "fallback": "notDefined"}
print(registry.get_sample_value("ft_invocations_total", tags))
"""


@pytest.mark.parametrize(("before", "when", "shown"), [(5, "on", 12), (5, "off", 12), (9, "between", 9)])
def test_a_name_whose_counts_were_dropped_goes_on_in_the_files(
    tmp_path: Path, before: int, when: str, shown: int
) -> None:
    """Its 7 counts are added, also if it was dropped while Prometheus was off; between two writes it does not fall."""
    process = start(tmp_path, DROPPED, before, when)

    assert process.communicate(timeout=60)[0].strip() == f"{shown}.0"


SWITCHED_OFF = """
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from faulttolerance import configure, timeout
from faulttolerance._telemetry.multiprocess import MultiprocessExporter
exporter = MultiprocessExporter()
@timeout("5s", adaptive=True)
def ask(): ...
ask()
for enabled in ("true", "false"):
    configure(properties={"Timeout/enabled": enabled})
    exporter.write()
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    print(*(family.samples[0].value for family in registry.collect() if family.name == "ft_timeout_limit_seconds"))
"""


def test_the_levels_of_a_policy_that_is_switched_off_are_nothing_in_the_files(tmp_path: Path) -> None:
    """A file forgets nothing: a level that is not there any more has to be written over."""
    pytest.importorskip("pydantic_settings")
    process = start(tmp_path, SWITCHED_OFF, 0)

    assert process.communicate(timeout=60)[0].split() == ["5.0", "0.0"]
