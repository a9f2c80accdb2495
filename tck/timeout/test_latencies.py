"""Latencies of a method: rule X5, and a naive model of the quantile."""

from __future__ import annotations

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st

from faulttolerance._strategy.latencies import Latencies

QUANTILES = (0.5, 0.95, 0.99, 0.999)


class Naive:
    """A model that keeps every sample and sorts all of them each time."""

    def __init__(self) -> None:
        self.samples: list[float] = []

    def quantile(self, q: float) -> float | None:
        known = self.samples[: len(self.samples) // 64 * 64][-512:]
        return sorted(known)[min(len(known) - 1, int(len(known) * q))] if known else None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.floats(1e-6, 1e3)), max_size=12), st.integers(0, 99))
def test_every_quantile_is_that_of_the_newest_512_after_each_64th(runs: list[tuple[int, float]], seed: int) -> None:
    """By rule X5: nothing before the first 64, and samples between two sortings do not count yet."""
    latencies, naive, chance = Latencies(), Naive(), random.Random(seed)

    for number, scale in runs:
        for _ in range(number):
            sample = scale * chance.random()
            latencies.add(sample)
            naive.samples.append(sample)
            if chance.random() < 0.3:
                q = chance.choice(QUANTILES)
                assert latencies.quantile(q) == naive.quantile(q)
        assert [latencies.quantile(q) for q in QUANTILES] == [naive.quantile(q) for q in QUANTILES]


@pytest.mark.outside
def test_a_sample_is_added_without_a_function_of_python() -> None:
    """By rule X5: the smooth path is one append, also while another thread reads."""
    latencies = Latencies()

    assert latencies.add.__self__ is latencies.fresh
    assert type(latencies.fresh) is list


def test_no_sample_of_many_threads_is_lost() -> None:
    """By rule X5: 64 threads add and read at once; 512 newest samples are kept, and the quantile is one of them."""
    latencies, before = Latencies(), sys.getswitchinterval()
    begun = threading.Barrier(64)

    def work(number: int) -> set[float | None]:
        begun.wait()
        found = set()
        for sample in range(250):
            latencies.add(1.0 + number + sample / 1000)
            found.add(latencies.quantile(0.5))
        return found

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(64) as pool:
            found = set().union(*pool.map(work, range(64)))
    finally:
        sys.setswitchinterval(before)

    assert all(one is None or 1.0 <= one < 65.0 for one in found)
    assert len(latencies.fresh) == 64 * 250 % 64
    assert len(latencies._samples) == 512


def test_a_handler_that_reads_while_its_thread_sorts_does_not_wait_for_itself() -> None:
    """By rule X5: the lock is reentrant, and the handler reads a right value."""
    latencies, read = Latencies(), []

    class Sample(float):
        def __lt__(self, other: float) -> bool:
            if len(read) < 3:
                read.append(0.0)
                read[-1] = latencies.quantile(0.5) or 0.0
            return float(self) < float(other)

    for number in range(192):
        latencies.add(Sample(number))

    assert latencies.quantile(0.99) == 190.0
    assert len(latencies._samples) == 192


def test_a_child_keeps_the_samples_though_another_thread_was_sorting() -> None:
    """By rule X5: a fork keeps the samples, and no thread waits for one that is not there."""
    latencies = Latencies()
    for number in range(64):
        latencies.add(float(number))
    with ThreadPoolExecutor(1) as other:
        other.submit(latencies._lock.acquire).result()

        latencies.reset_after_fork(threading.get_ident())

        assert latencies.quantile(0.5) == 32.0
