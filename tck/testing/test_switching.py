"""Policies, and delays between attempts, that are switched off for the length of a test."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from faulttolerance import (
    Guard,
    TimeoutException,
    asynchronous,
    configure,
    explain,
    fallback,
    hedge,
    reload,
    retry,
    sleep,
    timeout,
)
from faulttolerance.instrumentation import RetryScheduled, set_event_sinks
from faulttolerance.policies import Retry
from faulttolerance.testing import configured, disabled, no_wait, reset
from kit.definition import refused
from kit.struck import strikes

made: list[object] = []
LONG = 3_600_000
"""Milliseconds that no test waits."""


def attempt(*_: object) -> None:
    made.append(1)
    raise ConnectionError


async def attempt_async(*_: object) -> None:
    attempt()


class Switched:
    @retry(max_retries=3, delay=LONG, max_duration=0, jitter=0)
    @timeout(LONG)
    def charge(self) -> None:
        attempt()

    @retry(max_retries=3, delay=LONG, max_duration=0, jitter=0)
    async def charge_async(self) -> None:
        attempt()

    @asynchronous
    @retry(max_retries=3, delay=LONG, max_duration=0, jitter=0)
    def charge_offloaded(self) -> Any:
        attempt()


class OfItsOwn(Switched):
    pass


guard = Guard(retry=Retry(max_retries=3, delay=LONG, max_duration=0, jitter=0))


@guard
def guarded() -> None:
    attempt()


def in_blocks() -> None:
    for block in guard.attempts():
        with block:
            attempt()


WAYS: dict[str, Callable[[], Any]] = {
    "def": Switched().charge,
    "async def": Switched().charge_async,
    "offloaded": Switched().charge_offloaded,
    "decorated by a Guard": guarded,
    "Guard.call": lambda: guard.call(attempt),
    "Guard.call_async": lambda: guard.call_async(attempt_async),
    "block": in_blocks,
}


def attempts(call: Callable[[], Any]) -> int:
    """Return how many attempts a call makes."""
    made.clear()
    with pytest.raises(ConnectionError):
        ended(call)
    return len(made)


def ended(call: Callable[[], Any]) -> Any:
    """Return the result of a call in any way of calling."""

    async def awaited() -> Any:
        return await outcome

    outcome = call()
    return asyncio.run(awaited()) if isinstance(outcome, Awaitable) else outcome


@pytest.mark.parametrize("way", WAYS)
def test_delays_pass_at_once_and_attempts_are_made(way: str) -> None:
    """Under ``no_wait()`` a call makes as many attempts as ever; ``attempts`` is a cap and adds none."""
    with no_wait():
        assert attempts(WAYS[way]) == 4
    with no_wait(attempts=2):
        assert attempts(WAYS[way]) == 2
    with no_wait(attempts=9):
        assert attempts(WAYS[way]) == 4


@pytest.mark.parametrize("way", WAYS)
def test_a_policy_that_is_switched_off_takes_no_part(way: str) -> None:
    """Under ``disabled()`` one attempt is made in every way of calling."""
    with disabled():
        assert attempts(WAYS[way]) == 1


@pytest.mark.parametrize(
    ("what", "charge", "special", "other"),
    [
        (("Retry",), 1, 1, 1),
        ((Retry,), 1, 1, 1),
        (("Timeout",), 4, 4, 4),
        ((Switched.charge,), 1, 1, 4),
        ((Switched.charge, "Timeout"), 4, 4, 4),
        ((Switched.charge, "Timeout", "Retry"), 1, 1, 4),
        ((Switched,), 1, 1, 4),
        ((OfItsOwn,), 4, 1, 4),
        ((OfItsOwn().charge,), 4, 1, 4),
        ((guard,), 4, 4, 1),
        ((guarded,), 4, 4, 1),
        ((guard, OfItsOwn), 4, 1, 1),
    ],
)
def test_annotations_and_targets_choose_the_policies_that_are_switched_off(
    what: tuple[Any, ...], charge: int, special: int, other: int
) -> None:
    """Annotations mean all targets, targets mean all their policies, and both mean those policies of these targets."""
    with no_wait(), disabled(*what):
        assert (attempts(Switched().charge), attempts(OfItsOwn().charge), attempts(guarded)) == (
            charge,
            special,
            other,
        )
    with no_wait():
        assert attempts(OfItsOwn().charge) == attempts(guarded) == 4


class Formed:
    """A class with a method of every form."""

    @classmethod
    @retry(max_retries=3, delay=0, jitter=0)
    def of_class(cls) -> None:
        attempt()

    @staticmethod
    @retry(max_retries=3, delay=0, jitter=0)
    def static() -> None:
        attempt()

    @property
    @retry(max_retries=3, delay=0, jitter=0)
    def prop(self) -> None:
        attempt()


@pytest.mark.parametrize(
    ("target", "call", "declared"),
    [
        (Formed.of_class, Formed.of_class, 4),
        (vars(Formed)["of_class"], Formed.of_class, 4),
        (Formed.static, Formed.static, 4),
        (vars(Formed)["prop"], lambda: Formed().prop, 4),
        (Formed, Formed.static, 4),
    ],
    ids=["class method", "in the class", "static method", "property", "class"],
)
def test_guarded_methods_of_every_form_can_be_named(target: Any, call: Callable[[], Any], declared: int) -> None:
    """A class, and its class methods, static methods and properties are targets."""
    with no_wait():
        assert attempts(call) == declared
        with disabled(target):
            assert attempts(call) == 1


def test_guards_that_stand_above_one_another_are_named_together() -> None:
    """The name of the function means all of them."""

    @guard
    @retry(max_retries=1, delay=0, jitter=0)
    def stacked() -> None:
        attempt()

    with no_wait():
        assert attempts(stacked) == 8
        with disabled(stacked):
            assert attempts(stacked) == 1

    del stacked
    gc.collect()  # others check all that this process guards


def test_a_fallback_is_switched_off_and_asynchronous_only_by_name() -> None:
    """Under ``disabled()`` the failure of the body comes out; the way of calling stays."""

    @asynchronous
    @fallback(lambda *_: 7)
    def offloaded() -> Any:
        raise ConnectionError

    assert offloaded().result() == 7
    with disabled():
        assert isinstance(offloaded().exception(), ConnectionError)
    with disabled("Asynchronous"):
        assert offloaded() == 7


def test_blocks_nest_and_each_undoes_its_own_change() -> None:
    """A policy that an outer block switched off stays off when an inner one ends, in any order of the ends."""
    with no_wait(), disabled("Retry") as nothing:
        with disabled("Retry"), disabled("Timeout"):
            assert attempts(Switched().charge) == 1
        assert nothing is None
        assert attempts(Switched().charge) == 1

    first, second = disabled("Retry"), disabled(Switched)
    with no_wait():
        first.__enter__()
        with second:
            first.__exit__(None, None, None)
            assert attempts(Switched().charge) == 1
        with first, first:
            pass
        assert attempts(Switched().charge) == 4


def test_values_that_are_configured_within_a_block_stay_and_switch_nothing_on() -> None:
    """Neither configuring nor resetting ends the block; afterwards the newest configuration holds."""
    with no_wait():
        with configured({"Retry/maxRetries": 2}), disabled("Retry"):
            configure(properties={"Retry/enabled": True, "Retry/maxRetries": 1})
            reload()
            assert attempts(Switched().charge) == 1
        assert attempts(Switched().charge) == 4

        with disabled("Retry"):
            reset()
            configure(properties={"Retry/maxRetries": 1})
            with configured({"Timeout/value": 60_000}):
                assert attempts(Switched().charge) == 1
            assert attempts(Switched().charge) == 1
        assert attempts(Switched().charge) == 2


@pytest.mark.parametrize(
    "present",
    [
        {"Retry/maxRetries": 4, "Retry/delay": 0},
        {"Retry": {"maxRetries": 4, "delay": 0}},
        {"config_ordinal": 600, "Retry/max_retries": 4, "Retry/delay": 0},
    ],
)
@pytest.mark.parametrize("key", [{"Retry/maxRetries": 1}, {"Retry/max_retries": 1}, {"Retry": {"maxRetries": 1}}])
def test_keys_of_a_block_win_in_any_spelling_and_leave_the_others(present: dict[str, Any], key: dict[str, Any]) -> None:
    """Those of ``configure(properties=...)`` are spelled alike or otherwise, nested or not."""
    guarded = retry(max_retries=9, delay=70)(lambda: None)
    configure(properties=present)

    with configured(key):
        within = explain(guarded, all=True)
    behind = explain(guarded, all=True)

    assert "maxRetries = 1 " in within
    assert "delay = 0s " in within
    assert "maxRetries = 4 " in behind


def test_a_block_that_outlives_a_configured_one_goes_on() -> None:
    """``configured`` restores the configuration, and not the policies that tests have switched off since."""
    off = disabled("Retry")
    with no_wait(), configured({"Retry/maxRetries": 1}):
        off.__enter__()
    with no_wait():
        assert attempts(Switched().charge) == 1
        off.__exit__(None, None, None)
        assert attempts(Switched().charge) == 4


def test_keys_of_a_block_hold_until_it_ends_whatever_else_ends_first() -> None:
    """Blocks of threads, or of fixtures of several scopes, end in any order, and each takes its own keys away."""

    def values() -> tuple[bool, bool]:
        text = explain(Switched.charge, all=True)
        return "maxRetries = 1 " in text, "delay = 7ms " in text

    first, second = configured({"Retry/maxRetries": 1}), configured({"Retry/delay": 7})
    first.__enter__()
    second.__enter__()
    seen = [values()]
    first.__exit__(None, None, None)
    seen.append(values())
    second.__exit__(None, None, None)
    seen.append(values())

    assert seen == [(True, True), (False, True), (False, False)]


def test_blocks_with_equal_keys_are_told_apart() -> None:
    """Each block takes its own keys away, also where others have the same."""
    first, second, third = (configured({"Retry/maxRetries": 1}) for _ in range(3))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    third.__enter__()
    second.__exit__(None, None, None)
    within = explain(Switched.charge, all=True)
    third.__exit__(None, None, None)
    behind = explain(Switched.charge, all=True)

    assert "maxRetries = 1 " in within
    assert "maxRetries = 3 " in behind


def test_keys_of_blocks_of_several_threads_all_go() -> None:
    """The blocks may begin and end at the same time."""
    with no_wait():
        attempts(Switched().charge)  # a change takes its time with each guard in use

    def run() -> None:
        for _ in range(60):
            with configured({"Retry/maxRetries": 1}):
                pass

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert "maxRetries = 3 " in explain(Switched.charge, all=True)


def test_a_block_that_ends_at_any_moment_while_another_begins_leaves_no_keys() -> None:
    """The other block follows all changes, also those that are made while it reads them."""
    with no_wait():
        attempts(Switched().charge)

    left = []
    for strike in strikes("configure.py", "settings.py", "resolve/transaction.py"):
        first, second = configured({"Retry/maxRetries": 1}), configured({"Timeout/value": 7})
        first.__enter__()
        strike.handle = lambda first=first: first.__exit__(None, None, None)
        with strike:
            second.__enter__()
        if not strike.where:
            first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        if "maxRetries = 3 " not in explain(Switched.charge, all=True):
            left.append(strike.where)

    assert not left


def test_keys_of_a_block_hold_after_a_reset_and_over_what_is_configured_within() -> None:
    """A fixture of the whole session may set keys although every test begins by a reset."""
    with configured({"Retry/maxRetries": 1}), no_wait():
        reset()
        counts = [attempts(Switched().charge)]
        configure(properties={"Retry/maxRetries": 2})
        counts.append(attempts(Switched().charge))
        reset()
    with no_wait():
        counts.append(attempts(Switched().charge))

    assert counts == [2, 2, 4]


def test_functions_that_are_declared_within_a_block_are_switched_off_too() -> None:
    """This holds for a function that nobody has called, and for a class that is made within."""
    with disabled("Retry"):

        class Late(Switched):
            pass

        assert attempts(Late().charge) == 1
        assert attempts(retry(max_retries=3, delay=LONG, max_duration=0)(attempt)) == 1


def test_other_threads_see_the_switch() -> None:
    """The switch belongs to the process."""
    seen: list[int] = []
    with disabled("Retry"):
        thread = threading.Thread(target=lambda: seen.append(attempts(Switched().charge)))
        thread.start()
        thread.join()

    assert seen == [1]


def test_disabled_and_no_wait_are_decorators() -> None:
    """They decorate functions and coroutine functions; a call within a call nests."""

    @disabled("Retry")
    def plain(times: int = 1) -> int:
        return attempts(Switched().charge) if not times else plain(times - 1)

    @disabled("Retry")
    async def awaited() -> None:
        await asyncio.sleep(0)
        await Switched().charge_async()

    assert plain() == 1
    assert attempts(awaited) == 1
    with no_wait():
        assert attempts(Switched().charge) == 4


def test_a_fixture_that_yields_has_a_block_inside() -> None:
    """A decorator would end before the fixture begins."""

    def yielding() -> Iterator[int]:
        yield 1

    async def yielding_async() -> AsyncIterator[int]:
        yield 1

    for fixture in (yielding, yielding_async):
        with refused("@testing.no_wait", "yielding", "has a block"):
            no_wait(attempts=2)(fixture)


def test_explain_says_that_a_test_switched_a_policy_off() -> None:
    """Otherwise the reader would look for a variable that nobody set."""
    with disabled("Retry"), no_wait(attempts=2):
        assert "switched off by testing.disabled()" in explain(Switched().charge)
        assert "maxRetries = 1  [testing.no_wait(attempts)]" in explain(guard)


def test_events_tell_the_delays_that_would_have_been() -> None:
    """Back-off can be looked at without waiting for it."""
    told: list[float] = []
    set_event_sinks([lambda event: told.append(event.delay) if isinstance(event, RetryScheduled) else None])
    with no_wait():
        attempts(Switched().charge)

    assert told == [3600.0] * 3


def test_time_outs_and_hedges_take_their_time() -> None:
    """Only the delays between attempts are left out, not a block or a time-out."""

    @retry(max_retries=1, delay=LONG, max_duration=0)
    @timeout(30)
    def late() -> None:
        sleep(5)

    @hedge(delay=LONG)
    async def hedged() -> float:
        began = time.monotonic()
        await asyncio.sleep(0.01)
        made.append(1)
        return time.monotonic() - began

    made.clear()
    began = time.monotonic()
    with no_wait():
        with pytest.raises(TimeoutException):
            late()
        asyncio.run(hedged())

    assert 0.05 <= time.monotonic() - began < 5
    assert made == [1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: disabled("retry"), ("'retry'", "did you mean 'Retry'")),
        (lambda: disabled(attempt), ("not guarded", "a guarded function")),
        (lambda: disabled(int), ("not guarded",)),
        (lambda: disabled(3), ("not guarded",)),
        (lambda: no_wait(attempts=0), ("no_wait(attempts)", "is 0", ">= 1")),
        (lambda: no_wait(attempts=True), ("is True",)),
        (lambda: disabled()(Switched), ("@testing.disabled", "a function")),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(make: Callable[[], object], words: tuple[str, ...]) -> None:
    """The error names the argument, the place, the value and the allowed ones, before anything is switched."""
    with refused(*words):
        make()
