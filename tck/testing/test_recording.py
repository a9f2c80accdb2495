"""Calls that a test records, attempt by attempt, and the events that it captures."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from faulttolerance import (
    Guard,
    asynchronous,
    bulkhead,
    circuit_breaker,
    coalesce,
    configure,
    deadline,
    fallback,
    hedge,
    partition_by,
    rate_limit,
    retry,
    retry_budget,
    retry_when,
    sleep,
    timeout,
)
from faulttolerance._event import sinks
from faulttolerance.instrumentation import (
    FallbackApplied,
    GaveUp,
    Rejected,
    RetryScheduled,
    TimedOut,
    get_event_sinks,
    set_event_sinks,
)
from faulttolerance.policies import Retry
from faulttolerance.testing import (
    RecordedCall,
    captured_events,
    configured,
    disabled,
    no_wait,
    recorded,
    reset,
    virtual_time,
)
from kit.definition import refused

T = TypeVar("T")


class Outage(Exception):
    def __repr__(self) -> str:
        return "Outage()"


class Recorded:
    """The same guarded call in four ways of calling."""

    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(100)
    def call(self, mood: str, *, then: str = "ok") -> str:
        if mood == "slow":
            sleep(5)
        return answer(mood, then)

    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(100)
    async def call_async(self, mood: str, *, then: str = "ok") -> str:
        if mood == "slow":
            await asyncio.sleep(5)
        return answer(mood, then)

    @asynchronous
    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(100)
    def call_offloaded(self, mood: str, *, then: str = "ok") -> Any:
        if mood == "slow":
            sleep(5)
        return answer(mood, then)

    @asynchronous
    @retry(max_retries=2, delay=20, jitter=0)
    @timeout(100)
    async def call_as_task(self, mood: str, *, then: str = "ok") -> str:
        if mood == "slow":
            await asyncio.sleep(5)
        return answer(mood, then)


def answer(mood: str, then: str) -> str:
    if mood:
        raise Outage
    return then


def ended(call: Callable[[], Any]) -> None:
    """Run a call to its end, in any way of calling and with any outcome."""

    async def awaited() -> None:
        await outcome

    try:
        outcome = call()
        if isinstance(outcome, Awaitable):
            asyncio.run(awaited())
    except Exception:  # it is what is recorded
        pass


def test_a_call_is_recorded_until_it_is_over_although_the_block_was_left() -> None:
    """Its further delays and attempts count, and no sink remains afterwards."""
    begun, may_fail = asyncio.Event(), asyncio.Event()
    outcomes = [None, Outage("down"), Outage("down")]

    @retry(max_retries=3, delay=20, jitter=0)
    async def fetch() -> None:
        begun.set()
        await may_fail.wait()
        if failure := outcomes.pop():
            raise failure

    async def leave_early() -> list[RecordedCall]:
        with recorded(fetch) as calls:
            task = asyncio.create_task(fetch())
            await begun.wait()
        may_fail.set()
        await task
        return calls

    with no_wait():
        [call] = asyncio.run(leave_early())
    assert [(one.number, one.hedge) for one in call.attempts] == [(1, 0), (2, 0), (3, 0)]
    assert (call.outcome, call.delays) == ("returned", (0.02, 0.02))
    assert not sinks.taps


WAYS = ("call", "call_async", "call_offloaded", "call_as_task")


@pytest.mark.parametrize("way", WAYS)
def test_a_recorded_call_has_its_attempts_its_delays_and_the_reason_of_its_end(way: str) -> None:
    """This holds in every way of calling, for calls that succeed, that fail and that are late."""
    with no_wait(), recorded(getattr(Recorded, way)) as calls:
        method = getattr(Recorded(), way)
        ended(lambda: method("", then="fine"))
        ended(lambda: method("down"))
        ended(lambda: method("slow"))
    ended(lambda: method("after the block"))

    well, failed, late = calls
    assert (well.args, well.kwargs, well.outcome, well.result) == (("",), {"then": "fine"}, "returned", "fine")
    assert [attempt.outcome for attempt in well.attempts] == ["returned"]
    assert (well.stop, well.delays, well.refusals) == ("", (), ())
    assert [attempt.outcome for attempt in failed.attempts] == ["raised"] * 3
    assert [attempt.number for attempt in failed.attempts] == [1, 2, 3]
    assert (failed.delays, failed.stop, failed.outcome) == ((0.02, 0.02), "max_retries reached", "raised")
    assert isinstance(failed.failure, Outage)
    assert [attempt.outcome for attempt in late.attempts] == ["timed out"] * 3
    left_behind = way == "call_offloaded"  # an attempt that has not ended yet has not taken any time
    # A busy machine may begin an attempt long after the time-out has begun.
    assert all(0.01 < (attempt.seconds or left_behind) < 5 for attempt in late.attempts)


def test_a_recorded_call_reads_as_a_sentence() -> None:
    """A failing assertion shows what happened."""
    with no_wait(), recorded(Recorded.call) as calls:
        ended(lambda: Recorded().call("down", then="never"))

    assert repr(calls) == (
        f"[<{__name__}.Recorded.call('down', then='never'): 1 raised Outage(), then 0.02 s; 2 raised Outage(),"
        " then 0.02 s; 3 raised Outage(); raised Outage(), because max_retries reached>]"
    )


def test_a_failure_whose_repr_fails_is_shown_all_the_same() -> None:
    """A recorded call can be printed, whatever an exception of the application does."""

    class Unspeakable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError

    @retry(max_retries=0)
    def call() -> None:
        raise Unspeakable

    with recorded(call) as calls, pytest.raises(Unspeakable):
        call()

    assert "1 raised a " in repr(calls)
    assert "its repr fails with RuntimeError" in repr(calls)


def test_refusals_and_fallbacks_are_recorded() -> None:
    """A refusal has the annotation of its policy; an attempt that was refused never began."""

    @fallback(lambda *_: "cached")
    @circuit_breaker(request_volume_threshold=2)
    def query() -> str:
        raise Outage

    with recorded(query) as calls:
        for _ in range(3):
            query()

    assert [call.refusals for call in calls] == [(), (), ("CircuitBreaker",)]
    assert [call.attempts[0].outcome for call in calls] == ["raised", "raised", "refused"]
    assert {(call.result, call.fallback) for call in calls} == {("cached", True)}
    assert "1 refused by CircuitBreaker; returned 'cached', after a fallback was called" in repr(calls[2])


def test_refusals_between_retries_and_reasons_are_recorded() -> None:
    """A rate limit refuses in the middle, and a budget ends the call."""

    @retry(max_retries=9, delay=0, jitter=0)
    @retry_budget(burst=3)
    @rate_limit(2)
    def query() -> None:
        raise Outage

    with recorded(query) as calls:
        ended(query)

    assert [attempt.outcome for attempt in calls[0].attempts] == ["raised", "raised", "refused", "refused"]
    assert (calls[0].refusals, calls[0].stop) == (("RateLimit",) * 2, "the retry budget is spent")


def test_a_result_that_was_not_accepted_is_told_apart() -> None:
    """The attempt returned, and another one followed."""

    @retry_when(result=lambda result: result < 2)
    @retry(delay=0, jitter=0)
    def poll() -> int:
        states.append(1)
        return len(states)

    states: list[int] = []
    with recorded(poll) as calls:
        poll()

    assert [(attempt.outcome, attempt.result) for attempt in calls[0].attempts] == [
        ("not accepted", 1),
        ("returned", 2),
    ]
    assert "1 returned 1, which was not accepted" in repr(calls[0])


def test_a_hedge_stands_beside_its_attempt() -> None:
    """The record has both attempts, and shows which of them lost."""

    @hedge(delay=1_000)
    async def fetch() -> int:
        began.append(1)
        await asyncio.sleep(100 if len(began) == 1 else 1)
        return len(began)

    began: list[int] = []
    with virtual_time() as clock, recorded(fetch) as calls:
        assert clock.run(fetch()) == 2

    assert [(one.number, one.hedge, one.outcome) for one in calls[0].attempts] == [
        (1, 0, "cancelled"),
        (1, 1, "returned"),
    ]
    assert calls[0].attempts[1].began - calls[0].attempts[0].began == 1.0
    assert calls[0].seconds == pytest.approx(2.0)


def test_retries_have_their_numbers_where_a_policy_stands_between_retry_and_attempt() -> None:
    """Events and records count the attempts of the call, also inside a hedge or an observed time-out."""

    @retry(max_retries=2, jitter=0)
    @hedge(delay=5_000)
    @timeout(100)
    async def fetch() -> None:
        await asyncio.sleep(1)

    @retry(max_retries=2, jitter=0)
    @bulkhead(1)
    @timeout(100)
    def descend(levels: int) -> None:
        if levels:
            descend(levels - 1)

    @retry(max_retries=2, jitter=0)
    @hedge(delay=5_000)
    @circuit_breaker(request_volume_threshold=1)
    async def break_circuit() -> None:
        raise Outage

    with virtual_time() as clock, captured_events() as events, recorded(fetch) as calls:
        ended(lambda: clock.run(fetch()))
    with configured({"Timeout/mode": "observe"}), virtual_time(), captured_events() as refusals:
        ended(lambda: descend(1))
    with virtual_time() as clock, captured_events() as breaks:
        ended(lambda: clock.run(break_circuit()))

    assert [event.attempt for event in events if isinstance(event, TimedOut)] == [1, 2, 3]
    assert [(one.number, one.outcome) for one in calls[0].attempts] == [(n, "timed out") for n in (1, 2, 3)]
    assert [event.attempt for event in refusals if isinstance(event, Rejected)][:3] == [1, 2, 3]
    assert [event.attempt for event in breaks if isinstance(event, Rejected)] == [2, 3]


def test_concurrent_calls_are_told_apart() -> None:
    """The calls are in tasks of one loop, on threads, and on threads of the pool; each event goes to its own call."""
    client, moods = Recorded(), ["", "down"] * 8

    async def main() -> None:
        await asyncio.gather(*(client.call_async(mood) for mood in moods), return_exceptions=True)

    with no_wait(), recorded(Recorded) as calls:
        asyncio.run(main())
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda mood: ended(lambda: client.call(mood)), moods))
        for future in [client.call_offloaded(mood) for mood in moods]:
            future.exception()

    assert len(calls) == 3 * len(moods)
    assert all(
        (len(call.attempts), len(call.delays)) == ((3, 2) if call.args == ("down",) else (1, 0)) for call in calls
    )


def test_nested_calls_have_their_own_events() -> None:
    """A guarded function may call another one, or itself; calls that are not recorded are not mixed in."""

    @retry(max_retries=1, delay=0, jitter=0)
    def inner() -> None:
        raise Outage

    @retry(max_retries=1, delay=0, jitter=0)
    def outer(depth: int) -> None:
        outer(depth - 1) if depth else inner()

    with recorded(outer) as calls:
        ended(lambda: outer(1))
    assert [(call.args, len(call.attempts)) for call in calls] == [((1,), 2), ((0,), 2), ((0,), 2)]

    with recorded(inner) as calls, recorded(outer) as others, recorded(inner) as again:
        ended(lambda: outer(0))
    assert [len(list_of) for list_of in (calls, others, again)] == [2, 1, 2]
    assert {(len(call.attempts), call.stop) for call in (*calls, *others, *again)} == {(2, "max_retries reached")}


def test_guards_and_their_blocks_are_recorded() -> None:
    """Recorded are calls of a ``Guard`` and of its decorated functions, and each block or loop of blocks."""
    guard = Guard(retry=Retry(max_retries=1, delay=0, jitter=0))

    @guard
    def decorated(mood: str) -> str:
        return answer(mood, "ok")

    async def main() -> None:
        async for attempt in guard.attempts():
            async with attempt:
                await asyncio.sleep(0)
        await guard.call_async(Recorded().call_async.__wrapped__, Recorded(), "")  # type: ignore[attr-defined]

    def block(mood: str) -> None:
        for attempt in guard.attempts():
            with attempt:
                answer(mood, "")

    with recorded(guard) as calls:
        ended(lambda: decorated("down"))
        guard.call(answer, "", "ok")
        ended(lambda: block("down"))
        with guard.attempt():
            pass
        asyncio.run(main())
    assert [(call.outcome, len(call.attempts)) for call in calls] == [
        ("raised", 2),
        ("returned", 1),
        ("raised", 2),
        ("returned", 1),
        ("returned", 1),
        ("returned", 1),
    ]
    assert [call.args for call in calls[:3]] == [("down",), ("", "ok"), ()]


def test_recording_works_with_the_rest_of_the_kit() -> None:
    """The rest is policies that are switched off, configured values, a reset, keys, and virtual time."""

    @partition_by("key")
    @bulkhead(1)
    def keyed(key: str) -> str:
        return key

    with recorded(Recorded.call) as calls, recorded(keyed) as others:
        with disabled():
            ended(lambda: Recorded().call("down"))
        configure(properties={"Retry/maxRetries": 1})
        ended(lambda: Recorded().call("down"))
        reset()
        with virtual_time():
            ended(lambda: Recorded().call("down"))
        keyed("a")
    assert [len(call.attempts) for call in calls] == [1, 2, 3]
    assert calls[2].seconds == pytest.approx(0.04)
    assert [(call.args, call.result) for call in others] == [(("a",), "a")]


def test_a_call_that_runs_or_is_cancelled_says_so() -> None:
    """A call under way has no end yet; control flow is no failure."""

    @retry
    async def wait() -> None:
        await asyncio.Event().wait()

    async def main() -> list[RecordedCall]:
        with recorded(wait) as calls:
            task = asyncio.create_task(wait())
            await asyncio.sleep(0.01)
            assert (calls[0].outcome, calls[0].attempts[0].outcome, calls[0].seconds) == ("running", "running", None)
            task.cancel()
            await asyncio.wait([task])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await wait()
        return calls

    assert [call.outcome for call in asyncio.run(main())] == ["cancelled", "cancelled"]

    @timeout(10_000)
    def interrupted() -> None:
        sleep(5)

    with recorded(interrupted) as calls:
        ended(lambda: within(interrupted))
    assert calls[0].outcome == calls[0].attempts[0].outcome == "cancelled"


@pytest.mark.parametrize("error", [SystemExit("over"), KeyboardInterrupt(), pytest.fail.Exception("wrong")], ids=repr)
def test_an_exception_that_is_no_cancellation_is_raised(error: BaseException) -> None:
    """It ends the call from inside, whether or not it is an ``Exception``."""

    @retry
    def stop() -> None:
        raise error

    with recorded(stop) as calls, pytest.raises(type(error)):
        stop()

    assert calls[0].outcome == calls[0].attempts[0].outcome == "raised"
    assert f"1 raised {error!r}; raised {error!r}" in repr(calls[0])


def test_a_busy_body_is_interrupted_as_ever() -> None:
    """The code that records a call neither blocks an interruption nor loses it."""

    @timeout(200)
    def inner() -> None:
        while True:
            pass

    @timeout(100)
    def outer() -> None:
        inner()

    with recorded(outer) as calls, recorded(inner) as others, recorded(inner):
        ended(outer)
        ended(inner)

    assert [call.attempts[0].outcome for call in calls] == ["timed out"]
    assert [call.attempts[0].outcome for call in others] == ["cancelled", "timed out"]


def test_a_call_that_shares_a_result_makes_no_attempt() -> None:
    """The call is recorded with its end."""

    @coalesce
    async def fetch() -> int:
        await asyncio.sleep(0)
        return 7

    async def main() -> None:
        await asyncio.gather(fetch(), fetch())

    with recorded(fetch) as calls:
        asyncio.run(main())

    assert [(len(call.attempts), call.result) for call in calls] == [(1, 7), (0, 7)]
    assert "no attempt; returned 7" in repr(calls[1])


def within(function: Callable[[], None]) -> None:
    with deadline(300):
        function()


def test_events_are_captured_beside_the_sinks() -> None:
    """The sinks of the application are told as ever, and may change; blocks nest."""
    told: list[object] = []
    set_event_sinks([told.append])
    with no_wait(), captured_events() as outer:
        before = get_event_sinks()
        with captured_events() as events:
            ended(lambda: Recorded().call("down"))
        set_event_sinks([])
        fallback(lambda *_: 0)(Recorded().call)("down")
        assert before == (told.append,)

    assert [type(event) for event in events] == [RetryScheduled, RetryScheduled, GaveUp] == [*map(type, told)]
    assert [type(event) for event in outer[3:]] == [RetryScheduled, RetryScheduled, GaveUp, FallbackApplied]
    assert all(event.method.endswith("Recorded.call") for event in events)


@fallback(lambda *_: 0)
def fall_back() -> int:
    raise Outage


def test_events_of_other_threads_are_captured() -> None:
    """Any thread of the process may make the call."""
    with no_wait(), captured_events() as events:
        thread = threading.Thread(target=lambda: ended(lambda: Recorded().call("down")))
        thread.start()
        thread.join()

    assert len(events) == 3


def test_a_function_that_is_not_guarded_cannot_be_recorded() -> None:
    """It is refused before the block begins."""
    with refused("testing.recorded", "not guarded"):
        recorded(answer)


def test_the_message_says_how_to_name_a_guarded_function_below_other_decorators() -> None:
    """They may do anything with it, so a test says that it means the function below."""

    def decorate(function: Callable[[], str]) -> Callable[[], str]:
        return functools.wraps(function)(lambda: function())

    @decorate
    @functools.cache
    @retry
    def fetch() -> str:
        return "fresh"

    with refused("testing.recorded", "not guarded", "its __wrapped__"):
        recorded(fetch)
    with recorded(fetch.__wrapped__.__wrapped__) as calls:  # type: ignore[attr-defined]
        fetch()

    assert len(calls) == 1
