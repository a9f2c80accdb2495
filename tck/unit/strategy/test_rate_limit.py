"""The kinds of window: examples, and the promise that no sequence of calls breaks."""

from __future__ import annotations

import threading
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from faulttolerance._strategy.rate_limit import RateLimit, WindowKind
from faulttolerance.exceptions import RateLimitException

KINDS: list[WindowKind] = ["fixed", "rolling", "smooth"]


def make(limit: int = 3, window: float = 1.0, min_spacing: float = 0.0, kind: WindowKind = "fixed") -> RateLimit:
    return RateLimit("shop.Cart.pay", limit, window, min_spacing, kind)


def passes(limit: RateLimit, *moments: float) -> str:
    """Call at each moment; y where the call was let through, n where not."""
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


def test_a_smooth_limit_starts_with_one_permit_and_gathers_up_to_the_limit() -> None:
    """Two per second is one each half second; after a quiet second two may come at once."""
    limit = make(limit=2, kind="smooth")

    assert passes(limit, 0.0, 0.1, 0.5, 0.9, 1.0) == "ynyny"
    assert passes(limit, 9.0, 9.0, 9.0, 9.4, 9.5) == "yynny"


@pytest.mark.parametrize("kind", KINDS)
def test_calls_keep_their_distance(kind: WindowKind) -> None:
    """min_spacing refuses a call that follows another too closely, limit or not."""
    limit = make(limit=100, window=1.0, min_spacing=0.25, kind=kind)

    assert passes(limit, 1.0, 1.1, 1.25, 1.4, 1.5) == "ynyny"


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_leaves_no_trace(kind: WindowKind) -> None:
    """A caller that keeps knocking is let in as soon as one that waits."""
    limit = make(limit=1, min_spacing=0.75, kind=kind)

    assert passes(limit, *(tenth / 10 for tenth in range(21))) == "y" + "n" * 9 + "y" + "n" * 9 + "y"


@pytest.mark.parametrize("kind", KINDS)
@given(st.floats(0, 1e9), st.floats(0.001, 1e4))
def test_who_comes_back_after_retry_after_is_let_in(kind: WindowKind, start: float, window: float) -> None:
    """The refusal tells the first moment that has room, and adding it to the clock gets there."""
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
    """The message says whose limit it was and when to come back."""
    limit = make(limit=1)
    limit.admit(0.0)

    with pytest.raises(RateLimitException, match=r"^shop\.Cart\.pay: rate limit is exceeded, next call in 0\.8 s$"):
        limit.admit(0.25)


moments = st.lists(
    st.one_of(st.sampled_from([0.0, 0.1, 0.2, 0.3, 1 / 3, 0.7, 1.0]), st.floats(0, 2)), min_size=1, max_size=80
)


@settings(max_examples=300)
@given(st.integers(1, 7), st.sampled_from([0.1, 0.3, 1 / 3, 0.7, 1.0]), st.floats(0, 1e6), moments)
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
    """The yardstick divides time into numbered intervals and keeps a count for each."""
    rate = make(limit, window=4.0)
    counts: dict[int, int] = {}
    now = 0

    for step in steps:
        expected = counts.get(now // 4, 0) < limit if counts else True
        assert passes(rate, float(now)) == ("y" if expected else "n")
        counts[now // 4] = counts.get(now // 4, 0) + expected
        now += step


def test_a_moment_that_arrives_late_counts_as_the_latest() -> None:
    """Threads read the clock before they ask; the one that is overtaken forgives nothing."""
    limit = make(limit=2, kind="rolling")

    assert passes(limit, 10.0, 9.0, 10.5, 10.99, 11.0) == "yynny"


@pytest.mark.parametrize("kind", KINDS)
def test_new_values_forgive_nothing(kind: WindowKind) -> None:
    """Calls that were let through count under the new limit too (rule C3)."""
    limit = make(limit=4, window=1.0, kind=kind)
    passes(limit, 0.0, 1.0, 1.0, 1.0)

    limit.reconfigure(2, 1.0, 0.0, kind, now=1.1)

    assert passes(limit, 1.1) == "n"
    assert passes(limit, 2.0) == "y"


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_limit_holds_at_once(kind: WindowKind) -> None:
    """What was used up stays so, what was added is there."""
    limit = make(limit=2, window=1.0, kind=kind)
    passes(limit, 0.0, 5.0, 5.0)

    limit.reconfigure(4, 1.0, 0.0, kind, now=5.0)

    assert passes(limit, 5.0, 5.0, 5.0) == "yyn"


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_another_kind_of_window_forgives_nothing(before: WindowKind, after: WindowKind) -> None:
    """A limit that is used up stays used up when the kind of window changes."""
    limit = make(limit=2, window=1.0, kind=before)
    passes(limit, 0.0, 3.0, 3.0)

    limit.reconfigure(2, 1.0, 0.0, after, now=3.0)

    assert passes(limit, 3.25, 4.0) == "ny"


@pytest.mark.parametrize("before", KINDS)
def test_another_kind_of_window_remembers_only_what_still_counts(before: WindowKind) -> None:
    """Calls whose window is over do not follow into the new one."""
    limit = make(limit=2, window=1.0, kind=before)
    passes(limit, 0.0, 3.0, 3.0)

    limit.reconfigure(2, 1.0, 0.0, "fixed", now=4.0)

    assert passes(limit, 4.0, 4.0, 4.0) == "yyn"


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_may_be_any_whole_number(kind: WindowKind) -> None:
    """Files name any, and a limit that is never reached is no mistake."""
    limit = make(limit=10**400, kind=kind)
    before = passes(limit, 1.0, 2.0)
    limit.reconfigure(10**30, 1.0, 0.0, "rolling", now=2.0)

    assert before + passes(limit, 2.0, 2.1) == "yyyy"


def test_a_lower_smooth_limit_is_not_in_debt() -> None:
    """Ten permits were used of ten; under a limit of two the first is back after half a window, not after four."""
    limit = make(limit=10, window=1.0, kind="smooth")
    passes(limit, 0.0, *[5.0] * 10)

    limit.reconfigure(2, 1.0, 0.0, "smooth", now=5.0)

    assert passes(limit, 5.4, 5.5) == "ny"


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_one_limit(kind: WindowKind) -> None:
    """Eight threads at one moment: exactly the permits that are there are given out (B32)."""
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
    """In the child the limit goes on, with what was let through before (rule L5)."""
    limit = make(limit=2)
    passes(limit, 0.0)
    holder = threading.Thread(target=limit._lock.acquire)  # another thread that was in the middle of something
    holder.start()
    holder.join()

    limit.keep_only(threading.get_ident())

    assert passes(limit, 0.1, 0.2) == "yn"
