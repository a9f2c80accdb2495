"""Observed strategies: they report the refusals of obeyed ones, and learn the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import BulkheadException, RefusedException
from faulttolerance._extensions.adaptive_throttle.strategy import AdaptiveThrottle
from faulttolerance._extensions.observe.strategy import ObservedBulkhead, ObservedGate, ObservedRateLimit
from faulttolerance._strategy.bulkhead import Bulkhead, Waiter
from faulttolerance._strategy.circuit_breaker import CircuitBreaker, CircuitValues
from faulttolerance._strategy.rate_limit import LimitValues, RateLimit
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS
from kit.tiers import seeds


class Told:
    """A function that counts its calls."""

    times = 0

    def __call__(self) -> None:
        self.times += 1


def refuses(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except RefusedException:
        return True
    return False


@seeds(8, 30)
def test_an_observed_circuit_lives_as_one_that_is_obeyed(seed: int) -> None:
    """By rule X7: after any calls both have the same state, and the observed one reports each refusal of the other."""
    chance = random.Random(seed)
    obeyed, inner = (CircuitBreaker("acme", CircuitValues(5.0, 4, 0.5, 2), now=0.0) for _ in range(2))
    told = Told()
    observed, refused = ObservedGate(inner, told), 0
    now, running = 0.0, list[tuple[Any, Any, Any]]()
    for permit in range(400):
        now += chance.choice([0.0, 0.5, 3.0])
        era, passed = obeyed.state, observed.state
        mine = None
        if not era.is_closed:
            try:
                era = obeyed.admit(permit, 1, now)
            except RefusedException:
                refused += 1
                mine = "refused"
        if not passed.is_closed:
            passed = observed.admit(permit, 1, now)
        running.append((permit, mine or era, passed))
        while running and chance.random() < 0.6:
            ended, era, passed = running.pop(chance.randrange(len(running)))
            verdict = chance.choice([SUCCESS, SUCCESS, FAILURE, NEUTRAL])
            if era != "refused":
                obeyed.settle(era, ended, verdict, now)
            observed.settle(passed, ended, verdict, now)
        assert inner.state_name(now) == obeyed.state_name(now)
        assert told.times == refused
    assert inner.opened_total == obeyed.opened_total > 0


@seeds(8, 30)
def test_an_observed_throttle_learns_as_one_that_is_obeyed(seed: int) -> None:
    """By rule X7: attempts that it would refuse do not count in its window, however they end."""
    chance = random.Random(seed)
    obeyed, inner = (AdaptiveThrottle("acme", 1.5, 10.0, 2, random.Random(seed).random) for _ in range(2))
    told = Told()
    observed, refused, now = ObservedGate(inner, told), 0, 0.0
    for permit in range(300):
        now += chance.random() / 10
        verdict = chance.choice([SUCCESS, FAILURE])
        era, passed = obeyed.state, observed.state
        try:
            era = era if era.is_closed else obeyed.admit(permit, 1, now)
            obeyed.settle(era, permit, verdict, now)
        except RefusedException:
            refused += 1
        passed = passed if passed.is_closed else observed.admit(permit, 1, now)
        observed.settle(passed, permit, verdict, now)
        assert (inner.probability(now), told.times) == (obeyed.probability(now), refused)
    assert 0 < refused < 300


@seeds(8, 30)
def test_an_observed_rate_limit_reports_the_refusals_of_one_that_is_obeyed(seed: int) -> None:
    """By rule X7: an attempt that would be refused takes no place in the window."""
    chance = random.Random(seed)
    obeyed, inner = (RateLimit("acme", LimitValues(3, 1.0, 0.0, "rolling")) for _ in range(2))
    told = Told()
    observed, refused, now = ObservedRateLimit(inner, told, lambda: None, may_wait=True), 0, 0.0
    for _ in range(300):
        now += chance.random() / 2
        refused += refuses(lambda: obeyed.admit(now))  # noqa: B023
        observed.admit(now)
        assert told.times == refused
    assert 0 < refused < 300


def test_an_attempt_that_would_wait_for_a_turn_is_not_refused() -> None:
    """By rule X7: the attempt takes its turn when that comes."""
    told = Told()
    observed = ObservedRateLimit(
        RateLimit("acme", LimitValues(1, 1.0, 0.0, "rolling", max_wait=2.0)), told, lambda: None, may_wait=True
    )
    seen = []
    for now in (0.0, 0.0, 0.0, 0.0, 1.5, 1.5, 2.0, 9.0):
        observed.admit(now)
        seen.append(told.times)

    # In at 0, turns at 1 and 2, no more; then a turn at 3, no more, one at 4; long afterwards, in at once.
    assert seen == [0, 0, 0, 1, 1, 2, 2, 2]


def test_an_attempt_that_may_not_wait_for_a_turn_would_be_refused() -> None:
    """By rule X7: a hedge takes no turn, so it takes none from calls behind it."""
    told = Told()
    inner = RateLimit("acme", LimitValues(1, 1.0, 0.0, "rolling", max_wait=2.0))
    observed = ObservedRateLimit(inner, told, lambda: None, may_wait=False)
    for _ in range(2):
        observed.admit(0.0)

    assert told.times == 1
    assert not inner.waiting


@seeds(8, 30)
def test_an_observed_bulkhead_reports_the_refusals_of_one_that_is_obeyed(seed: int) -> None:
    """By rule X7: an attempt beyond the limit takes no permit of others, and all that run are counted."""
    chance = random.Random(seed)
    obeyed, inner = (Bulkhead(3, 5, "acme") for _ in range(2))
    told = Told()
    observed, refused = ObservedBulkhead(inner, told, may_wait=False), 0
    running: list[int] = []
    for attempt_id in range(400):
        refused += refuses(lambda: obeyed.acquire(attempt_id, 1))  # noqa: B023
        observed.enter(Waiter(attempt_id, 1, None))
        running.append(attempt_id)
        assert (told.times, inner.running) == (refused, len(running))
        while running and chance.random() < 0.55:
            ended = running.pop(chance.randrange(len(running)))
            obeyed.release(ended)
            observed.release(ended)
    assert 0 < refused < 400


def test_two_call_paths_report_the_refusals_of_one_bulkhead() -> None:
    """By rule X7: a task that would wait is not refused because threads run that would have been."""
    bulkhead, told = Bulkhead(1, 1, "acme"), Told()
    of_threads, of_tasks = (ObservedBulkhead(bulkhead, told, may_wait=may_wait) for may_wait in (False, True))
    for attempt_id in range(3):
        of_threads.enter(Waiter(attempt_id, 1, None))

    of_tasks.enter(Waiter(3, 1, None))

    assert told.times == 2


def test_a_bulkhead_that_is_obeyed_again_refuses_until_there_is_room() -> None:
    """By rule X7: attempts that run beyond the limit go on."""
    bulkhead = Bulkhead(1, 1, "acme")
    observed = ObservedBulkhead(bulkhead, Told(), may_wait=False)
    for attempt_id in range(3):
        observed.enter(Waiter(attempt_id, 1, None))

    bulkhead.resize(1, 1)

    assert bulkhead.running == 3
    for ended in range(3):
        with pytest.raises(BulkheadException):
            bulkhead.acquire(9, 1)
        observed.release(ended)
    assert bulkhead.acquire(9, 1) is None


def test_an_attempt_that_is_given_up_leaves_no_probe_behind() -> None:
    """By rule X7, and R0: the probe is given back, whether the gate admitted it or not."""
    breaker = CircuitBreaker("acme", CircuitValues(5.0, 1, 1.0, 1), now=0.0)
    gate = ObservedGate(breaker, Told())
    breaker.settle(breaker.state, "first", FAILURE, 0.0, "OSError")
    gate.admit("probe", 1, 6.0)

    gate.settle(gate.state, "probe", NEUTRAL, 6.0)

    assert not breaker.state.probes  # type: ignore[attr-defined]
