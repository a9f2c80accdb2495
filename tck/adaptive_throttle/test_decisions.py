"""The adaptive throttle: its rules AT1 to AT5, and a naive model of the formula."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from hypothesis import strategies as st

from faulttolerance._extensions.adaptive_throttle.strategy import AdaptiveThrottle
from faulttolerance._strategy.rolling_window import TimeWindow
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, Verdict
from faulttolerance.exceptions import ThrottleException
from kit.examples import holds
from kit.tiers import few_and_many, seeds


class Throttle(AdaptiveThrottle):
    """A throttle whose draws are set, and which is asked as by an attempt."""

    def __init__(self, multiplier: float = 2.0, window: float = 10.0, min_requests: int = 10) -> None:
        super().__init__("shop.Cart.pay", multiplier, window, min_requests, lambda: self.draw)
        self.draw = 0.0

    def lets_in(self, now: float, draw: float = 0.0) -> bool:
        """Return whether an attempt that draws this is let in."""
        self.draw = draw
        if self.state.is_closed:
            return True
        try:
            self.admit(None, 0, now)
        except ThrottleException:
            return False
        return True

    def end(self, now: float, verdict: Verdict, times: int = 1) -> None:
        """Settle a number of attempts that were let in."""
        for _ in range(times):
            self.settle(self.state, None, verdict, now)


class Naive:
    """A naive model of the formula: it keeps every request, and counts all of them each time."""

    def __init__(self, multiplier: float, window: float, min_requests: int) -> None:
        self.multiplier, self.window, self.min_requests = multiplier, window, min_requests
        self.happened: list[tuple[float, bool]] = []  # the beginning of the tenth, and whether it was accepted
        self.latest = 0.0
        self.failed = self.passed = -1e9

    def add(self, now: float, accepted: bool) -> None:
        """Record a request that was refused or has ended."""
        self.counted(now)
        if self.happened and now < self.happened[-1][0] - self.window:
            self.happened = []  # by another clock
        if not self.happened:
            self.latest = now
        begins = self.happened[-1][0] if self.happened else -1e9
        self.happened.append((now if now - begins > self.window / 10 else begins, accepted))

    def counted(self, now: float) -> tuple[int, int]:
        """R Return R and A: the requests, and how many of them were accepted."""
        self.latest = max(self.latest, now)
        self.happened = [
            (begins, accepted) for begins, accepted in self.happened if begins + self.window >= self.latest
        ]
        return len(self.happened), sum(accepted for _, accepted in self.happened)

    def probability(self, now: float) -> float:
        """Return the probability of AT1, reduced by the trust of AT3."""
        requests, accepted = self.counted(now)
        if requests < self.min_requests:
            return 0.0
        probability = max(0.0, (requests - self.multiplier * accepted) / (requests + 1))
        return probability * min(1.0, max(0.0, 1.0 - (now - self.failed) / self.window)) if accepted else probability

    def lets_in(self, now: float, draw: float) -> bool:
        """Decide by AT1, AT2 and the probe of AT3."""
        if draw >= self.probability(now) or now - self.passed >= 1.0:
            self.passed = max(self.passed, now)
            return True
        self.add(now, accepted=False)
        return False


STEPS = st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.999, 1.0, 3.0, 9.5, 11.0, 60.0, -0.002, -12.0])
DRAWS = st.sampled_from([0.0, 0.2, 0.5, 0.8, 0.95]) | st.floats(0, 1, exclude_max=True)
MOVES = st.one_of(
    st.tuples(st.just("call"), STEPS, DRAWS),
    st.tuples(st.just("succeed"), STEPS, st.integers(1, 20)),
    st.tuples(st.just("fail"), STEPS, st.integers(1, 20)),
    st.tuples(st.just("read"), STEPS, st.none()),
)


@holds(
    30,
    250,
    st.lists(MOVES, max_size=80),
    st.sampled_from([1.1, 1.5, 2.0, 3.0]),
    st.sampled_from([1.0, 3.3, 10.0, 60.0]),
    st.sampled_from([1, 2, 10, 30]),
)
def test_the_throttle_decides_as_the_formula(
    moves: list[tuple[str, float, Any]], multiplier: float, window: float, min_requests: int
) -> None:
    """AT1 to AT3: the decisions are equal after any sequence of calls and ends, also while ends wait to be counted."""
    throttle, naive = Throttle(multiplier, window, min_requests), Naive(multiplier, window, min_requests)
    now = 100.0
    for move, step, given_ in moves:
        if step < 0.0:  # while nothing is refused, nobody looks whether what waits is newer than a clock that goes back
            assert throttle.probability(now) == naive.probability(now)
        now += step
        if move == "read":
            assert throttle.probability(now) == naive.probability(now)
        elif move == "call" and throttle.state.is_closed:
            assert copy(naive).probability(now) == 0.0  # of a copy, since nobody is asked
        elif move == "call":
            assert throttle.lets_in(now, given_) == naive.lets_in(now, given_)
        else:
            for _ in range(given_):
                naive.add(now, accepted=move == "succeed")
                if move == "fail":
                    naive.failed = max(naive.failed, now)
                    if throttle.state.is_closed:
                        naive.passed = max(naive.passed, now)  # nobody was asked
                throttle.end(now, SUCCESS if move == "succeed" else FAILURE)
    assert throttle.probability(now) == naive.probability(now)


@seeds(1, 6)
def test_the_throttle_decides_as_the_formula_under_load(seed: int) -> None:
    """AT1 to AT3: the decisions are equal over minutes of calls, while the callee fails and recovers."""
    chance = random.Random(seed)
    throttle, naive = Throttle(), Naive(2.0, 10.0, 10)
    now, share = 100.0, 0.0
    for number in range(1500):
        now += chance.expovariate(40)
        if number % 250 == 0:
            share = chance.choice([0.0, 0.3, 0.7, 1.0])
        draw = chance.random()
        is_free = throttle.state.is_closed
        let_in = throttle.lets_in(now, draw)
        assert let_in == (naive.probability(now) == 0.0 if is_free else naive.lets_in(now, draw))
        if let_in:
            failed = chance.random() < share
            naive.add(now, accepted=not failed)
            if failed:
                naive.failed = now
                if throttle.state.is_closed:
                    naive.passed = now
            throttle.end(now, FAILURE if failed else SUCCESS)
        naive.happened = naive.happened[-3000:]


# AT1


def test_the_probability_is_that_of_the_book() -> None:
    """AT1: 30 of 100 accepted, at least 60 are let through."""
    throttle = Throttle()
    throttle.end(5.0, SUCCESS, 30)
    throttle.end(5.0, FAILURE, 70)

    assert throttle.probability(5.0) == (100 - 60) / 101


def test_a_draw_of_the_very_probability_is_let_in() -> None:
    """AT1: chance is below 1, so that a probability of 1 would refuse all, and one of 0 none."""
    throttle = Throttle(min_requests=1)
    throttle.end(5.0, FAILURE)

    assert throttle.probability(5.0) == 0.5
    assert throttle.lets_in(5.0, 0.5)
    assert not throttle.lets_in(5.0, 0.4999)


def test_nothing_is_refused_below_min_requests() -> None:
    """AT1: after nine failures the tenth request changes that, even when it succeeds."""
    throttle = Throttle()
    throttle.end(5.0, FAILURE, 9)
    before = throttle.probability(5.0), throttle.lets_in(5.0)
    throttle.end(5.0, SUCCESS)

    assert before == (0.0, True)
    assert not throttle.lets_in(5.0)


def test_neutral_ends_count_as_neither() -> None:
    """AT1: control flow says nothing about the callee."""
    throttle = Throttle()
    throttle.end(5.0, NEUTRAL, 100)

    assert throttle.state.is_closed
    throttle.end(5.0, FAILURE, 9)
    throttle.end(5.0, NEUTRAL, 100)
    assert throttle.probability(5.0) == 0.0


def test_requests_are_counted_at_their_end() -> None:
    """A thousand long calls under way do not make a healthy callee shed (trap 22)."""
    throttle = Throttle()
    throttle.end(0.5, FAILURE)

    assert all(throttle.lets_in(1.0 + number / 1000) for number in range(1000))
    throttle.end(6.0, SUCCESS, 1000)
    assert throttle.probability(6.0) == 0.0


# AT2


@few_and_many("offered", 100, 1000)
def test_refused_calls_are_requests(offered: int) -> None:
    """AT2: a callee that accepts 30/s is sent twice as many, whatever is offered."""
    chance = random.Random(7)
    throttle = Throttle()
    sent = 0
    for number in range(60 * offered):
        now = number / offered
        if throttle.lets_in(now, chance.random()):
            sent += now >= 30
            throttle.end(now, SUCCESS if chance.random() < 0.5 else FAILURE)

    assert sent / 30 > 0.4 * offered  # half of what is sent is accepted: next to nothing is refused

    throttle, sent, room = Throttle(), 0, 0.0
    for number in range(60 * offered):
        now = number / offered
        room = min(3.0, room + 30 / offered)
        if throttle.lets_in(now, chance.random()):
            sent += now >= 30
            throttle.end(now, SUCCESS if room >= 1 else FAILURE)
            room -= room >= 1
    assert 55 <= sent / 30 <= 66


# AT3


def test_a_probe_passes_each_second() -> None:
    """AT3: where all fail, one call a second is let through."""
    throttle = Throttle()
    throttle.end(0.0, FAILURE, 10_000)
    let_in = []
    for number in range(900):
        now = number / 100
        if throttle.lets_in(now):
            let_in.append(now)
            throttle.end(now, FAILURE)

    assert let_in == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_a_probe_that_hangs_keeps_none_from_passing() -> None:
    """AT5: the throttle waits for no probe; the next one passes a second later."""
    throttle = Throttle()
    throttle.end(0.0, FAILURE, 100)

    assert [throttle.lets_in(now) for now in (0.5, 1.0, 1.5, 2.0)] == [False, True, False, True]


def test_calls_that_were_in_flight_when_trouble_began_put_off_no_probe() -> None:
    """AT3: an attempt that fails is no admission, though it passed while the throttle asked nothing."""
    throttle = Throttle()
    calm = throttle.state
    throttle.end(0.0, FAILURE, 100)
    let_in = []
    for number in range(1, 50):  # the calls of the last seconds reach their time-outs one by one
        now = number / 10
        throttle.settle(calm, None, FAILURE, now)
        if throttle.lets_in(now):
            let_in.append(now)

    assert let_in == [1.0, 2.0, 3.0, 4.0]


def test_a_recovery_is_believed_within_one_window() -> None:
    """AT3: where something was accepted, the probability falls steadily after the last failure."""
    throttle = Throttle()
    throttle.end(9.0, SUCCESS)
    throttle.end(9.0, FAILURE, 99)
    whole = 98 / 101

    assert [throttle.probability(9.0 + seconds) for seconds in (0.0, 5.0, 7.5)] == [whole, whole * 0.5, whole * 0.25]
    assert throttle.probability(19.0) == 0.0


def test_without_a_success_nothing_is_believed() -> None:
    """AT3: where nothing was accepted, time alone proves nothing while the failures are in the window."""
    throttle = Throttle()
    throttle.end(9.0, FAILURE, 100)

    assert throttle.probability(18.9) == 100 / 101


def test_the_window_slides_by_tenths() -> None:
    """A window that turned over as a whole would let a herd through (trap 21)."""
    throttle = Throttle()
    for tenth in range(10):
        throttle.end(1.001 * tenth, FAILURE, 10)
    requests = [round(1 / (1 - throttle.probability(10.5 + 1.001 * tenth))) - 1 for tenth in range(9)]

    assert requests == [90, 80, 70, 60, 50, 40, 30, 20, 10]


def test_the_window_expires_on_reading_too() -> None:
    """After an idle hour the last bad minute refuses no call (trap 20)."""
    throttle = Throttle()
    throttle.end(5.0, FAILURE, 100)

    assert throttle.probability(3605.0) == 0.0
    throttle.end(3605.0, FAILURE, 100)
    assert not throttle.lets_in(3605.5)
    assert all(throttle.lets_in(7205.0) for _ in range(100))
    assert throttle.state.is_closed


def test_calls_of_a_virtual_time_that_is_over_count_no_more() -> None:
    """X11: an hour that was advanced in another test keeps no failure of this one in the window."""
    throttle = Throttle()
    throttle.end(3605.0, FAILURE, 100)
    throttle.end(5.0, FAILURE, 20)

    assert throttle.probability(5.0) == 20 / 21
    assert throttle.probability(16.0) == 0.0


def test_successes_that_leave_the_window_leave_the_failures_behind() -> None:
    """AT1: the probability rises by time alone, at once; no attempt has to end for it."""
    throttle = Throttle()
    throttle.end(0.5, SUCCESS, 100)
    throttle.end(5.5, FAILURE, 60)

    assert throttle.lets_in(10.4)
    assert not throttle.lets_in(10.6)


# AT4, AT5


def test_a_refusal_names_its_method_and_no_time() -> None:
    """AT4: nobody knows when another call would be let in."""
    throttle = Throttle()
    throttle.end(5.0, FAILURE, 100)
    with pytest.raises(ThrottleException, match=r"^shop\.Cart\.pay: throttled") as raised:
        throttle.admit(None, 0, 5.5)

    assert raised.value.retry_after is None


class Counted:
    """A lock that counts how often it is taken."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.taken = lock, 0

    def __enter__(self) -> None:
        self.taken += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("failures", [0, 20])
def test_a_call_that_goes_well_takes_no_lock(failures: int) -> None:
    """AT5: neither its admission nor its end takes one; 128 successes are counted under one lock."""
    throttle = Throttle()
    throttle.end(5.0, FAILURE, failures)
    throttle.end(5.0, SUCCESS, 128)
    throttle._lock = lock = Counted(throttle._lock)  # type: ignore[assignment]
    for number in range(1280):
        assert throttle.lets_in(5.0 + number / 10000)
        throttle.end(5.0 + number / 10000, SUCCESS)

    assert lock.taken == 10


@pytest.mark.parametrize("seed", range(5))
def test_successes_that_are_counted_together_count_where_they_ended(seed: int) -> None:
    """AT5: this holds also where they span several buckets, and where some end out of order."""
    chance, now = random.Random(seed), 1000.0
    together, alone = Throttle(1.0, window=1.0), Throttle(1.0, window=1.0)
    for _ in range(1000):
        now += chance.choice([0.0, 0.0, 0.001, 0.01])
        ended = now - chance.choice([0.0, 0.0, 0.05])
        together.end(ended, SUCCESS)
        alone.end(ended, SUCCESS)
        alone.probability(now)
        if chance.random() < 0.01:
            for throttle in (together, alone):
                throttle.end(now, FAILURE, 5)

            assert together.probability(now) == alone.probability(now) > 0.0


def test_no_chance_is_drawn_while_nothing_can_be_refused() -> None:
    """AT5: a throttle that does nothing does not change the draws of others from the shared chance."""
    throttle = Throttle()
    throttle._chance = pytest.fail  # type: ignore[assignment]
    throttle.end(5.0, FAILURE, 9)
    below_min_requests = throttle.lets_in(5.0)
    throttle.end(5.0, FAILURE, 11)
    throttle.end(5.0, SUCCESS, 64)

    assert below_min_requests
    assert all(throttle.lets_in(5.0 + number / 1000) for number in range(100))


def test_new_values_keep_the_counts() -> None:
    """C3: a smaller window forgets the requests beyond it, a larger one forgets nothing (trap 33)."""
    throttle = Throttle(window=60.0)
    throttle.end(5.0, FAILURE, 10)
    throttle.end(57.0, FAILURE, 20)
    throttle.reconfigure(2.0, 10.0, 10, 57.5)

    assert throttle.probability(57.5) == 20 / 21
    throttle.reconfigure(2.0, 600.0, 10, 58.0)
    assert throttle.probability(590.0) == 20 / 21
    throttle.reconfigure(2.0, 600.0, 21, 590.0)
    assert throttle.probability(590.0) == 0.0
    throttle.end(590.0, SUCCESS, 11)
    throttle.reconfigure(1.5, 600.0, 21, 590.0)
    assert throttle.probability(590.0) == (31 - 16.5) / 32 * (1.0 - (590.0 - 57.0) / 600.0)


def test_a_child_keeps_the_counts() -> None:
    """Another thread may have held the lock when the process forked; nothing else is held."""
    throttle = Throttle()
    throttle.end(5.0, FAILURE, 20)
    thread = threading.Thread(target=throttle._lock.acquire)
    thread.start()
    thread.join()
    throttle.reset_after_fork(threading.get_ident())

    assert throttle.probability(5.0) == 20 / 21


def in_threads(count: int, act: Callable[[], None]) -> None:
    """Run *act* on *count* threads at once."""
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait()
        act()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_lose_no_count() -> None:
    """All ends that eight threads append and fold are counted."""
    throttle = Throttle(min_requests=1)

    def act() -> None:
        for _ in range(500):
            throttle.end(5.0, FAILURE, 3)
            throttle.lets_in(5.0, 1.0)
            throttle.end(5.0, SUCCESS)

    in_threads(8, act)

    assert throttle.probability(5.0) == (16_000 - 2 * 4_000) / 16_001


def test_a_handler_may_call_while_its_thread_is_inside() -> None:
    """The lock is reentrant, and each end that waits is counted once."""
    throttle = Throttle(min_requests=1)

    class Interrupting(TimeWindow):
        def succeed(self, moments: list[float]) -> None:
            throttle.end(5.0, FAILURE, 2)
            super().succeed(moments)

    throttle._window = Interrupting(1, 10.0)
    throttle.end(5.0, SUCCESS, 129)

    assert throttle.probability(5.0) == 0.0
    throttle.end(5.0, FAILURE, 260)
    assert throttle.probability(5.0) == (129 + 4 + 260 - 2 * 129) / 394
