"""Waiting for a turn under a rate limit, through public names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pydantic_settings")

import faulttolerance
from faulttolerance import (
    ChronoUnit,
    Future,
    Guard,
    RateLimitException,
    TimeoutException,
    asynchronous,
    completed_future,
    explain,
    guards,
    rate_limit,
    retry,
    timeout,
    validate,
)
from faulttolerance.policies import RateLimit, Retry, Timeout
from faulttolerance.testing import VirtualClock, configured, virtual_time
from kit.definition import refused
from kit.tiers import few_and_many

WAYS = ("blocking", "asyncio", "offloaded", "task")
every_way = pytest.mark.parametrize("way", WAYS)


class Line:
    """Calls of one function at given times; when each was let through, and how it ended."""

    def __init__(self, way: str, decorate: Callable[[Any], Any]) -> None:
        self.way = way
        self.ends: dict[str, Any] = {}
        self.let_through: dict[str, float] = {}
        self._began = 0.0

        def service(name: str) -> str:
            self.let_through[name] = self.now
            return name

        async def service_async(name: str) -> str:
            return service(name)

        def offloaded(name: str) -> Future[str]:
            return completed_future(service(name))

        ways: dict[str, Any] = {"blocking": service, "asyncio": service_async}
        ways |= {"offloaded": asynchronous(offloaded), "task": asynchronous(service_async)}
        self.method = decorate(ways[way])

    @property
    def now(self) -> float:
        return round(self._clock.monotonic() - self._began, 3)

    def play(self, *calls: tuple[float, str], cancel: tuple[tuple[float, str], ...] = (), patience: float = 60) -> Line:
        """Make the calls; those of *cancel* are cancelled, or interrupted if they are synchronous."""
        with virtual_time() as clock:
            self._clock, self._began = clock, clock.monotonic()
            until = {name: at for at, name in cancel}
            if self.way == "blocking":
                futures = []
                for at, name in calls:
                    clock.sleep(max(0.0, self._began + at - clock.monotonic()))
                    seconds = until.get(name, self.now + patience) - self.now
                    futures.append(clock.start(self._call, name, seconds))
                    clock.advance(0)  # it comes to its place before the next one begins, were it at the same moment
                for future in futures:
                    future.result(30)
            else:
                clock.run(self._play(clock, calls, until))
        return self

    def _call(self, name: str, seconds: float) -> None:
        try:
            self.ends[name] = Guard(timeout=Timeout(seconds * 1000)).call(self.method, name)
        except Exception as error:
            self.ends[name] = error

    async def _play(self, clock: VirtualClock, calls: tuple[tuple[float, str], ...], until: dict[str, float]) -> None:
        made = []
        for at, name in calls:
            await asyncio.sleep(max(0.0, self._began + at - clock.monotonic()))
            call = self.method(name)
            if self.way == "offloaded":
                call = asyncio.wrap_future(call)
            call = asyncio.ensure_future(call)
            if name in until:
                asyncio.get_running_loop().call_later(until[name] - self.now, call.cancel)
            made.append((name, call))
        for name, call in made:
            (self.ends[name],) = await asyncio.gather(call, return_exceptions=True)


@every_way
@pytest.mark.parametrize("kind", ["fixed", "rolling", "smooth"])
def test_a_call_waits_for_its_turn_where_that_comes_soon_enough(way: str, kind: Any) -> None:
    """By rule RL1: each waits for its own turn; a call whose turn is too late is refused at once, with that time."""
    line = Line(way, rate_limit(1, type=kind, max_wait=2000)).play((0, "a"), (0.1, "b"), (0.2, "c"), (0.3, "d"))

    assert line.let_through == {"a": 0, "b": 1, "c": 2}
    assert isinstance(line.ends["d"], RateLimitException)
    assert line.ends["d"].retry_after == pytest.approx(2.7)


@every_way
def test_a_call_that_gives_up_gives_its_turn_back_and_the_others_move_up(way: str) -> None:
    """By rule RL1: the first call of the line, one in its middle, and the last."""
    calls = [(0.1 * number, str(number)) for number in range(8)]
    line = Line(way, rate_limit(1, max_wait=9000)).play(*calls, cancel=((0.9, "1"), (0.95, "4"), (0.97, "7")))

    assert line.let_through == {"0": 0, "2": 1, "3": 2, "5": 3, "6": 4}


@every_way
def test_a_wait_that_a_deadline_forbids_is_not_begun(way: str) -> None:
    """By rule RL1: the call is refused at once, and its turn is free for others."""
    line = Line(way, rate_limit(1, max_wait=9000))

    if way == "blocking":
        line.play((0, "a"), (0.1, "b"), patience=0.5)
        assert isinstance(line.ends["b"], RateLimitException)
        return

    async def main(clock: VirtualClock) -> None:
        await line.method("a") if way != "offloaded" else await asyncio.wrap_future(line.method("a"))
        began = clock.monotonic()
        guard = Guard(timeout=Timeout(500))

        async def call() -> Any:
            return await (asyncio.wrap_future(line.method("b")) if way == "offloaded" else line.method("b"))

        with pytest.raises(RateLimitException):
            await guard.call_async(call)
        assert clock.monotonic() == began

    with virtual_time() as clock:
        line._clock = clock
        clock.run(main(clock))


def test_the_time_out_begins_with_the_turn_and_the_retry_before_it() -> None:
    """The order of the policies: the rate limit is outside the time-out and inside the retry."""
    with virtual_time() as clock:

        @retry(max_retries=5, max_duration=1800, delay=0, jitter=0)
        @rate_limit(1, max_wait=5000)
        @timeout(500)
        def service() -> None:
            faulttolerance.sleep(0.4)
            raise OSError

        began = clock.monotonic()
        with pytest.raises(OSError):
            service()

    assert round(clock.monotonic() - began, 1) >= 1.4


def test_a_deadline_ends_the_wait_and_the_limit_stays_whole() -> None:
    """By rule RL1: an interruption before the turn leaves it to the next caller."""
    with virtual_time() as clock:
        guard = Guard(rate_limit=RateLimit(1, window=10, max_wait=20_000), name="turns")
        guard.call(lambda: None)
        began = clock.monotonic()
        waiting = clock.start(Guard(timeout=Timeout(15_000)).call, guard.call, lambda: "first")
        clock.sleep(1)
        with pytest.raises(RateLimitException):
            Guard(timeout=Timeout(5000)).call(guard.call, lambda: None)
        assert guard.call(lambda: "second") == "second"
        assert waiting.result() == "first"

    assert round(clock.monotonic() - began) == 20


def test_a_limit_that_grows_lets_those_in_that_wait() -> None:
    """A reload moves their turns up, without a call that comes or leaves."""
    with virtual_time() as clock, configured({"RateLimit/window": "100"}):
        through: list[float] = []

        @rate_limit(1, max_wait=900_000)
        def service() -> None:
            through.append(round(clock.monotonic() - began))

        began = clock.monotonic()
        calls = [clock.start(service) for _ in range(4)]
        clock.sleep(5)
        with configured({"RateLimit/value": "3", "RateLimit/window": "100"}):
            clock.sleep(1)
            early = sorted(through)
            for call in calls:
                call.result(30)

    assert early == [0, 5, 5]
    assert sorted(through) == [0, 5, 5, 100]


@few_and_many("calls", 2_000, 10_000)
def test_thousands_of_tasks_wait_without_waking_one_another(calls: int) -> None:
    """By rule RL1, B33: one wake-up each, a thousand per second in the order of arrival, and the limit holds."""
    through: list[int] = []

    @rate_limit(1000, max_wait=60_000)
    async def service(number: int) -> None:
        through.append(number)

    with virtual_time() as clock:

        async def main() -> float:
            began = clock.monotonic()
            await asyncio.gather(*(service(number) for number in range(calls)))
            return clock.monotonic() - began

        seconds = clock.run(main())

    assert [number // 1000 for number in through] == [number // 1000 for number in range(calls)]
    assert round(seconds, 3) == calls // 1000 - 1


def test_several_loops_and_threads_wait_in_one_line() -> None:
    """By rule RL1, B34: the line is one for all environments; a loop that ended before leaves nothing behind."""
    guard = Guard(rate_limit=RateLimit(1, window=0.05, max_wait=5000), name="turns of several loops")

    async def one() -> None:
        await guard.call_async(asyncio.sleep, 0)

    async def several() -> None:
        await asyncio.gather(*(one() for _ in range(3)))

    asyncio.run(several())
    asyncio.run(several())
    guard.call(lambda: None)

    (found,) = [one for one in guards() if one.name == "turns of several loops"]
    counts = {
        dict(tags).get("rateLimitResult"): count for (name, tags), count in found.counts.items() if "rate" in name
    }
    assert counts == {"permitted": 7, "rejected": 0}


# burst


def test_a_smooth_limit_lets_one_at_a_time_through_unless_a_burst_is_allowed() -> None:
    """``burst`` is how many may come at once after a rest."""
    with virtual_time() as clock:
        for burst in (1, 3):
            guard = Guard(rate_limit=RateLimit(10, type="smooth", burst=burst), name=f"burst{burst}")
            guard.call(lambda: None)
            clock.sleep(60)
            for _ in range(burst):
                guard.call(lambda: None)
            with pytest.raises(RateLimitException) as raised:
                guard.call(lambda: None)
            assert raised.value.retry_after == pytest.approx(0.1)
            guard.close()


# declared and configured


@pytest.mark.parametrize(("name", "wrong"), [("max_wait", -1), ("max_wait", "x"), ("burst", 0), ("burst", 1.5)])
def test_wrong_values_are_refused(name: str, wrong: Any) -> None:
    """The error says what is allowed."""
    with refused(f"@RateLimit({name})", "allowed:"):
        rate_limit(5, type="smooth", **{name: wrong})(lambda: None)


@pytest.mark.parametrize("way", ["declared", "value", "configured"])
def test_a_limit_that_no_call_asked_yet_has_rested(way: str) -> None:
    """Rule RL1: the first calls of a program may come at once as those after a rest do, as many as ``burst`` says."""
    keys = {"RateLimit/burst": "3"} if way == "configured" else {}
    with virtual_time(), configured(keys):
        if way == "value":
            guard = Guard(rate_limit=RateLimit(10, type="smooth", burst=3))
            send = lambda: guard.call(lambda: "sent")  # noqa: E731
        else:
            send = rate_limit(10, type="smooth", burst=1 if keys else 3)(lambda: "sent")
        assert [send() for _ in range(3)] == ["sent"] * 3
        with pytest.raises(RateLimitException) as raised:
            send()
        assert raised.value.retry_after == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["fixed", "ROLLING"])
def test_a_burst_is_for_smooth_limits(kind: Any) -> None:
    """It would mean nothing elsewhere; configured values say so, too."""
    with refused("@RateLimit(burst)", "is 3", "1, unless the type is smooth"):
        rate_limit(5, type=kind, burst=3)(lambda: None)

    @rate_limit(5, type="smooth", burst=3)
    def service() -> None: ...

    with configured({"RateLimit/type": kind}), refused("burst", "1, unless the type is smooth"):
        validate()
        service()


def test_units_are_named_as_in_the_configuration() -> None:
    """Every parameter that takes an enumeration takes the name of a member, in letters of any case."""
    limited = rate_limit(5, window=2, window_unit="minutes", min_spacing_unit="Millis")(lambda: 1)  # type: ignore[call-overload]

    assert "windowUnit = MINUTES" in explain(limited)
    assert RateLimit(window_unit="minutes") == RateLimit(window_unit=ChronoUnit.MINUTES)
    assert Timeout(3, "seconds") == Timeout(3, ChronoUnit.SECONDS)
    assert Retry(delay=1, delay_unit="half_days", max_duration=0).delay_unit is ChronoUnit.HALF_DAYS
    with refused("@RateLimit(window)", "is 0"):
        RateLimit(window=0, window_unit="hours")
    with refused("@Timeout(unit)", "'nanos'", "'half_days'"):
        Timeout(3, "fortnights")  # type: ignore[arg-type]


def test_a_call_that_waits_holds_no_other_up() -> None:
    """A time-out of another guard passes while one waits."""
    with virtual_time() as clock:
        guard = Guard(rate_limit=RateLimit(1, max_wait=5000))
        guard.call(lambda: None)
        waiting = clock.start(guard.call, lambda: "served")
        with pytest.raises(TimeoutException):
            Guard(timeout=Timeout(100)).call(faulttolerance.sleep, 5)
        assert waiting.result() == "served"
