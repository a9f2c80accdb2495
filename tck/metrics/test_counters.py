"""The ledger of counts: entries are folded into counts once each, and stay after the end of their counters."""

from __future__ import annotations

from typing import Any

import pytest

from faulttolerance._metrics import counters as counters_module
from faulttolerance._metrics.catalogue import Schema, Series, call_series, schema_of, series_of_facts
from faulttolerance._metrics.counters import FOLD, MAX_DEPARTED_NAMES, Counters, Durations, Ledger, Reading
from faulttolerance._platform.swap import Swap, Version
from faulttolerance._policy import Bulkhead, Retry, Timeout

FAILED = call_series(False, "notDefined")
TIMED_OUT = series_of_facts((("Timeout", "timedOut"),))
RETRIED = series_of_facts((("Retry", "retried"),))


def schema() -> Schema:
    known = schema_of([Retry, Timeout, Bulkhead], queue=True)
    assert known is not None
    return known


def entered(ledger: Ledger, name: str = "shop") -> Counters:
    counters = ledger.new(name, schema())
    swap = Swap()
    ledger.enter(counters, swap)
    Version().force(swap)
    return counters


def test_a_duration_advances_all_series_of_a_first_try() -> None:
    ledger = Ledger()
    counters = entered(ledger)

    counters.first_try_durations.extend([0.001, 0.3])

    reading = ledger.read()
    assert all(reading.counts["shop"][series] == 2 for series in schema().first_try)
    waited = reading.durations["shop"].pop("ft.bulkhead.waitingDuration")
    assert (sum(waited.counts), sum(waited.sums)) == (2, 0.0)
    assert [sum(one.sums) for one in reading.durations["shop"].values()] == [0.301, 0.301]


def test_samples_stand_in_the_bucket_of_the_bound_that_they_reach() -> None:
    ledger = Ledger()
    counters = entered(ledger)

    for seconds in (0.005, 0.0051, 10.0, 10.1):
        counters.add(TIMED_OUT, {"ft.timeout.executionDuration": seconds})

    samples = ledger.read().durations["shop"]["ft.timeout.executionDuration"]
    assert samples == Durations((1, 1, *(0,) * 11, 1, 1), (0.005, 0.0051, *(0.0,) * 11, 10.0, 10.1))


def test_a_batch_and_single_entries_add_up() -> None:
    ledger = Ledger()
    counters = entered(ledger)

    counters.batch(FAILED).extend([None] * 3)
    counters.add(FAILED)

    assert counters.batch(tuple(FAILED)) is counters.batch(FAILED)
    assert [ledger.read().counts["shop"][FAILED[0]] for _ in range(2)] == [4, 4]


def test_the_last_count_of_a_call_is_not_read_without_the_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """While other threads call, a reader finds no call that was retried without its retry and its attempt."""
    ledger = Ledger()
    counters = entered(ledger)
    recovered = call_series(True, "notDefined", True, "valueReturned")
    recoveries, retries = counters.batch(recovered), counters.batch(RETRIED)
    take = counters_module._taken

    def take_while_another_one_calls(calls: list[Any]) -> list[Any]:
        taken = take(calls)
        counters.add(TIMED_OUT)
        retries.append(None)
        recoveries.append(None)
        return taken

    monkeypatch.setattr(counters_module, "_taken", take_while_another_one_calls)
    for _ in range(3):
        counts: dict[Series, float] = {}
        counters.account.read(counts, {})

        assert counts.get(recovered[-1], 0) <= counts.get(RETRIED[0], 0) <= counts.get(TIMED_OUT[0], 0)


def test_the_list_of_entries_stays_bounded() -> None:
    counters = entered(Ledger())

    for _ in range(3 * FOLD):
        counters.add(FAILED)

    assert len(counters.account.others) < FOLD


def test_counts_of_equal_names_add_up_and_outlive_their_counters() -> None:
    ledger = Ledger()
    first, second = entered(ledger), entered(ledger)
    for counters in (first, second):
        counters.add(FAILED)

    del first, second, counters

    assert ledger.read().counts["shop"][FAILED[0]] == 2
    assert not ledger._accounts
    assert not ledger.is_empty


def test_a_child_of_a_fork_counts_from_nothing() -> None:
    ledger = Ledger()
    counters = entered(ledger)
    counters.add(FAILED)
    counters.batch(TIMED_OUT).append(None)
    counters.first_try_durations.append(0.0)
    ledger.read()
    counters.add(FAILED)

    ledger.reset_after_fork()

    assert set(ledger.read().counts["shop"].values()) == {0}


def test_a_reading_in_the_middle_of_a_fold_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler or a finalizer may call guarded functions and read, while its thread folds."""
    ledger = Ledger()
    counters = entered(ledger)
    counters.add(FAILED, {"ft.timeout.executionDuration": 1.0})
    nested: list[float] = []
    plus = Durations.plus

    def interrupted(samples: Durations, more: Durations) -> Durations:
        if not nested:
            nested.append(-1)
            counters.add(FAILED, {"ft.timeout.executionDuration": 2.0})
            nested.append(ledger.read().counts["shop"][FAILED[0]])
        return plus(samples, more)

    monkeypatch.setattr(Durations, "plus", interrupted)

    ledger.read()
    reading = ledger.read()
    assert nested == [-1, 0]
    assert reading.counts["shop"][FAILED[0]] == 2
    assert sum(reading.durations["shop"]["ft.timeout.executionDuration"].sums) == 3.0


def test_an_account_that_is_gone_in_the_middle_of_a_fold_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler or a finalizer may read, while its thread folds the counts of another guard."""
    ledger = Ledger()
    folded = entered(ledger, "folded")
    folded.add(FAILED, {"ft.timeout.executionDuration": 1.0})
    plus = Durations.plus

    def interrupted(samples: Durations, more: Durations) -> Durations:
        monkeypatch.setattr(Durations, "plus", plus)
        ledger.read()
        return plus(samples, more)

    monkeypatch.setattr(Durations, "plus", interrupted)
    gone(ledger, "gone")

    folded.fold()

    assert ledger.read().counts["gone"][FAILED[0]] == 1
    assert not ledger._departed


def test_an_account_that_goes_while_it_is_read_is_in_the_reading_once() -> None:
    """A signal handler may read, or make a guard, while its thread reads."""
    ledger = Ledger()
    kept = [entered(ledger) for _ in range(2)]
    for counters in kept:
        counters.add(FAILED)
    nested: list[int] = []

    class Interrupted(dict[str, Any]):
        """A dictionary that runs a handler after its items were read."""

        def items(self) -> Any:
            yield from super().items()
            if kept:
                kept.clear()
                nested.append(ledger.read().counts["shop"][FAILED[0]])

    ledger._final = Reading(Interrupted(), {})
    del counters

    assert ledger.read().counts["shop"][FAILED[0]] == 2
    assert nested == [2]
    assert ledger.read().counts["shop"][FAILED[0]] == 2
    assert not ledger._accounts


def test_counters_whose_making_was_interrupted_go_silently() -> None:
    """By rule R0: Ctrl-C during the first call of a method leaves no second traceback behind."""
    Counters.__new__(Counters).__del__()


def gone(ledger: Ledger, *names: str) -> None:
    """Count a failure for each of *names*, whose counters then go."""
    for name in names:
        entered(ledger, name).add(FAILED)


def test_names_that_are_gone_keep_their_counts_up_to_a_thousand() -> None:
    """Beyond that, the counts without a guard for the longest time go: a guard for each tenant needs bounded memory."""
    ledger = Ledger()
    gone(ledger, *(f"tenant {number}" for number in range(MAX_DEPARTED_NAMES)))
    all_there = set(ledger.read().durations)
    gone(ledger, "tenant 0", "one more", "and one more")
    reading = ledger.read()

    assert all_there == {f"tenant {number}" for number in range(MAX_DEPARTED_NAMES)}
    assert all_there - reading.counts.keys() == all_there - reading.durations.keys() == {"tenant 1", "tenant 2"}
    assert reading.counts["tenant 0"][FAILED[0]] == 2


def test_a_name_that_has_a_guard_keeps_the_counts_of_its_former_guards() -> None:
    ledger = Ledger()
    gone(ledger, "kept")
    living = entered(ledger, "kept")
    gone(ledger, *(f"tenant {number}" for number in range(2 * MAX_DEPARTED_NAMES)))
    living.add(FAILED)
    reading = ledger.read()

    assert reading.counts["kept"][FAILED[0]] == 2
    assert len(reading.durations) == MAX_DEPARTED_NAMES + 1


def test_a_name_that_comes_back_after_its_counts_were_dropped_counts_from_0() -> None:
    ledger = Ledger()
    gone(ledger, "back", *(f"tenant {number}" for number in range(MAX_DEPARTED_NAMES)))
    without = ledger.read().counts
    gone(ledger, "back")

    assert "back" not in without
    assert ledger.read().counts["back"][FAILED[0]] == 1


def test_dropping_counts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    for number in range(3):
        gone(ledger, *(f"tenant {number} {other}" for other in range(MAX_DEPARTED_NAMES)))
        ledger.read()

    (record,) = caplog.records
    assert "more than 1000 guards with names of their own no longer exist" in record.getMessage()
