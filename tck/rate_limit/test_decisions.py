"""The kinds of window: examples, and the promise that no sequence of calls breaks."""

from __future__ import annotations

import copy
import heapq
import itertools
import random
import threading
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from faulttolerance._strategy.rate_limit import _KINDS, LimitValues, RateLimit, TurnWaiter, WindowKind
from faulttolerance.exceptions import RateLimitException
from kit.examples import holds

KINDS: list[WindowKind] = ["fixed", "rolling", "smooth"]


def make(limit: int = 3, window: float = 1.0, min_spacing: float = 0.0, kind: WindowKind = "fixed") -> RateLimit:
    return RateLimit("shop.Cart.pay", LimitValues(limit, window, min_spacing, kind))


def passes(limit: RateLimit, *moments: float) -> str:
    """Call at each moment; return y where the call was let through, n where it was not."""
    outcome = ""
    for now in moments:
        try:
            limit.admit(now)
        except RateLimitException:
            outcome += "n"
        else:
            outcome += "y"
    return outcome


def test_fixed_windows_follow_one_another() -> None:
    """They are counted from the first call on; each starts with all its permits."""
    limit = make(limit=2)

    assert passes(limit, 5.0, 5.1, 5.9, 6.0, 6.1, 6.2, 7.9, 7.99, 8.0) == "yynyynyyy"


def test_a_rolling_window_looks_back_from_each_call() -> None:
    """No period as long as the window sees more calls than the limit."""
    limit = make(limit=2, kind="rolling")

    assert passes(limit, 5.0, 5.9, 5.95, 6.0, 6.1, 6.89, 6.9) == "yynynny"


def test_a_smooth_limit_starts_with_all_permits_and_gathers_up_to_the_limit() -> None:
    """Two per second is one each half second; at first, and after a quiet second, two may come at once."""
    limit = make(limit=2, kind="smooth")

    assert passes(limit, 0.0, 0.0, 0.1, 0.5, 0.9, 1.0) == "yynyny"
    assert passes(limit, 9.0, 9.0, 9.0, 9.4, 9.5) == "yynny"


@pytest.mark.parametrize("kind", KINDS)
def test_calls_keep_their_distance(kind: WindowKind) -> None:
    """min_spacing refuses a call that follows another too closely, limit or not."""
    limit = make(limit=100, window=1.0, min_spacing=0.25, kind=kind)

    assert passes(limit, 1.0, 1.1, 1.25, 1.4, 1.5) == "ynyny"


def test_a_clock_below_zero_admits_no_call_beyond_the_limit() -> None:
    """A program may set the clock, and a clock may start anywhere."""
    limit = RateLimit("f", LimitValues(1, 1.0, 0.0, "fixed"))
    limit.admit(-5.0)
    with pytest.raises(RateLimitException):
        limit.admit(-4.5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_leaves_no_trace(kind: WindowKind) -> None:
    """A caller that keeps knocking is let in as soon as one that waits."""
    limit = make(limit=1, min_spacing=0.75, kind=kind)

    assert passes(limit, *(tenth / 10 for tenth in range(21))) == "y" + "n" * 9 + "y" + "n" * 9 + "y"


@pytest.mark.parametrize("kind", KINDS)
@given(st.floats(0, 1e9), st.floats(0.001, 1e4))
def test_a_call_that_comes_back_after_retry_after_is_let_through(kind: WindowKind, start: float, window: float) -> None:
    """The refusal has the first moment with room, and a clock that adds it arrives there."""
    limit = make(limit=3, window=window, kind=kind)
    now, waits, outcome = start, [], ""
    for _ in range(30):
        try:
            limit.admit(now)
        except RateLimitException as refusal:
            waits.append(refusal.retry_after)
            now += refusal.retry_after
            outcome += passes(limit, now)

    assert min(waits) > 0
    assert len(outcome) > 5
    assert set(outcome) == {"y"}


def test_the_refusal_names_the_limited_function() -> None:
    """The message names the function, and the time at which to come back."""
    limit = make(limit=1)
    limit.admit(0.0)

    with pytest.raises(RateLimitException, match=r"^shop\.Cart\.pay: rate limit is exceeded, next call in 0\.8 s$"):
        limit.admit(0.25)


moments = st.lists(
    st.one_of(st.sampled_from([0.0, 0.1, 0.2, 0.3, 1 / 3, 0.7, 1.0]), st.floats(0, 2)), min_size=1, max_size=80
)


@holds(75, 300, st.integers(1, 7), st.sampled_from([0.1, 0.3, 1 / 3, 0.7, 1.0]), st.floats(0, 1e6), moments)
def test_no_rounding_lets_one_more_through(limit: int, window: float, start: float, steps: list[float]) -> None:
    """Counted in exact fractions: at most the limit per window; when smooth, the limit and what came back (B32)."""
    now = start
    times = []
    for step in steps:
        now += step * window
        times.append(now)
    grain = Fraction(1, 10**9)

    passed = {kind: [] for kind in KINDS}
    for kind in KINDS:
        rate = make(limit, window, kind=kind)
        for now in times:
            if passes(rate, now) == "y":
                passed[kind].append(Fraction(now))

    length = Fraction(window)
    rolling = passed["rolling"]
    for first, beyond in zip(rolling, rolling[limit:], strict=False):
        assert beyond - first >= length - grain
    fixed = passed["fixed"]
    for first, beyond in zip(fixed, fixed[2 * limit :], strict=False):
        assert beyond - first >= length - grain
    smooth = passed["smooth"]
    for first in range(len(smooth)):
        for last in range(first, len(smooth)):
            assert last - first <= (limit - 1) + (smooth[last] - smooth[first] + grain) * limit / length


@given(st.integers(1, 5), st.lists(st.integers(0, 5), max_size=60))
def test_a_fixed_window_agrees_with_counting_per_interval(limit: int, steps: list[int]) -> None:
    """The model divides time into numbered intervals and keeps a count for each."""
    rate = make(limit, window=4.0)
    counts: dict[int, int] = {}
    now = 0

    for step in steps:
        expected = counts.get(now // 4, 0) < limit if counts else True
        assert passes(rate, float(now)) == ("y" if expected else "n")
        counts[now // 4] = counts.get(now // 4, 0) + expected
        now += step


def test_a_moment_that_arrives_late_counts_as_the_latest() -> None:
    """Threads read the clock before they ask; a thread that is overtaken frees no permit."""
    limit = make(limit=2, kind="rolling")

    assert passes(limit, 10.0, 9.0, 10.5, 10.99, 11.0) == "yynny"


@pytest.mark.parametrize("kind", KINDS)
def test_new_values_forgive_nothing(kind: WindowKind) -> None:
    """Calls that were let through count under the new limit too (rule C3)."""
    limit = make(limit=4, window=1.0, kind=kind)
    passes(limit, 0.0, 1.0, 1.0, 1.0)

    limit.reconfigure(LimitValues(2, 1.0, 0.0, kind), now=1.1)

    assert passes(limit, 1.1) == "n"
    assert passes(limit, 2.0) == "y"


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_limit_holds_at_once(kind: WindowKind) -> None:
    """The used permits stay used, and the added ones are there."""
    limit = make(limit=2, window=1.0, kind=kind)
    passes(limit, 0.0, 5.0, 5.0)

    limit.reconfigure(LimitValues(4, 1.0, 0.0, kind), now=5.0)

    assert passes(limit, 5.0, 5.0, 5.0) == "yyn"


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_a_window_of_another_kind_begins_empty(before: WindowKind, after: WindowKind) -> None:
    """Rule C3: one of the same kind keeps its calls."""
    limit = make(limit=2, window=1.0, kind=before)
    passes(limit, 0.0, 3.0, 3.0)

    limit.reconfigure(LimitValues(2, 1.0, 0.0, after), now=3.0)

    assert passes(limit, 3.25, 4.0) == ("ny" if before == after else "yy")


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_may_be_any_whole_number(kind: WindowKind) -> None:
    """Files name any, and a limit that is never reached is no mistake."""
    limit = make(limit=10**400, kind=kind)
    before = passes(limit, 1.0, 2.0)
    limit.reconfigure(LimitValues(10**30, 1.0, 0.0, "rolling"), now=2.0)

    assert before + passes(limit, 2.0, 2.1) == "yyyy"


def test_a_lower_smooth_limit_is_not_in_debt() -> None:
    """All ten permits were used; under a limit of two the first is back after half a window, not after four."""
    limit = make(limit=10, window=1.0, kind="smooth")
    passes(limit, 0.0, *[5.0] * 10)

    limit.reconfigure(LimitValues(2, 1.0, 0.0, "smooth"), now=5.0)

    assert passes(limit, 5.4, 5.5) == "ny"


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_one_limit(kind: WindowKind) -> None:
    """Eight threads at one moment get exactly the permits that are there (B32)."""
    limit = make(limit=50, window=1.0, kind=kind)
    passes(limit, 0.0)
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def work() -> None:
        barrier.wait()
        outcomes.append(passes(limit, *[9.0] * 20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert "".join(outcomes).count("y") == 50


def test_a_lock_that_a_fork_left_behind_is_replaced() -> None:
    """The limit goes on in the child, with the calls that were let through before (rule L5)."""
    limit = make(limit=2)
    passes(limit, 0.0)
    holder = threading.Thread(target=limit.lock.acquire)  # another thread that was in the middle of something
    holder.start()
    holder.join()

    limit.reset_after_fork(threading.get_ident())

    assert passes(limit, 0.1, 0.2) == "yn"


# waiting in turn


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("burst", [1, 3])
def test_a_turn_is_when_all_before_it_were_let_through_as_soon_as_they_may(kind: WindowKind, burst: int) -> None:
    """Rule RL1 in a naive model: the calls ahead take their turns one after the other, on a copy of the window."""
    for seed in range(300):
        dice = random.Random(seed)
        limit = dice.randint(1, 5)
        window = _KINDS[kind](limit, limit * dice.randint(1, 12), burst)  # a permit's interval is a whole number
        now = dice.randint(0, 50)
        for _ in range(dice.randint(0, 12)):
            now += dice.choice([0, 1, 2, dice.randint(0, 60)])
            if window.due(now) <= now:
                window.record(now, now)
        ahead = dice.randint(0, 14)
        turn = max(now, window.due(now, ahead))

        naive, moment = copy.deepcopy(window), now
        for _ in range(ahead):
            moment = max(moment, naive.due(moment))
            assert naive.due(moment) <= moment
            naive.record(moment, moment)

        assert turn == max(moment, naive.due(moment)), f"seed {seed}"


class Line:
    """Calls that come, wait, give up and are let through, in simulated time; each asks at the time it was given."""

    def __init__(self, seed: int, kind: WindowKind, spacing: float) -> None:
        self.dice = random.Random(seed)
        self.max_wait = self.dice.choice([0.3, 1.0, 2.5])
        limit, burst = self.dice.randint(1, 4), self.dice.randint(1, 3)
        self.limit = RateLimit("line", LimitValues(limit, 1.0, spacing, kind, self.max_wait, burst))
        self.events: list[tuple[float, int, int]] = []
        self.places: dict[int, TurnWaiter] = {}
        self.came: dict[int, float] = {}
        self.through: dict[int, float] = {}
        self.gone: set[int] = set()
        self.woken = 0
        self.now = 0.0

    def play(self, calls: int) -> None:
        for me in range(calls):
            self.now += self.dice.choice([0.0, 0.01, 0.1, 0.4])
            self._run_until(self.now)
            self.came[me] = self.now
            self.places[me] = TurnWaiter(1, lambda me=me: self._wake(me))
            self._ask(me)
            if self.dice.random() < 0.25 and (here := self._waiting()):
                goes = self.dice.choice(here)
                self.gone.add(goes)
                self.limit.leave(self.places[goes], self.now)
                self._run_until(self.now)
        self._run_until(1e9)

    def _waiting(self) -> list[int]:
        return [me for me in self.came if me not in self.gone and me not in self.through]

    def _wake(self, me: int) -> None:
        self.woken += 1
        heapq.heappush(self.events, (self.now, -1, me))

    def _ask(self, me: int) -> None:
        try:
            seconds = self.limit.request_turn(self.places[me], self.now)
        except RateLimitException:
            self.gone.add(me)
            assert self.now - self.came[me] <= self.max_wait + 1e-6
            return
        if seconds:
            heapq.heappush(self.events, (self.now + seconds, me, me))
        else:
            self.through[me] = self.now

    def _run_until(self, end: float) -> None:
        while self.events and self.events[0][0] <= end:
            self.now, _, me = heapq.heappop(self.events)
            if me in self._waiting():
                self._ask(me)
        self.now = max(self.now, end) if end < 1e9 else self.now


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spacing", [0.0, 0.15])
def test_waiting_calls_are_let_through_in_turn_and_within_the_limit(kind: WindowKind, spacing: float) -> None:
    """By rule RL1: in the order of arrival, none too late, none forgotten, and none woken in vain."""
    for seed in range(150):
        line = Line(seed, kind, spacing)
        line.play(40)
        order = [line.through[me] for me in sorted(line.through)]

        assert not line._waiting(), f"seed {seed}: somebody waits for ever"
        assert order == sorted(order), f"seed {seed}: somebody was overtaken"
        assert max(at - line.came[me] for me, at in line.through.items()) <= line.max_wait + 1e-6, f"seed {seed}"
        assert all(after - before >= spacing - 1e-9 for before, after in itertools.pairwise(order)), f"seed {seed}"
        assert not line.limit.waiting, f"seed {seed}"
        assert line.woken <= len(line.gone) + len(line.through), f"seed {seed}: a herd"


def test_a_smooth_limit_is_used_up_although_each_call_is_woken_late() -> None:
    """By rule RL1: time that waking takes is made up for, up to one call: otherwise a busy limit would give less."""
    limit = RateLimit("line", LimitValues(10, 1.0, 0.0, "smooth", max_wait=9.0, burst=1))
    limit.admit(0.0)
    places = [TurnWaiter(1, lambda: None) for _ in range(5)]
    turns = [limit.request_turn(place, 0.0) for place in places]

    assert turns == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert [limit.request_turn(place, turn + 0.02) for place, turn in zip(places, turns, strict=True)] == [0.0] * 5
    assert passes(limit, 0.52, 0.59, 0.6) == "nny"
    assert passes(limit, 9.0, 9.0, 9.05, 9.1) == "ynny"


def test_a_call_that_must_not_wait_does_not_overtake_those_that_do() -> None:
    """By rule RL1: it finds no room that was promised to another call."""
    limit = RateLimit("line", LimitValues(1, 1.0, 0.0, "fixed", max_wait=5.0))
    limit.admit(0.0)
    place = TurnWaiter(1, lambda: None)

    assert limit.request_turn(place, 0.5) == pytest.approx(0.5)
    assert passes(limit, 1.0) == "n"
    assert limit.request_turn(place, 1.0) == 0.0
    assert passes(limit, 1.5, 2.0) == "ny"


def test_a_call_that_never_asks_again_holds_the_others_up_for_a_while_only() -> None:
    """By rule RL1, B34: a call whose loop was closed is such a call; and no wake-up is left to it."""
    limit = RateLimit("line", LimitValues(1, 1.0, 0.0, "fixed", max_wait=2.0))
    limit.admit(0.0)
    lost = TurnWaiter(1, lambda: None)
    limit.request_turn(lost, 0.5)

    assert passes(limit, 3.4) == "n"
    assert passes(limit, 3.6) == "y"


def test_leaving_the_line_looks_at_no_other_place() -> None:
    """A server that closes its connections cancels thousands at once, and each of them leaves in one step."""

    class Looked(TurnWaiter):
        def __eq__(self, other: object) -> bool:
            looked.append(other)
            return self is other

        __hash__ = TurnWaiter.__hash__

    looked: list[object] = []
    limit = RateLimit("call", LimitValues(1, 1.0, 0.0, "fixed", max_wait=1_000.0))
    places = [Looked(number, lambda: None) for number in range(100)]
    for place in places:
        limit.request_turn(place, 0.0)
    assert len(limit.waiting) == 99
    looked.clear()

    for place in reversed(places):
        limit.leave(place, 0.0)

    assert (list(limit.waiting), looked) == ([], [])


def test_calls_of_other_threads_leave_the_line_in_a_forked_child() -> None:
    """Rule L5: those threads do not exist in the child."""
    limit = RateLimit("line", LimitValues(1, 1.0, 0.0, "fixed", max_wait=5.0))
    limit.admit(0.0)
    limit.request_turn(TurnWaiter(1, lambda: None), 0.1)
    mine = TurnWaiter(2, lambda: None)
    limit.request_turn(mine, 0.2)

    limit.reset_after_fork(2)

    assert limit.request_turn(mine, 1.0) == 0.0
