"""When hedges are sent and which attempt wins: the decisions, without tasks or threads."""

from __future__ import annotations

import pickle
import random
from math import inf

import pytest

from faulttolerance._extensions.hedge.strategy import DeafGate, Hedge, Race
from faulttolerance._strategy.bulkhead import Bulkhead, UnqueuedBulkhead, Waiter
from faulttolerance._strategy.gate import NOT_ADMITTED
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL
from faulttolerance.exceptions import BulkheadException


def naive(script: list[tuple[float, bool]], delay: float, most: int, until: float) -> tuple[object, list[float], str]:
    """Return what a naive model of the rule says: when hedges begin, what comes out, and how it is counted.

    The *script* has the duration of each attempt, and whether it succeeds.
    """
    began, ends = [0.0], [script[0][0]]
    due = [number * delay for number in range(1, most + 1) if delay and number * delay < until]
    while True:
        running = [at for at in ends if at > began[-1]]
        first = min((at for at, (_, wins) in zip(ends, script, strict=False) if wins), default=inf)
        if not due or first <= due[0] or max(ends) <= due[0] or not running:
            break
        began.append(due.pop(0))
        ends.append(began[-1] + script[len(began) - 1][0])
    winner = next((number for number, at in enumerate(ends) if at == first and script[number][1]), None)
    hedges = began[1:]
    if winner is None:
        return "failure 0", hedges, "failed" if hedges else "notHedged"
    return winner, hedges, ("hedge" if winner else "primary") if hedges else "notHedged"


def raced(script: list[tuple[float, bool]], race: Race) -> tuple[object, list[float], str]:
    """Return the same from a race, asked as the layer asks it."""
    ends, hedges = {0: script[0][0]}, []
    while True:
        over = min(ends, key=lambda number: (ends[number], number), default=None)
        if over is None:
            return str(race.failure()), hedges, race.result
        if race.due < ends[over]:
            now, number = race.due, race.take_turn()
            race.sent[number] = None
            hedges.append(now)
            ends[number] = now + script[number][0]
            continue
        now = ends.pop(over)
        if script[over][1]:
            race.succeed(over, now)
            return over, hedges, race.result
        race.fail(over, OSError(f"failure {over}"), now)


def test_a_race_goes_as_the_rule_says() -> None:
    """By rule H1 and rule H4: hedges begin, and attempts win, as in a naive model, in 3000 races."""
    chance = random.Random(7)
    for _ in range(3000):
        most = chance.randint(1, 5)
        # No two moments are the same, so that no order among equals is asked for.
        took = [chance.choice((0.05, 0.11, 0.23, 1.0)) + chance.random() / 50 for _ in range(6)]
        script = [(seconds, chance.random() < 0.4) for seconds in took]
        delay, until = chance.choice((0.0, 0.1, 0.2)), chance.choice((inf, 0.25))
        race = Hedge(most, 0.0, delay).begin(0.0, until)

        assert raced(script, race) == naive(script, delay, most, until)


def test_a_hedge_that_was_not_granted_is_passed_over() -> None:
    """By rule H2: the next one is due at its own time, and is told apart by its number."""
    race = Hedge(3, 0.0, 0.1).begin(5.0)

    assert [(round(race.due, 3), race.take_turn()) for _ in range(3)] == [(5.1, 1), (5.2, 2), (5.3, 3)]
    assert race.due == inf
    assert race.result == "notHedged"


def test_the_delay_is_that_of_nearly_all_first_attempts() -> None:
    """By rule H1, trap 2: unknown before 64 samples, and never less than the declared one; 0 sends none."""
    hedge = Hedge(1, 0.5, 0.02)
    for number in range(64):
        assert hedge.delay == 0.02
        hedge.learn(0.001 * number)
    assert hedge.delay == pytest.approx(0.032)
    assert Hedge(1, 0.95, 0.0).begin(0.0).due == inf
    hedge.reconfigure(1, 0.0, 0.3)
    assert hedge.delay == 0.3


def test_learning_from_winners_alone_would_send_more() -> None:
    """Rule X4, trap 4: one in 25 is slow; with those that lost the delay is the 95th percentile, else less."""
    chance = random.Random(1)
    ours, winners = Hedge(1, 0.95, 0.0), Hedge(1, 0.95, 0.0)
    sent = {ours: 0, winners: 0}
    for number in range(20_000):
        took = 0.05 * chance.paretovariate(1.1) if chance.random() < 0.04 else 0.02 * chance.lognormvariate(0, 0.35)
        for hedge in sent:
            race = hedge.begin(0.0)
            if race.due + 0.02 < took:
                sent[hedge] += number >= 2000
                if hedge is ours:
                    race.succeed(race.take_turn(), race.due if race.due < inf else hedge.delay + 0.02)
            else:
                sent[hedge] += number >= 2000 and race.due < took
                race.succeed(0, took)

    assert sent[ours] / 18_000 == pytest.approx(0.05, abs=0.006)
    assert sent[winners] / 18_000 > 0.065


def test_failures_of_hedges_are_notes_that_pickle() -> None:
    """By rule H4: plain text, in the order of their numbers, once, and also where ``str`` fails."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    same = OSError("first")
    hedge = Hedge(3, 0.0, 0.1)
    for _ in range(2):
        race = hedge.begin(0.0)
        race.sent |= {1: None, 2: None}
        for number, failure in ((2, KeyError()), (0, same), (1, Odd()), (3, OSError("was never there"))):
            race.fail(number, failure, 1.0)
        failure = race.failure()
        race.end()

    assert failure is same
    notes = ["faulttolerance: hedge 1 failed, too: Odd", "faulttolerance: hedge 2 failed, too: KeyError"]
    assert [
        note.replace("test_failures_of_hedges_are_notes_that_pickle.<locals>.", "") for note in same.__notes__
    ] == notes
    assert {type(note) for note in pickle.loads(pickle.dumps(same)).__notes__} == {str}


def test_an_attempt_that_ends_after_the_race_wakes_nobody() -> None:
    """By rule H5: a loser that ends late finds no caller that waits."""
    race, woken = Hedge(1, 0.0, 0.1).begin(0.0), []
    race.wake = lambda: woken.append(None)
    race.ring()
    race.end()
    race.ring()

    assert woken == [None]


def test_a_hedge_gets_a_free_permit_or_none() -> None:
    """By rule H2: it never waits in the queue."""
    bulkhead = Bulkhead(1, 5)
    hedges = UnqueuedBulkhead(bulkhead)

    assert hedges.enter(Waiter("first", 1, lambda: None)) is None
    with pytest.raises(BulkheadException):
        hedges.enter(Waiter("second", 1, lambda: None))
    assert (list(hedges.held), len(bulkhead.waiting), hedges.limit) == (["first"], 0, 1)
    hedges.release("first")
    hedges.admit_waiters()
    assert not bulkhead.held


def test_a_gate_hears_nothing_of_losers() -> None:
    """By rule H5: it learns only that the attempt is over, which frees its place."""
    heard, lost = [], True

    class Listening:
        state = NOT_ADMITTED
        transitions = ()
        judges_refusals = False

        def admit(self, *asked: object) -> object:
            return asked

        def settle(self, *told: object) -> None:
            heard.append(told)

        def refusal(self, wait: float) -> object:
            return wait

    gate = DeafGate(Listening(), lambda: lost)  # type: ignore[arg-type]
    gate.settle(NOT_ADMITTED, "a", FAILURE, 1.0, "OSError")
    lost = False
    gate.settle(NOT_ADMITTED, "b", FAILURE, 2.0, "OSError")

    assert heard == [(NOT_ADMITTED, "a", NEUTRAL, 1.0, ""), (NOT_ADMITTED, "b", FAILURE, 2.0, "OSError")]
    assert (gate.state, gate.transitions, gate.judges_refusals) == (NOT_ADMITTED, (), False)
    assert gate.admit("c", 1, 3.0) == ("c", 1, 3.0)  # type: ignore[comparison-overlap]
