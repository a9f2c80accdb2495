"""The clock that the library shares: the system's time, another one in its place, and timers."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from faulttolerance import Interrupted, TimeoutException, sleep, timeout, uninterruptible
from faulttolerance._deadline.clock import Alarm, clock, next_deadline, raise_if_expired
from faulttolerance._deadline.threads.chain import this_thread
from faulttolerance._deadline.threads.watchdog import Watchdog, watchdog
from faulttolerance.testing import virtual_time
from faulttolerance.typing import Timer

PATIENCE = 20.0


class StillClock:
    """A clock on which time stands, but for ``sleep``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.25

    def sleep(self, seconds: float) -> None:
        self.now = min(self.now + seconds, next_deadline())
        raise_if_expired(self.now)

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        self.due.append((when, callback))
        return Watchdog().call_at(when, callback)


@pytest.fixture
def still() -> Iterator[StillClock]:
    """Yield a clock that replaces the library's meanwhile."""
    other = StillClock()
    clock.use(other)
    yield other
    clock.use_system()


# The clock in use


def test_clock_is_the_system_s() -> None:
    """Its parts are functions of the standard library themselves, so that asking costs no further call."""
    assert clock.monotonic is time.monotonic
    assert clock.random == random.random
    assert not clock.is_virtual


def test_another_clock_may_take_its_place(still: StillClock) -> None:
    """All four parts are the other clock's, until the system's are taken again."""
    assert (clock.monotonic(), clock.random(), clock.is_virtual) == (1000.0, 0.25, True)

    clock.use_system()

    assert clock.monotonic is time.monotonic
    assert not clock.is_virtual


def test_sleep_follows_the_clock_in_use(still: StillClock) -> None:
    """Section 7: ``faulttolerance.sleep`` follows the virtual clock."""
    sleep(3600.0)

    assert still.now == 4600.0


def test_sleep_of_another_clock_ends_at_the_deadline(still: StillClock) -> None:
    """Such a clock needs the next deadline for that, and raises it."""
    with pytest.raises(TimeoutException) as caught:
        timeout(5000)(lambda: sleep(3600.0))()

    assert still.now == 1005.0
    assert isinstance(caught.value.__cause__, Interrupted)


def test_deadline_is_raised_once_and_no_longer_next(still: StillClock) -> None:
    """A body that swallows the interruption sleeps on."""
    seen = []

    @timeout(5000)
    def body() -> None:
        try:
            sleep(3600.0)
        except Interrupted:
            seen.append(next_deadline())
        sleep(60.0)

    with pytest.raises(TimeoutException):
        body()

    assert seen == [float("inf")]
    assert still.now == 1065.0


def test_masked_deadline_is_not_next(still: StillClock) -> None:
    """R2b: this holds on every clock."""

    @timeout(5000)
    def body() -> None:
        with uninterruptible():
            sleep(60.0)

    with pytest.raises(TimeoutException):
        body()

    assert still.now == 1060.0


def test_watchdog_interrupts_nobody_for_the_time_of_another_clock(still: StillClock) -> None:
    """Real time that passes in a body does not count for a virtual deadline; the watchdog is not even woken."""

    def body() -> str:
        assert watchdog.next == -float("inf")
        end = time.monotonic() + 0.03
        while time.monotonic() < end:
            pass
        return "left alone"

    assert timeout(1)(body)() == "left alone"


def test_deadlines_on_the_system_s_time_hold_again_afterwards(still: StillClock) -> None:
    """The watchdog continues where it stopped."""
    clock.use_system()

    with pytest.raises(TimeoutException):
        timeout(10)(lambda: time.sleep(PATIENCE))()


def test_no_deadline_is_raised_where_none_runs() -> None:
    """Outside of guarded calls nothing happens."""
    raise_if_expired(float("inf"))

    assert next_deadline() == float("inf")
    assert this_thread.deadlines.innermost is None


# Timers


def test_timer_calls_back_when_it_is_due() -> None:
    """The callback runs on another thread, and not before."""
    called = threading.Event()
    when: list[float] = []
    due = time.monotonic() + 0.01

    def callback() -> None:
        when.append(time.monotonic())
        called.set()

    clock.call_at(due, callback)

    assert called.wait(PATIENCE)
    assert when[0] >= due


def test_timers_call_back_in_the_order_in_which_they_are_due() -> None:
    """The order in which they were made does not matter."""
    order: list[int] = []
    done = threading.Event()
    begin = time.monotonic() + 0.02
    for number in (3, 1, 2):
        clock.call_at(begin + number * 0.001, lambda number=number: order.append(number))  # type: ignore[misc]
    clock.call_at(begin + 0.005, done.set)

    assert done.wait(PATIENCE)
    assert order == [1, 2, 3]


def test_cancelled_timer_does_not_call_back() -> None:
    """Cancelling twice, or too late, is no error."""
    called: list[int] = []
    done = threading.Event()
    due = time.monotonic() + 0.02
    cancelled = clock.call_at(due, lambda: called.append(1))
    last = clock.call_at(due + 0.001, done.set)
    cancelled.cancel()
    cancelled.cancel()

    assert done.wait(PATIENCE)
    last.cancel()
    assert called == []


def test_cancelled_timers_do_not_pile_up() -> None:
    """A call on a thread makes a timer and cancels it, a hundred thousand times a second."""
    own = Watchdog()
    own.pause()  # it is not the one that sees to deadlines
    kept = own.call_at(time.monotonic() + 3600.0, int)
    for _ in range(20_000):
        own.call_at(time.monotonic() + 3600.0, int).cancel()
    end = time.monotonic() + PATIENCE
    while len(own.timers._heap) > 1000 and time.monotonic() < end:
        own.call_at(time.monotonic() + 3600.0, int).cancel()
        time.sleep(0.001)

    assert len(own.timers._heap) <= 1000
    kept.cancel()
    own.stop()


def test_callback_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """R10: later callbacks are called all the same."""
    done = threading.Event()
    due = time.monotonic() + 0.01

    def fail() -> None:
        raise LookupError("in a callback")

    with caplog.at_level(logging.ERROR, logger="faulttolerance"):
        clock.call_at(due, fail)
        clock.call_at(due + 0.001, done.set)

        assert done.wait(PATIENCE)

    assert "in a callback" in caplog.text


def test_timers_go_on_while_deadlines_pause() -> None:
    """A timer that was set by the system's time is due by the system's time."""
    called = threading.Event()
    clock.call_at(time.monotonic() + 0.02, called.set)
    clock.use(StillClock())
    try:
        assert called.wait(PATIENCE)
    finally:
        clock.use_system()


def test_an_alarm_ends_a_sleep_whenever_it_rings() -> None:
    """Rule Q2 needs it: before the sleep, in it, and at the moment at which it begins; no alarm is lost."""
    rounds, alarms = 1000, [Alarm() for _ in range(1000)]
    turn = [0]

    def ring() -> None:
        for number in range(rounds):
            while turn[0] < number:
                time.sleep(0)
            alarms[number].ring()

    ringer = threading.Thread(target=ring)
    began = time.monotonic()
    ringer.start()
    for number, alarm in enumerate(alarms):
        turn[0] = number
        clock.sleep(60, alarm)
    ringer.join()

    assert time.monotonic() - began < 50
    assert all(alarm.rings for alarm in alarms)


def test_an_alarm_ends_a_sleep_in_virtual_time() -> None:
    """The rest of the time does not pass."""
    with virtual_time() as virtual:
        alarm = Alarm()
        began = virtual.monotonic()
        virtual.call_at(began + 3, alarm.ring)
        clock.sleep(60, alarm)

        assert round(virtual.monotonic() - began, 3) == 3
