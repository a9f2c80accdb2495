"""The decisions about calls that share a result, without threads or loops."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Callable, Hashable, Sequence

import pytest

from faulttolerance._extensions.coalesce.strategy import Flight, Flights, Seat
from kit.tiers import seeds

HERE = threading.get_ident()


class Calls:
    """A maker of seats that records those that are woken."""

    def __init__(self) -> None:
        self.flights = Flights()
        self.woken: list[Seat] = []

    def seat(self, ident: int = HERE) -> Seat:
        seat = Seat(ident, lambda: self.woken.append(seat))
        return seat

    def join(self, key: Hashable, ident: int = HERE) -> Seat:
        seat = self.seat(ident)
        assert self.sits(seat, key)
        return seat

    def sits(self, seat: Seat, key: Hashable, around: Sequence[Flight] = ()) -> bool:
        return self.flights.join(Flight(key, seat), seat, around)


class Model:
    """A naive model of the rule: for each key a list of the calls inside, the leader first."""

    def __init__(self) -> None:
        self.inside: dict[int, list[int]] = {}
        self.got: dict[int, object] = {}

    def join(self, me: int, key: int) -> None:
        self.inside.setdefault(key, []).append(me)

    def leave(self, me: int, key: int, outcome: object) -> None:
        line = self.inside[key]
        if line[0] == me and outcome is not None:
            self.got |= dict.fromkeys(line[1:], outcome)
            del self.inside[key]
        else:
            line.remove(me)
            if not line:
                del self.inside[key]

    def leads(self, me: int) -> bool:
        return any(line[0] == me for line in self.inside.values())


@seeds(8, 50)
def test_flights_decide_as_a_naive_model_of_the_rule(seed: int) -> None:
    """Rules CO1 and CO2: after any calls that come, end and give up, the leaders and the shared results are equal."""
    chance, calls, model = random.Random(seed), Calls(), Model()
    seats: dict[int, tuple[Seat, int]] = {}
    for me in range(300):
        if chance.random() < 0.6:
            key = chance.randrange(4)
            seats[me] = calls.join(key), key
            model.join(me, key)
        elif seats:
            one = chance.choice(list(seats))
            seat, key = seats.pop(one)
            if one in model.got:
                assert seat.is_over
                continue
            outcome = (object(), None, None, ()) if seat.leads and chance.random() < 0.5 else None
            calls.flights.leave(seat, outcome)
            model.leave(one, key, outcome)
        for one, (seat, _) in seats.items():
            assert seat.leads == model.leads(one)
            assert (seat.outcome if seat.is_over else None) == model.got.get(one)
        assert len(calls.flights) == len(model.inside)


def test_a_follower_that_gets_a_result_or_the_lead_is_woken() -> None:
    """Rule CO1: a shared result wakes all followers, and a hand-over wakes the first one."""
    calls = Calls()
    leader, first, second = (calls.join("a") for _ in range(3))

    calls.flights.leave(leader)
    assert calls.woken == [first]
    calls.flights.leave(first, ("result", None, None, ()))
    assert calls.woken == [first, second]
    assert second.outcome == ("result", None, None, ())


def test_a_follower_that_nobody_can_wake_is_passed_over() -> None:
    """Rule CO2: where a loop was closed, the next follower leads."""
    calls = Calls()
    leader = calls.join("a")

    def closed() -> None:
        raise RuntimeError("the loop was closed")

    assert calls.sits(Seat(HERE, closed), "a")
    last = calls.join("a")
    calls.flights.leave(leader)

    assert last.leads
    assert calls.woken == [last]


def test_a_call_that_comes_while_a_flight_ends_leads() -> None:
    """Rule CO1: a flight that was under way when the call looked, and is over when it sits down, is not followed."""
    calls = Calls()
    leader, late = calls.join("a"), calls.seat()

    class EndsMeanwhile(tuple[Flight, ...]):
        def __bool__(self) -> bool:
            calls.flights.leave(leader, ("result", None, None, ()))
            return False

    assert calls.sits(late, "a", EndsMeanwhile())
    assert late.leads
    assert not late.is_over
    calls.flights.leave(late)
    assert len(calls.flights) == 0


def test_a_call_that_meets_no_other_takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule CO1: a call that leads and ends alone waits for no decision of others."""
    calls, lone = Calls(), Seat(HERE)
    monkeypatch.setattr(Flights, "_lock", None)

    assert calls.flights.lead(Flight("a", lone), lone) is None
    calls.flights.leave(lone, ("result", None, None, ()))
    assert len(calls.flights) == 0


def test_keys_that_become_equal_later_hold_nobody_up() -> None:
    """Rule CO1: a flight that could not be found when it ended is not followed for ever."""

    class Key:
        are_equal = False

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return self is other or Key.are_equal

    calls = Calls()
    seats = [calls.join(Key()) for _ in range(2)]
    Key.are_equal = True
    for seat in reversed(seats):
        calls.flights.leave(seat, ("result", None, None, ()))

    assert calls.join(Key()).leads


def test_leaving_twice_does_nothing_more() -> None:
    """Rule CO2: after a signal's handler has raised, the end is repeated."""
    calls = Calls()
    leader, heir = calls.join("a"), calls.join("a")
    for _ in range(2):
        calls.flights.leave(leader)
    assert heir.leads
    assert not heir.is_over
    for _ in range(2):
        calls.flights.leave(heir, ("result", None, None, ()))

    assert len(calls.flights) == 0


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_circle_of_flights_is_seen(length: int) -> None:
    """Rule CO5: a call does not follow a flight that waits, by however many others, for its own."""
    calls = Calls()
    leaders = [calls.join(number) for number in range(length)]
    flights = [leader.flight for leader in leaders]
    for number in range(length - 1):
        assert calls.sits(calls.seat(), number + 1, (flights[number],))  # type: ignore[arg-type]

    assert not calls.sits(calls.seat(), 0, (flights[-1],))  # type: ignore[arg-type]
    assert calls.sits(calls.seat(), 0, ())


def test_a_call_that_waits_no_longer_closes_no_circle() -> None:
    """Rule CO5: the flight for which a call waited is forgotten when the call ends."""
    calls = Calls()
    one, two = calls.join(1), calls.join(2)
    waiting = calls.seat()
    assert calls.sits(waiting, 2, (one.flight,))  # type: ignore[arg-type]
    calls.flights.leave(waiting)

    assert calls.sits(calls.seat(), 1, (two.flight,))  # type: ignore[arg-type]


def test_a_child_keeps_the_flights_of_its_own_thread() -> None:
    """Rule CO6: flights of other threads are dropped, and their followers on this thread lead."""
    calls, other = Calls(), HERE + 1
    mine, theirs = calls.join("mine"), calls.join("theirs", other)
    gone, follower = calls.join("theirs", other), calls.join("theirs")
    calls.flights.reset_after_fork(HERE)

    assert mine.leads
    assert follower.leads
    assert not gone.leads
    assert theirs.flight is follower.flight
    assert calls.woken == [follower]


@pytest.mark.parametrize("key", [[], {}, ([],)])
def test_a_key_without_a_hash_takes_nothing(key: object) -> None:
    """Rule CO5: the error reaches the caller, and leaving changes nothing."""
    calls = Calls()
    seat = calls.seat()
    with pytest.raises(TypeError):
        calls.sits(seat, key)  # type: ignore[arg-type]
    calls.flights.leave(seat)

    assert len(calls.flights) == 0


def test_a_handler_that_raises_while_others_are_woken_leaves_nobody_asleep() -> None:
    """Rule CO3: control flow in the leader's thread reaches nobody else."""
    calls, struck = Calls(), [True]
    leader = calls.join("a")

    def strikes_once(wake: Callable[[], None]) -> Callable[[], None]:
        def woken() -> None:
            if struck:
                struck.clear()
                raise KeyboardInterrupt
            wake()

        return woken

    followers = [calls.join("a") for _ in range(3)]
    followers[0].wake = strikes_once(followers[0].wake)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        calls.flights.leave(leader, ("result", None, None, ()))

    assert all(follower.is_over for follower in followers)
    assert set(calls.woken) == set(followers)


def test_a_leader_that_gives_up_looks_at_one_follower() -> None:
    """Rule CO2: handing over costs the same for any number of followers; cancelling all of them costs their number."""
    calls = Calls()
    leader = calls.join("a")
    seats = [calls.join("a") for _ in range(2000)]

    tracemalloc.start()
    try:
        calls.flights.leave(leader)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert seats[0].leads
    assert peak < 2000 * 8  # of a list of all


class Moody:
    """A key whose hash changes or disappears."""

    def __init__(self) -> None:
        self.mood: int | None = 1

    def __hash__(self) -> int:
        if self.mood is None:
            raise RuntimeError
        return self.mood

    def __eq__(self, other: object) -> bool:
        return self is other


@pytest.mark.parametrize("mood", [2, None])
@pytest.mark.parametrize("count", [0, 3])
def test_a_flight_goes_whatever_becomes_of_its_key(mood: int | None, count: int) -> None:
    """Rule CO1: nothing is kept of a flight that is over, and no other flight is lost."""
    calls, key = Calls(), Moody()
    other = calls.join("other")
    leader = calls.join(key)
    followers = [calls.join(key) for _ in range(count)]
    key.mood = mood

    calls.flights.leave(leader, ("result", None, None, ()))

    assert all(follower.is_over for follower in followers)
    assert len(calls.flights) == 1
    assert not calls.join("other").leads
    calls.flights.leave(other, ("result", None, None, ()))
    assert len(calls.flights) == 0
