"""The states of a circuit: by examples, against a naive circuit, and under many threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import example, strategies as st

from faulttolerance._strategy.circuit_breaker import (
    CLOSED,
    HALF_OPEN,
    OPEN,
    CircuitBreaker,
    CircuitState,
    CircuitValues,
    Transition,
)
from faulttolerance._strategy.circuit_state import Transitions
from faulttolerance._strategy.verdict import FAILURE, NEUTRAL, SUCCESS, Verdict
from faulttolerance.exceptions import CircuitBreakerOpenException
from kit.examples import holds

HERE = threading.get_ident()
THERE = HERE + 1


class Call:
    """An attempt, in the steps of a driver."""

    def __init__(self, circuit: CircuitBreaker, now: float, ident: int = HERE) -> None:
        self.circuit = circuit
        era: CircuitState = circuit.state
        if not era.is_closed:
            era = circuit.admit(self, ident, now)
        self.era = era

    def end(self, verdict: Verdict, now: float) -> None:
        if verdict == SUCCESS:
            if not self.era.is_clean:
                self.circuit.settle(self.era, self, SUCCESS, now)
            return
        if verdict == NEUTRAL and self.era.is_closed:
            return
        self.circuit.settle(self.era, self, verdict, now)


def make(
    delay: float = 10.0,
    volume: int = 4,
    ratio: float = 0.5,
    successes: int = 1,
    now: float = 0.0,
    window: float = 0.0,
    max_delay: float = 0.0,
    chance: float = 0.5,
) -> CircuitBreaker:
    values = CircuitValues(delay, volume, ratio, successes, window, max_delay)
    return CircuitBreaker("shop.Cart.pay", values, chance=lambda: chance, now=now)


def run(circuit: CircuitBreaker, verdicts: str, now: float = 0.0) -> str:
    """Make calls with the verdicts s, f or n, and return the outcomes: o where the circuit was open."""
    outcome = ""
    for letter in verdicts:
        try:
            call = Call(circuit, now)
        except CircuitBreakerOpenException:
            outcome += "o"
        else:
            call.end({"s": SUCCESS, "f": FAILURE, "n": NEUTRAL}[letter], now)
            outcome += letter
    return outcome


def told_by(circuit: CircuitBreaker) -> list[Transition]:
    """Return the transitions that no listener received yet."""
    told: list[Transition] = []
    circuit.deliver(lambda *transition: told.append(Transition(*transition)))
    return told


def opened(**parameters: Any) -> CircuitBreaker:
    """Return a circuit that opened at 0."""
    circuit = make(**parameters)
    run(circuit, "f" * circuit.values.request_volume_threshold)
    told_by(circuit)
    return circuit


# closed


@pytest.mark.parametrize(
    ("calls", "outcome"),
    [
        ("sfssfs", "sfssfo"),  # specification, scenario 1
        ("sffss", "sffso"),  # specification, scenario 2: a success may be what fills the window
        ("fffs", "fffs"),
        ("fffss", "fffso"),
        ("ffff" + "ss", "ffffoo"),
    ],
)
def test_it_opens_when_the_full_window_reaches_the_failure_ratio(calls: str, outcome: str) -> None:
    """Specification: the state is assessed only when the window is full; reaching the ratio is enough."""
    assert run(make(), calls) == outcome


def test_the_window_rolls() -> None:
    """Old failures leave the window."""
    circuit = make(ratio=0.75)

    assert run(circuit, "ffs" + "sssss" + "ffsf" + "s") == "ffs" + "sssss" + "ffsf" + "o"


@pytest.mark.parametrize(
    ("volume", "ratio", "failures"), [(100, 0.07, 7), (3, 1 / 3, 1), (10, 0.7, 7), (49, 29 / 49, 29)]
)
def test_the_ratio_is_compared_without_rounding_errors(volume: int, ratio: float, failures: int) -> None:
    """100 * 0.07 is more than 7 in floating point; seven failures of a hundred are 0.07 all the same."""
    circuit = make(volume=volume, ratio=ratio)

    run(circuit, "s" * (volume - failures) + "f" * (failures - 1))
    before = circuit.state_name(0)
    run(circuit, "f")

    assert (before, circuit.state_name(0)) == (CLOSED, OPEN)


def test_a_failure_ratio_of_0_opens_at_the_first_failure_of_a_full_window() -> None:
    """A window without a failure is no reason to open."""
    circuit = make(ratio=0.0)

    assert run(circuit, "ssssss" + "fs") == "ssssss" + "fo"
    assert run(make(ratio=0.0), "fsss" + "s") == "fsss" + "o"


def test_a_failure_ratio_of_1_opens_when_all_failed() -> None:
    """One success in the window keeps the circuit closed."""
    assert run(make(ratio=1.0), "fffs" + "ffff" + "s") == "fffs" + "ffff" + "o"


def test_control_flow_leaves_no_trace_in_the_window() -> None:
    """A cancelled call is neither a success nor a failure (rule R0)."""
    assert run(make(volume=2, ratio=1.0), "f" + "nnn" + "f" + "s") == "f" + "nnn" + "f" + "o"
    assert run(make(volume=2, ratio=0.5), "fn" + "s" + "s") == "fn" + "s" + "o"


def test_a_healthy_circuit_needs_no_writes() -> None:
    """Once the window is full of successes, one more changes nothing, and the state of the circuit says so."""
    circuit = make(volume=2)
    run(circuit, "s")
    half_full = circuit.state.is_clean
    run(circuit, "s")
    full = circuit.state.is_clean

    assert (half_full, full) == (False, True)


def test_the_state_is_clean_again_when_the_failures_have_left() -> None:
    """A failure costs writes only as long as the window remembers it."""
    circuit = make(volume=3, ratio=0.9)
    run(circuit, "sss" + "f")
    clean = []
    for _ in range(3):
        run(circuit, "s")
        clean.append(circuit.state.is_clean)

    assert clean == [False, False, True]


# open


def test_an_open_circuit_says_when_to_come_back() -> None:
    """The refusal names the circuit and carries the seconds until a call may pass."""
    circuit = opened(delay=10.0)

    with pytest.raises(CircuitBreakerOpenException, match=r"^shop\.Cart\.pay: circuit breaker is open") as refusal:
        circuit.admit(object(), HERE, 4.0)

    assert refusal.value.retry_after == 6.0


def test_a_refusal_while_open_waits_for_no_lock() -> None:
    """Callers that an open circuit refuses do not hinder one another."""
    circuit = opened(delay=10.0)
    refused = []

    def call() -> None:
        refused.append(run(circuit, "s", 1.0))

    with circuit.lock:
        caller = threading.Thread(target=call)
        caller.start()
        caller.join(10)

        assert refused == ["o"]


def test_it_is_half_open_exactly_when_the_delay_is_over() -> None:
    """It is so even without a call; the next call is a probe."""
    circuit = opened(delay=10.0)

    assert [circuit.state_name(now) for now in (9.999, 10.0)] == [OPEN, HALF_OPEN]
    assert run(circuit, "s", 9.999) == "o"
    assert run(circuit, "s", 10.0) == "s"
    assert circuit.state_name(10.0) == CLOSED


def test_a_delay_of_0_lets_the_next_call_probe() -> None:
    """delay=0 is legal: the number of probes alone refuses calls."""
    circuit = opened(delay=0.0)

    assert run(circuit, "fffs") == "fffs"
    assert circuit.state_name(0) == CLOSED


def test_a_probe_without_a_lease_keeps_its_place_however_long_it_takes() -> None:
    """delay=0 would otherwise make every probe late."""
    circuit = opened(delay=0.0)
    probe = Call(circuit, 1.0)

    assert run(circuit, "s", 1e6) == "o"
    probe.end(SUCCESS, 1e6)
    assert circuit.state_name(1e6) == CLOSED


# half-open


def test_a_failed_probe_opens_for_another_delay() -> None:
    """The delay counts from the new opening."""
    circuit = opened(delay=10.0, successes=3)

    assert run(circuit, "ssf", 10.0) == "ssf"
    assert [circuit.state_name(now) for now in (19.9, 20.0)] == [OPEN, HALF_OPEN]


def test_success_threshold_successes_close_and_the_window_is_new() -> None:
    """Specification: a transition resets the records."""
    circuit = opened(delay=10.0, successes=2)

    assert run(circuit, "ss" + "fff", 10.0) == "ss" + "fff"
    assert circuit.state_name(10.0) == CLOSED
    assert run(circuit, "fs", 10.0) == "fo"


def test_successes_and_probes_in_flight_never_exceed_the_threshold() -> None:
    """With three wanted and one success, two probes may run; the next call is refused (rule R4, B1)."""
    circuit = opened(successes=3)
    run(circuit, "s", 10.0)
    probes = [Call(circuit, 10.0), Call(circuit, 10.0)]

    with pytest.raises(CircuitBreakerOpenException) as refusal:
        Call(circuit, 10.0)
    for probe in probes:
        probe.end(SUCCESS, 11.0)

    assert refusal.value.retry_after is None
    assert circuit.state_name(11.0) == CLOSED


def test_a_neutral_probe_gives_its_place_back() -> None:
    """A cancelled probe does not leave the circuit half-open for ever (B2)."""
    circuit = opened()

    assert run(circuit, "nnn" + "s", 10.0) == "nnn" + "s"
    assert circuit.state_name(10.0) == CLOSED


def test_a_neutral_probe_proves_nothing() -> None:
    """An end by control flow says nothing of the callee (rule R4)."""
    circuit = opened(successes=2)

    assert run(circuit, "nsn", 10.0) == "nsn"
    assert circuit.state_name(10.0) == HALF_OPEN


def test_a_probe_that_takes_long_gives_its_place_up_after_the_delay() -> None:
    """A hung probe blocks recovery for one delay only (rule R4)."""
    circuit = opened(delay=10.0, successes=2)
    Call(circuit, 10.0)
    run(circuit, "s", 10.0)

    at_the_delay = run(circuit, "s", 20.0)
    later = Call(circuit, 20.1)
    later.end(SUCCESS, 20.3)

    assert (at_the_delay, circuit.state_name(20.3)) == ("o", CLOSED)


@pytest.mark.parametrize("place", ["taken", "kept"])
@pytest.mark.parametrize(("verdict", "state"), [(SUCCESS, CLOSED), (FAILURE, OPEN), (NEUTRAL, HALF_OPEN)])
def test_a_verdict_that_comes_late_counts_in_the_same_half_open_period(
    verdict: Verdict, state: str, place: str
) -> None:
    """A callee slower than the delay can prove itself, whether or not others called meanwhile (rule R4)."""
    circuit = opened(delay=10.0)
    slow = Call(circuit, 10.0)
    if place == "taken":
        Call(circuit, 20.1)

    slow.end(verdict, 25.0)

    assert circuit.state_name(25.0) == state


def test_a_callee_slower_than_the_delay_closes_the_circuit() -> None:
    """Each answer takes two delays, and after each delay another call takes the place: the first answer is proof."""
    circuit = opened(delay=10.0)
    probes = [Call(circuit, at) for at in (10.0, 20.1, 30.2)]

    probes[0].end(SUCCESS, 30.3)

    assert circuit.state_name(30.3) == CLOSED


def test_a_late_verdict_counts_once() -> None:
    """A probe that gave its place up changes nothing when it is settled again."""
    circuit = opened(delay=10.0, successes=3)
    slow = Call(circuit, 10.0)
    others = [Call(circuit, 10.0), Call(circuit, 10.0), Call(circuit, 20.1)]
    assert others

    for _ in range(3):
        slow.end(SUCCESS, 21.0)

    assert circuit.state_name(21.0) == HALF_OPEN


def test_a_failure_while_successes_come_is_assessed_at_once() -> None:
    """The circuit opens with the result that reaches the ratio, however many others are on their way."""
    circuit = make(volume=4, ratio=0.5)
    run(circuit, "ssss")
    calls = [Call(circuit, 0.0) for _ in range(4)]
    calls[0].end(FAILURE, 0.0)
    calls[1].end(SUCCESS, 0.0)

    calls[2].end(FAILURE, 0.0)

    assert circuit.state_name(0.0) == OPEN


def test_it_tells_the_reason_of_its_opening() -> None:
    """The log names the failures and the next probe; a refusal names the class of the last failure."""
    circuit = make(delay=5.0, volume=2, ratio=1.0)
    for _ in range(2):
        call = Call(circuit, 0.0)
        circuit.settle(call.era, call, FAILURE, 0.0, "ConnectionError")
    probe = Call(circuit, 5.0)
    circuit.settle(probe.era, probe, FAILURE, 5.0, "OSError")
    circuit.force(6.0, OPEN)

    reasons = [one.reason for one in told_by(circuit)]

    assert reasons == [
        "2 of 2 failed, last ConnectionError, next probe in 5 s",
        "",
        "a probe failed, last OSError, next probe in 5 s",
    ]
    with pytest.raises(CircuitBreakerOpenException, match=r"circuit breaker is open$"):
        Call(circuit, 7.0)


def test_a_refusal_names_the_failure_that_opened_the_circuit() -> None:
    """It keeps the class of the failure, and not the object with its traceback."""
    circuit = make(delay=5.0, volume=1, ratio=1.0)
    call = Call(circuit, 0.0)
    circuit.settle(call.era, call, FAILURE, 0.0, "ConnectionError")

    with pytest.raises(CircuitBreakerOpenException) as refusal:
        Call(circuit, 1.0)

    assert str(refusal.value) == "shop.Cart.pay: circuit breaker is open after ConnectionError, next call in 4.0 s"


def test_a_verdict_counts_once() -> None:
    """Settling the same probe again changes nothing."""
    circuit = opened(successes=2)
    probe = Call(circuit, 10.0)

    for _ in range(3):
        probe.end(SUCCESS, 10.0)

    assert circuit.state_name(10.0) == HALF_OPEN


# eras


@pytest.mark.parametrize("verdict", [SUCCESS, FAILURE])
def test_a_call_of_the_closed_period_does_not_settle_as_a_probe(verdict: Verdict) -> None:
    """A late success does not close, a late failure does not re-open a half-open circuit (rule R4, B4)."""
    circuit = make(delay=10.0)
    late = Call(circuit, 0.0)
    run(circuit, "ffff")
    probe = Call(circuit, 10.0)

    late.end(verdict, 10.0)
    state = circuit.state_name(10.0)
    probe.end(SUCCESS, 10.0)

    assert (state, circuit.state_name(10.0)) == (HALF_OPEN, CLOSED)


def test_a_call_of_an_earlier_closed_period_does_not_enter_the_new_window() -> None:
    """Each admission belongs to one state of the circuit (B4)."""
    circuit = make(volume=1, ratio=1.0, delay=10.0)
    late = Call(circuit, 0.0)
    run(circuit, "f")
    run(circuit, "s", 10.0)

    late.end(FAILURE, 11.0)

    assert circuit.state_name(11.0) == CLOSED


def test_a_probe_of_an_earlier_half_open_period_does_not_count() -> None:
    """A probe that outlives the re-opening is not mistaken for one of the next round."""
    circuit = opened(delay=10.0, successes=2)
    late = Call(circuit, 10.0)
    run(circuit, "f", 10.0)
    run(circuit, "s", 20.0)

    late.end(SUCCESS, 20.0)

    assert circuit.state_name(20.0) == HALF_OPEN


# operations


def test_reset_closes_and_forgets() -> None:
    """No result of the past is left, nor a call that was under way (B9)."""
    circuit = make(volume=2, ratio=1.0)
    late = Call(circuit, 0.0)
    run(circuit, "f")

    circuit.reset(0.0)
    late.end(FAILURE, 0.0)

    assert run(circuit, "fs" + "sf") == "fs" + "sf"


def test_force_open_lasts_until_reset() -> None:
    """No delay and no configuration ends it, and refusals do not tell a time to come back."""
    circuit = make(delay=10.0)
    circuit.force(0.0, OPEN)
    circuit.reconfigure(CircuitValues(0.0, 4, 0.5, 1), now=1.0)

    with pytest.raises(CircuitBreakerOpenException) as refusal:
        circuit.admit(object(), HERE, 1e9)
    state = circuit.state_name(1e9)
    circuit.reset(1e9)

    assert (refusal.value.retry_after, state, circuit.state_name(1e9)) == (None, OPEN, CLOSED)
    assert run(circuit, "s", 1e9) == "s"


def test_a_shorter_window_keeps_the_newest_results() -> None:
    """Configuration that changes while calls fail forgets none of the newest failures (rule C3)."""
    circuit = make(volume=10, ratio=1.0)
    run(circuit, "sss" + "fff")

    circuit.reconfigure(CircuitValues(10.0, 4, 1.0, 1), now=0.0)

    assert circuit.state_name(0.0) == CLOSED
    assert run(circuit, "fs") == "fo"


def test_a_longer_window_is_not_full() -> None:
    """A window that was full of successes has to be filled again before the state is assessed."""
    circuit = make(volume=2, ratio=0.5)
    run(circuit, "ss")

    circuit.reconfigure(CircuitValues(10.0, 4, 0.5, 1), now=0.0)

    assert run(circuit, "ffs") == "ffo"


def test_successes_that_need_no_write_are_needed_again_for_a_longer_window() -> None:
    """The window is not clean any more: the following successes fill its new places."""
    circuit = make(volume=2, ratio=0.25)
    run(circuit, "ss")

    circuit.reconfigure(CircuitValues(10.0, 4, 0.25, 1), now=0.0)

    assert run(circuit, "ss" + "fs") == "ss" + "fo"


def test_a_new_delay_counts_from_the_opening() -> None:
    """A shorter or longer delay is measured from the opening (rule C3)."""
    circuit = opened(delay=10.0)

    circuit.reconfigure(CircuitValues(5.0, 4, 0.5, 1), now=3.0)

    assert [circuit.state_name(now) for now in (4.9, 5.0)] == [OPEN, HALF_OPEN]


def test_a_new_delay_does_not_undo_the_end_of_the_old_one() -> None:
    """A circuit that is half-open without a call does not become open again."""
    circuit = opened(delay=10.0)

    circuit.reconfigure(CircuitValues(100.0, 4, 0.5, 1), now=11.0)

    assert circuit.state_name(11.0) == HALF_OPEN


def test_a_lower_success_threshold_that_is_reached_closes() -> None:
    """Otherwise no place for another probe would be left, and the circuit would stay half-open for ever."""
    circuit = opened(successes=5)
    run(circuit, "sss", 10.0)

    circuit.reconfigure(CircuitValues(10.0, 4, 0.5, 2), now=10.0)

    assert circuit.state_name(10.0) == CLOSED


def test_probes_of_threads_that_a_fork_left_behind_give_their_places_back() -> None:
    """In the child only the forking thread's probe is under way (rule L5)."""
    circuit = opened(successes=2)
    mine = Call(circuit, 10.0)
    Call(circuit, 10.0, ident=THERE)
    holder = threading.Thread(target=circuit.lock.acquire)  # another thread that was in the middle of something
    holder.start()
    holder.join()

    circuit.reset_after_fork(HERE)

    assert run(circuit, "s", 10.0) == "s"
    mine.end(SUCCESS, 10.0)
    assert circuit.state_name(10.0) == CLOSED


# a window of time, and delays that grow


@pytest.mark.parametrize(("age", "state"), [(3.0, OPEN), (3.001, CLOSED)])
def test_a_result_that_is_older_than_the_window_has_left_it(age: float, state: str) -> None:
    """A result of exactly that age still counts (rule C5)."""
    circuit = make(volume=3, ratio=0.6, window=3.0)
    run(circuit, "f")

    run(circuit, "sf", age)

    assert circuit.state_name(age) == state


def test_a_window_of_time_holds_any_number_of_results() -> None:
    """The threshold is four and forgets none of a hundred successes: four failures after them are few (C5)."""
    circuit = make(volume=4, ratio=0.5, window=10.0)

    assert run(circuit, "s" * 100 + "f" * 99 + "s") == "s" * 100 + "f" * 99 + "s"
    assert run(circuit, "fff") == "ffo"


def test_a_window_of_time_takes_bounded_memory() -> None:
    """The window holds about a thousand moments, however many calls there are."""
    circuit = make(volume=4, ratio=1.0, window=10.0)
    for call in range(100_000):
        circuit.settle(circuit.state, call, SUCCESS, call / 5000)

    assert len(circuit.state.window._entries) <= 1001  # type: ignore[attr-defined]
    assert circuit.snapshot(20.0).results == pytest.approx(50_000, rel=0.01)


def test_the_condition_describes_one_state() -> None:
    """Another thread may move the circuit while the condition is read."""
    circuit = make()
    circuit.force(0.0, OPEN)
    states = [circuit.state]
    circuit.reset(1.0)
    states.append(circuit.state)

    class Moving(CircuitBreaker):
        __slots__ = ()
        state = property(lambda _: states.pop(0), lambda _, value: None)  # type: ignore[assignment]

    condition = Moving("moving", circuit.values, now=0.0).condition(2.0)

    assert condition[:3] == ("open for 2 s, forced", True, True)


def test_each_opening_by_a_probe_doubles_the_delay() -> None:
    """It doubles up to the maximum; closing restores it (rule C5)."""
    circuit = opened(delay=10.0, max_delay=35.0)
    now, lengths = 0.0, [circuit.state.until]
    for _ in range(4):
        now = circuit.state.until
        run(circuit, "f", now)
        lengths.append(circuit.state.until - now)
    now = circuit.state.until
    run(circuit, "s" + "ffff", now)

    assert lengths == [10.0, 20.0, 33.25, 33.25, 33.25]
    assert circuit.state.until - now == 10.0


@pytest.mark.parametrize(("chance", "length"), [(0.0, 18.0), (0.5, 20.0), (0.999_999, 22.0)])
def test_a_doubled_delay_varies_by_a_tenth(chance: float, length: float) -> None:
    """The circuits of a fleet do not probe all at once."""
    circuit = opened(delay=10.0, max_delay=100.0, chance=chance)

    run(circuit, "f", 10.0)

    assert circuit.state.until - 10.0 == pytest.approx(length, rel=1e-5)


def test_the_random_number_is_drawn_under_no_lock() -> None:
    """The application may have chosen its source (rule R10)."""
    held: list[bool] = []

    def look() -> None:
        held.append(not circuit.lock.acquire(timeout=5))
        circuit.lock.release()

    def chance() -> float:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return 0.5

    circuit = CircuitBreaker("G", CircuitValues(10.0, 1, 1.0, 1, max_delay=100.0), chance=chance, now=0.0)
    run(circuit, "f")
    run(circuit, "f", 10.0)

    assert held == [False]


def test_a_maximum_that_is_configured_counts_from_the_opening() -> None:
    """Without the maximum the delay is the former one again (rule C3)."""
    circuit = opened(delay=10.0, max_delay=100.0)
    run(circuit, "f", 10.0)

    circuit.reconfigure(CircuitValues(10.0, 4, 0.5, 1), now=11.0)
    shorter = circuit.state.until
    circuit.reconfigure(CircuitValues(10.0, 4, 0.5, 1, max_delay=15.0), now=12.0)

    assert (shorter, circuit.state.until) == (20.0, pytest.approx(24.25))


def test_a_longer_window_of_time_keeps_the_results() -> None:
    """A window of the other kind begins empty (rule C3)."""
    circuit = make(volume=4, ratio=0.75, window=3.0)
    run(circuit, "sff")

    circuit.reconfigure(CircuitValues(10.0, 4, 0.75, 1, window=20.0), now=1.0)
    longer = circuit.snapshot(10.0)
    circuit.reconfigure(CircuitValues(10.0, 4, 0.75, 1), now=10.0)

    assert (longer.results, longer.failures) == (3, 2)
    assert circuit.snapshot(10.0).results == 0


# steering


def test_force_closed_lasts_until_reset() -> None:
    """Results are counted, and do not open the circuit (rule C7)."""
    circuit = opened()
    circuit.force(1.0, CLOSED)

    assert run(circuit, "ffffff", 1.0) == "ffffff"
    assert circuit.snapshot(2.0)[1:6] == (CLOSED, True, 1.0, 4, 4)
    circuit.reset(3.0)
    assert run(circuit, "fffff", 3.0) == "ffffo"


def test_a_snapshot_tells_the_state_of_the_circuit() -> None:
    """It does so even without a call after the delay (rule C7)."""
    circuit = make(delay=10.0, volume=2, ratio=1.0, now=1.0)
    for now in (2.0, 3.0):
        call = Call(circuit, now)
        circuit.settle(call.era, call, FAILURE, now, "ConnectionError")

    assert circuit.snapshot(4.0) == ("shop.Cart.pay", OPEN, False, 3.0, 0, 0, 1, 13.0, "ConnectionError")
    assert circuit.snapshot(14.0) == ("shop.Cart.pay", HALF_OPEN, False, 13.0, 0, 0, 1, None, "ConnectionError")
    circuit.force(15.0, OPEN)
    assert circuit.snapshot(16.0)[1:4] == (OPEN, True, 15.0)
    assert circuit.snapshot(16.0).half_open_at is None
    circuit.reset(17.0)
    assert circuit.snapshot(17.0) == ("shop.Cart.pay", CLOSED, False, 17.0, 0, 0, 1, None, "")


# transitions and time


def test_transitions_are_delivered_in_order() -> None:
    """Also transitions on the way to a refusal, and none twice."""
    circuit = make(delay=10.0, volume=1, ratio=1.0)
    run(circuit, "f")
    Call(circuit, 10.0)
    run(circuit, "s", 10.0)
    circuit.reset(12.0)
    circuit.reset(13.0)
    circuit.force(14.0, OPEN)

    told = told_by(circuit)

    assert [one[:2] for one in told] == [(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, CLOSED), (CLOSED, OPEN)]
    assert not told_by(circuit)


def test_an_operation_on_a_circuit_whose_delay_is_over_starts_from_half_open() -> None:
    """Listeners receive the state that ``state_name`` returned."""
    circuit = opened(delay=10.0)

    circuit.reset(11.0)

    assert [one[:2] for one in told_by(circuit)] == [(OPEN, HALF_OPEN), (HALF_OPEN, CLOSED)]


def test_a_listener_may_use_the_circuit() -> None:
    """A transition that a listener causes is delivered after its own, by the same delivery (rule R10)."""
    circuit = make(volume=1, ratio=1.0)
    heard = []

    def listener(old: str, new: str, reason: str) -> None:
        heard.append((old, new))
        if new == OPEN:
            circuit.reset(0.0)
            circuit.deliver(listener)

    run(circuit, "f")
    circuit.deliver(listener)

    assert heard == [(CLOSED, OPEN), (OPEN, CLOSED)]


def test_a_listener_that_raises_loses_only_its_transition() -> None:
    """The following transitions are kept for the next delivery."""
    circuit = make(volume=1, ratio=1.0)
    run(circuit, "f")
    circuit.reset(0.0)
    heard = []

    with pytest.raises(ZeroDivisionError):
        circuit.deliver(lambda old, new, reason: 1 / 0)
    circuit.deliver(lambda old, new, reason: heard.append((old, new)))

    assert heard == [(OPEN, CLOSED)]


def test_a_transition_at_the_very_end_of_a_delivery_is_delivered() -> None:
    """Another thread saw the delivery and left; the delivering thread looks again before it leaves."""
    circuit = make(volume=1, ratio=1.0)
    heard = []

    class LastMoment(Transitions):
        def release(self) -> None:
            if len(heard) < 2:
                circuit.reset(0.0)
            super().release()

    circuit.transitions = LastMoment()
    run(circuit, "f")
    circuit.deliver(lambda old, new, reason: heard.append((old, new)))

    assert heard == [(CLOSED, OPEN), (OPEN, CLOSED)]


def test_a_delivery_without_an_end_silences_no_listener() -> None:
    """A signal's handler raises in its last step; later transitions are delivered, also on other threads."""
    circuit = make(volume=1, ratio=1.0)
    heard: list[tuple[str, str]] = []
    pending = [KeyboardInterrupt]

    class Struck(Transitions):
        def release(self) -> None:
            if pending:
                raise pending.pop()
            super().release()

    def deliver() -> None:
        circuit.deliver(lambda old, new, reason: heard.append((old, new)))

    circuit.transitions = Struck()
    run(circuit, "f")
    with pytest.raises(KeyboardInterrupt):
        deliver()
    circuit.reset(0.0)
    thread = threading.Thread(target=deliver)
    thread.start()
    thread.join(10)

    assert heard == [(CLOSED, OPEN), (OPEN, CLOSED)]


def test_opened_total_counts_openings_of_a_closed_circuit() -> None:
    """Specification, ft.circuitbreaker.opened.total: moved from closed to open."""
    circuit = opened(delay=10.0)
    run(circuit, "f", 10.0)
    run(circuit, "s", 20.0)
    run(circuit, "ffff", 20.0)

    assert circuit.opened_total == 2


def test_each_second_counts_for_a_single_state() -> None:
    """Half-open begins when the delay is over, even without a call."""
    circuit = make(delay=10.0, volume=1, ratio=1.0, now=100.0)
    run(circuit, "f", 103.0)

    def times(now: float) -> tuple[float, float, float]:
        return circuit.time_in(CLOSED, now), circuit.time_in(OPEN, now), circuit.time_in(HALF_OPEN, now)

    before, silent = times(104.0), times(115.0)
    run(circuit, "s", 117.0)

    assert (before, silent, times(120.0)) == ((3, 1, 0), (3, 10, 2), (6, 10, 4))


def test_no_time_counts_while_no_call_asks_the_circuit() -> None:
    """The state stays, and moves as always; a fork does not start the clock."""
    circuit = make(delay=10.0, volume=1, ratio=1.0, now=100.0)
    run(circuit, "f", 103.0)

    def times(now: float) -> tuple[float, float, float]:
        return circuit.time_in(CLOSED, now), circuit.time_in(OPEN, now), circuit.time_in(HALF_OPEN, now)

    circuit.count_time(False, 105.0)
    stopped = times(120.0)
    circuit.count_time(False, 121.0)
    run(circuit, "s", 122.0)
    moved = times(123.0)
    circuit.count_time(True, 125.0)
    circuit.count_time(True, 126.0)
    going = times(130.0)
    circuit.count_time(False, 130.0)
    circuit.start_counting(131.0)

    assert stopped == moved == (3, 2, 0)
    assert going == (8, 2, 0)
    assert times(140.0) == (0, 0, 0)


def test_time_that_counts_again_after_the_delay_is_half_open() -> None:
    circuit = make(delay=10.0, volume=1, ratio=1.0, now=100.0)
    run(circuit, "f", 103.0)

    circuit.count_time(False, 105.0)
    circuit.count_time(True, 120.0)

    assert [circuit.time_in(state, 121.0) for state in (CLOSED, OPEN, HALF_OPEN)] == [3, 2, 1]


def test_no_time_is_lost_to_threads_that_read_the_clock_early() -> None:
    """A thread that was overtaken on its way to the circuit does not turn time back."""
    circuit = make(now=0.0)
    circuit.force(10.0, OPEN)
    circuit.reset(9.0)

    assert [circuit.time_in(state, 12.0) for state in (CLOSED, OPEN)] == [12, 0]


def test_counting_can_start_anew() -> None:
    """A forked child begins at 0 (rule L5)."""
    circuit = opened(delay=10.0)

    circuit.start_counting(4.0)

    assert circuit.opened_total == 0
    assert [circuit.time_in(state, 5.0) for state in (CLOSED, OPEN, HALF_OPEN)] == [0, 1, 0]


# the naive circuit


class NaiveCircuit:
    """The yardstick: plain lists, and each sentence of the specification and the rules in code."""

    def __init__(self, *values: Any) -> None:
        self.delay, self.volume, self.ratio, self.threshold, self.window, self.max_delay = values
        self.name = CLOSED
        self.results: list[tuple[int, bool]] = []
        self.probes: dict[int, int] = {}
        self.overdue: set[int] = set()
        self.successes = 0
        self.since = 0
        self.forced = False
        self.round = 0
        self.doubled = 0

    def move(self, name: str, now: int, forced: bool = False) -> None:
        self.doubled += self.name == HALF_OPEN and name == OPEN
        if name == CLOSED or forced:
            self.doubled = 0
        self.name, self.since, self.forced = name, now, forced
        self.results, self.probes, self.overdue, self.successes = [], {}, set(), 0
        self.round += 1

    def length(self) -> float:
        if not self.doubled or self.max_delay <= self.delay:
            return self.delay
        length = min(self.delay * 2**self.doubled, self.max_delay)
        shortest, longest = length * 0.9, min(length * 1.1, self.max_delay)
        return max(self.delay, (shortest + longest) / 2)

    def catch_up(self, now: int) -> None:
        if self.name == OPEN and not self.forced and now >= self.since + self.length():
            self.move(HALF_OPEN, now)

    def admit(self, number: int, now: int) -> int | None:
        self.catch_up(now)
        if self.name == OPEN:
            return None
        if self.name == HALF_OPEN:
            if self.successes + len(self.probes) >= self.threshold:
                self.overdue |= {n for n, at in self.probes.items() if self.is_overdue(at, now)}
                self.probes = {n: at for n, at in self.probes.items() if n not in self.overdue}
            if self.successes + len(self.probes) >= self.threshold:
                return None
            self.probes[number] = now
        return self.round

    def is_overdue(self, at: int, now: int) -> bool:
        return self.delay > 0 and now - at > self.delay

    def held(self, now: int) -> list[bool]:
        """Return the results that count."""
        if self.window:
            self.results = [(at, failed) for at, failed in self.results if now - at <= self.window]
        else:
            self.results = self.results[-self.volume :]
        return [failed for _, failed in self.results]

    def settle(self, number: int, round_: int, verdict: Verdict, now: int) -> None:
        if round_ != self.round:
            return
        if self.name == CLOSED:
            if verdict != NEUTRAL:
                self.results.append((now, verdict == FAILURE))
                results, failures = len(self.held(now)), sum(self.held(now))
                if results >= self.volume and failures and failures / results >= self.ratio and not self.forced:
                    self.move(OPEN, now)
        elif self.name == HALF_OPEN:
            self.probes.pop(number, None)  # each call ends once, and this period let it in
            if verdict == FAILURE:
                self.move(OPEN, now)
            elif verdict == SUCCESS:
                self.successes += 1
                if self.successes >= self.threshold:
                    self.move(CLOSED, now)

    def reconfigure(self, now: int, *values: Any) -> None:
        self.catch_up(now)
        if bool(self.window) != bool(values[4]):
            self.results = []
        self.delay, self.volume, self.ratio, self.threshold, self.window, self.max_delay = values
        self.held(now)
        if self.name == HALF_OPEN and self.successes >= self.threshold:
            self.move(CLOSED, now)


values = st.tuples(
    st.integers(0, 6),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.2, 0.5, 0.75, 1.0]),
    st.integers(1, 3),
    st.sampled_from([0, 0, 3, 8]),
    st.sampled_from([0, 0, 5, 20]),
)
operations = st.one_of(
    st.just(("begin",)),
    st.just(("begin",)),
    st.tuples(st.just("end"), st.integers(0, 4), st.sampled_from([SUCCESS, FAILURE, FAILURE, NEUTRAL])),
    st.tuples(st.just("end"), st.integers(0, 4), st.sampled_from([SUCCESS, FAILURE, FAILURE, NEUTRAL])),
    st.tuples(st.just("wait"), st.integers(0, 7)),
    st.just(("reset",)),
    st.just(("force_open",)),
    st.just(("force_closed",)),
    st.tuples(st.just("reconfigure"), values),
)


@holds(100, 400, values, st.lists(operations, max_size=80))
@example(
    (0, 1, 0.0, 1, 0, 0),
    [
        ("begin",),
        ("reconfigure", (2, 1, 0.0, 1, 0, 0)),
        ("end", 0, FAILURE),
        ("wait", 1),
        ("reconfigure", (0, 1, 0.0, 1, 0, 0)),
    ],
)
@example(
    (6, 1, 0.0, 1, 0, 20),
    [step for wait in (0, 6, 12, 19) for step in (("wait", wait), ("begin",), ("end", 0, FAILURE))],
)
@example(
    (6, 2, 0.5, 1, 3, 0), [("begin",), ("end", 0, FAILURE), ("wait", 4), ("begin",), ("end", 0, SUCCESS), ("begin",)]
)
def test_it_agrees_with_the_naive_circuit(first: Any, steps: list[Any]) -> None:
    """After any steps in any order, states and admissions are the same, with never too many probes (rule C5)."""
    delay, volume, ratio, successes, window, max_delay = first
    circuit = make(delay, volume, ratio, successes, 0.0, window, max_delay, chance=0.5)
    naive = NaiveCircuit(*first)
    calls: list[tuple[Call, int, int]] = []
    now = number = 0
    spent = dict.fromkeys((CLOSED, OPEN, HALF_OPEN), 0.0)

    for step, *arguments in steps:
        if step == "begin":
            number += 1
            expected = naive.admit(number, now)
            try:
                call = Call(circuit, now)
            except CircuitBreakerOpenException:
                assert expected is None
            else:
                assert expected is not None
                calls.append((call, number, expected))
        elif step == "end" and calls:
            call, which, round_ = calls.pop(arguments[0] % len(calls))
            call.end(arguments[1], now)
            naive.settle(which, round_, arguments[1], now)
        elif step == "wait":
            now += arguments[0]
        elif step == "reset":
            circuit.reset(now)
            naive.move(CLOSED, now)
        elif step == "force_open":
            circuit.force(now, OPEN)
            naive.move(OPEN, now, forced=True)
        elif step == "force_closed":
            circuit.force(now, CLOSED)
            naive.move(CLOSED, now, forced=True)
        elif step == "reconfigure":
            circuit.reconfigure(CircuitValues(*arguments[0]), now)
            naive.reconfigure(now, *arguments[0])

        naive.catch_up(now)
        seen = circuit.snapshot(now)
        assert circuit.state_name(now) == seen.state == naive.name
        assert (seen.forced, seen.results, seen.failures) == (naive.forced, len(naive.held(now)), sum(naive.held(now)))
        times = {state: circuit.time_in(state, now) for state in spent}
        assert all(times[state] >= spent[state] for state in spent)
        assert sum(times.values()) == now
        spent = times

    told = told_by(circuit)
    assert [one.old for one in told] == [CLOSED, *(one.new for one in told)][: len(told)]


# threads


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("wanted", [1, 3])
def test_a_half_open_circuit_admits_no_more_probes_under_threads(wanted: int) -> None:
    """Eight threads arrive at the end of the delay: exactly as many pass as may probe (B1)."""
    for _ in range(50):
        circuit = opened(delay=1.0, successes=wanted)
        barrier = threading.Barrier(8)
        passed: list[Call] = []

        def arrive(
            circuit: CircuitBreaker = circuit, barrier: threading.Barrier = barrier, passed: list[Call] = passed
        ):
            barrier.wait()
            try:
                passed.append(Call(circuit, 1.0, threading.get_ident()))
            except CircuitBreakerOpenException:
                pass

        threads = [threading.Thread(target=arrive) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(passed) == wanted
        for call in passed:
            call.end(SUCCESS, 1.0)
        assert circuit.state_name(1.0) == CLOSED


@pytest.mark.usefixtures("eager_switching")
def test_nothing_is_lost_under_threads() -> None:
    """Transitions form one chain, and are delivered in order, though every thread delivers."""
    circuit = make(delay=0.0, volume=3, ratio=0.5, successes=2)
    heard: list[tuple[str, str]] = []
    inside: list[int] = []
    most: list[int] = []

    def listener(old: str, new: str, reason: str) -> None:
        inside.append(1)
        most.append(len(inside))
        heard.append((old, new))
        inside.pop()

    def work(seed: int) -> None:
        for turn in range(1500):
            try:
                call = Call(circuit, 0.0)
            except CircuitBreakerOpenException:
                pass
            else:
                call.end((SUCCESS, FAILURE, FAILURE, NEUTRAL, SUCCESS)[(turn * 7 + seed * 3) % 5], 0.0)
            if circuit.transitions:
                circuit.deliver(listener)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    circuit.deliver(listener)

    assert len(heard) > 20
    assert max(most) == 1
    assert [old for old, _ in heard] == [CLOSED, *(new for _, new in heard)][: len(heard)]
    if isinstance(probes := getattr(circuit.state, "probes", None), dict):
        assert not probes
