"""Prometheus with several worker processes, which share one scrape by the files of ``PROMETHEUS_MULTIPROC_DIR``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

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
ENDS = "\nprint('ended', flush=True)\n"
IS_KILLED = "\nprint('working', flush=True)\ntime.sleep(60)\n"


def start(folder: Path, program: str, calls: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, str(calls)],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def scraped(folder: Path) -> dict[str, float]:
    """What a scrape shows that adds up all workers; each series once."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))
    found: dict[str, float] = {}
    for family in registry.collect():
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
    """Counters, histograms and times in states are sums; a second generation of workers goes on from the first."""
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


def test_killed_worker_loses_a_second_at_most(tmp_path: Path) -> None:
    """Counts are taken over while it works, not only when it ends."""
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
    """As under ``gunicorn --preload``: the master's calls stay the master's."""
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
