"""Waiting for a permit through public names: the time, the order, and the outcome of waiters that leave."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("pydantic_settings")

import faulttolerance
from faulttolerance import (
    BulkheadException,
    Future,
    Guard,
    TimeoutException,
    asynchronous,
    bulkhead,
    completed_future,
    criticality,
    explain,
    guards,
    retry,
    timeout,
    validate,
)
from faulttolerance.exceptions import ThrottleException
from faulttolerance.policies import AdaptiveThrottle, Bulkhead, Criticality, Timeout
from faulttolerance.testing import VirtualClock, configured, virtual_time
from kit.definition import refused
from kit.meter import PrometheusMeter

NORMAL = Criticality.NORMAL
Call = tuple[float, str, float, Criticality]
"""When it comes, its name, how long its body takes, how important it is."""
End = tuple[str, float]
"""How a call ended, and when."""


def come(at: float, name: str, seconds: float = 1.0, level: Criticality = NORMAL) -> Call:
    return at, name, seconds, level


class Scene:
    """Calls of one bulkhead one after the other, in one of the ways of calling."""

    def __init__(self, way: str, decorate: Callable[[Any], Any], happen: dict[float, Callable[[], object]]) -> None:
        self.way = way
        self.order: list[str] = []
        """The names of the calls whose bodies ran, in their order."""
        self.ends: dict[str, End] = {}
        self._happen = happen
        self.method = decorate(self._method())

    def _method(self) -> Any:
        order = self.order

        def service(name: str, seconds: float) -> str:
            order.append(name)
            faulttolerance.sleep(seconds)
            return "served"

        async def service_async(name: str, seconds: float) -> str:
            order.append(name)
            await asyncio.sleep(seconds)
            return "served"

        def offloaded(name: str, seconds: float) -> Future[str]:
            return completed_future(service(name, seconds))

        ways: dict[str, Any] = {"blocking": service, "asyncio": service_async}
        ways |= {"offloaded": asynchronous(offloaded), "task": asynchronous(service_async)}
        return ways[self.way]

    def play(self, clock: VirtualClock, *calls: Call) -> dict[str, End]:
        began = clock.monotonic()
        events: list[tuple[float, Callable[[], Any]]] = [
            (call[0], lambda call=call: self._begin(call)) for call in calls
        ]
        events += list(self._happen.items())
        events.sort(key=lambda event: event[0])

        def note(name: str, end: BaseException | str) -> None:
            shown = end if isinstance(end, str) else getattr(end, "reason", type(end).__name__)
            self.ends[name] = shown, round(clock.monotonic() - began, 3)

        self._note = note
        if self.way == "blocking":
            futures = []
            for at, event in events:
                clock.sleep(max(0.0, began + at - clock.monotonic()))
                if (call := event()) is not None and isinstance(call, tuple):
                    futures.append(clock.start(*call))
                    clock.advance(0)  # it comes to its place before the next one begins, were it at the same moment
            clock.sleep(0.0001)
            for future in futures:
                future.result(30)
        else:
            clock.run(self._play(clock, began, events))
        return self.ends

    def _begin(self, call: Call) -> Any:
        _, name, seconds, level = call
        if self.way != "blocking":
            with criticality(level):
                return asyncio.ensure_future(self._call(name, seconds))
        with criticality(level):
            here = contextvars.copy_context()

        def work() -> None:
            try:
                self._note(name, here.run(self.method, name, seconds))
            except BaseException as error:
                self._note(name, error)

        return (work,)

    async def _call(self, name: str, seconds: float) -> None:
        try:
            made = self.method(name, seconds)
            self._note(name, await made)
        except Exception as error:
            self._note(name, error)

    async def _play(self, clock: VirtualClock, began: float, events: list[tuple[float, Callable[[], Any]]]) -> None:
        tasks = []
        for at, event in events:
            await asyncio.sleep(max(0.0, began + at - clock.monotonic()))
            tasks.append(event())
        await asyncio.gather(*(task for task in tasks if task is not None))


WAYS = ("blocking", "asyncio", "offloaded", "task")
every_way = pytest.mark.parametrize("way", WAYS)


def play(way: str, decorate: Callable[[Any], Any], *calls: Call, **happen: Any) -> Scene:
    with virtual_time() as clock:
        scene = Scene(way, decorate, happen.get("happen", {}))
        scene.play(clock, *calls)
    return scene


# duration


@every_way
def test_calls_of_one_moment_come_one_after_the_other(way: str) -> None:
    """By rule Q3: the order of arrival is that of the scene, however often threads are switched."""
    names = [str(number) for number in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(5):
            assert play(way, bulkhead(1, max_wait=9000), *(come(0, name, 0.1) for name in names)).order == names
    finally:
        sys.setswitchinterval(interval)


@every_way
def test_a_call_waits_until_a_permit_is_free(way: str) -> None:
    """By rule Q1, rule RL2: in every way of calling, synchronous ones included."""
    scene = play(way, bulkhead(1, max_wait=300), come(0, "a", 0.2), come(0.1, "b", 0.2))

    assert scene.ends == {"a": ("served", 0.2), "b": ("served", 0.4)}


@every_way
def test_no_call_waits_longer_than_it_may_even_if_the_body_hangs(way: str) -> None:
    """By rule Q2: the wait has a timer of its own; no other call has to arrive or leave."""
    scene = play(way, bulkhead(1, max_wait=300), come(0, "hangs", 50), come(0.1, "b"), come(0.2, "c"))

    assert scene.ends == {"hangs": ("served", 50), "b": ("waited", 0.4), "c": ("waited", 0.5)}
    assert scene.order == ["hangs"]


@every_way
def test_no_call_waits_longer_than_the_target_latency(way: str) -> None:
    """By rule Q1: where the limit adapts and no longest wait is declared; a synchronous call does not wait at all."""
    scene = play(way, bulkhead(1, latency=300), come(0, "hangs", 50), come(0.1, "b"))

    assert scene.ends["b"] == (("full", 0.1) if way == "blocking" else ("waited", 0.4))


def test_synchronous_calls_of_a_guard_do_not_wait_where_others_do(clock: VirtualClock) -> None:
    """By rule Q1: a guard has one bulkhead for both, and a latency makes no synchronous call wait."""
    guard = Guard(bulkhead=Bulkhead(1, latency=300))
    running = clock.start(guard.call, faulttolerance.sleep, 2)
    clock.sleep(0.1)
    with pytest.raises(BulkheadException) as refusal:
        guard.call(lambda: None)

    async def wait() -> str:
        began = clock.monotonic()
        with pytest.raises(BulkheadException) as refusal:
            await guard.call_async(asyncio.sleep, 0)
        return f"{refusal.value.reason} after {clock.monotonic() - began:g} s"

    assert refusal.value.reason == "full"
    assert clock.run(wait()) == "waited after 0.3 s"
    running.result()


@pytest.mark.parametrize("way", ["asyncio", "offloaded", "task"])
def test_a_declared_longest_wait_counts_beside_a_latency(way: str) -> None:
    """By rule Q1: the declared wait counts, longer or shorter."""
    for max_wait in 100, 900:
        limited = bulkhead(1, latency=300, max_wait=max_wait)
        scene = play(way, limited, come(0, "hangs", 50), come(0.1, "b"))

        assert scene.ends["b"] == ("waited", pytest.approx(0.1 + max_wait / 1000))


@every_way
def test_as_many_wait_as_the_queue_says(way: str) -> None:
    """By rule Q1: synchronous calls, too, wait up to ``waiting_task_queue``."""
    scene = play(way, bulkhead(1, 1, max_wait=900), come(0, "a", 0.5), come(0.1, "b", 0), come(0.2, "c", 0))

    assert scene.ends == {"a": ("served", 0.5), "b": ("served", 0.5), "c": ("full", 0.2)}


@every_way
def test_a_deadline_ends_the_wait(way: str) -> None:
    """By rule Q2: a call that times out in the queue never starts, and leaves its place to others."""
    limited = lambda function: timeout(400)(bulkhead(1, 1, max_wait=900)(function))  # noqa: E731
    scene = play(way, limited, come(0, "a", 0.39), come(0, "b", 0.39), come(0.395, "c", 0), come(0.41, "d", 0))

    assert scene.ends["a"] == ("served", 0.39)
    assert scene.ends["b"] == ("TimeoutException", 0.4)
    assert scene.ends["d"] == ("served", 0.41)


@every_way
def test_a_limit_that_grows_wakes_as_many_as_there_is_room_for(way: str) -> None:
    """A raised limit does not wait for a call to leave, and wakes more than one waiter (trap 18)."""
    with virtual_time() as clock, ExitStack() as stack, configured({"Bulkhead/value": "1"}):
        grow = lambda: stack.enter_context(configured({"Bulkhead/value": "3"})) and None  # noqa: E731
        scene = Scene(way, bulkhead(9, max_wait=5000), {0.5: grow})
        scene.play(clock, *(come(0.1 * number, str(number), 3) for number in range(4)))

    assert [scene.ends[name] for name in "012"] == [("served", 3), ("served", 3.5), ("served", 3.5)]
    assert scene.ends["3"] == ("served", 6)


def test_threads_tasks_and_offloaded_calls_share_one_queue() -> None:
    """By rule Q1: ``waiting_task_queue`` counts all of them, and each is served in its turn."""
    with virtual_time() as clock:
        guard = Guard(bulkhead=Bulkhead(1, 2, max_wait=5000))
        order: list[str] = []

        def body(name: str) -> str:
            order.append(name)
            faulttolerance.sleep(1)
            return name

        async def body_async(name: str) -> str:
            order.append(name)
            await asyncio.sleep(1)
            return name

        async def main() -> list[Any]:
            first = asyncio.wrap_future(clock.start(guard.call, body, "thread"))
            await asyncio.sleep(0.1)
            second = asyncio.ensure_future(guard.call_async(body_async, "task"))
            await asyncio.sleep(0.1)
            third = asyncio.wrap_future(clock.start(guard.call, body, "another thread"))
            await asyncio.sleep(0.1)
            fourth = asyncio.ensure_future(guard.call_async(body_async, "one too many"))
            return list(await asyncio.gather(first, second, third, fourth, return_exceptions=True))

        *served, last = clock.run(main())

    assert served == order == ["thread", "task", "another thread"]
    assert isinstance(last, BulkheadException)
    assert last.reason == "full"


# in which order


@every_way
def test_a_queue_that_empties_in_time_is_served_in_the_order_of_arrival(way: str) -> None:
    """By rule Q3: the newest is first only in overload."""
    scene = play(way, bulkhead(1, max_wait=900), *(come(0.01 * number, str(number), 0.2) for number in range(4)))

    assert scene.order == ["0", "1", "2", "3"]


@every_way
def test_a_congested_queue_is_served_from_the_newest_on(way: str) -> None:
    """By rule Q3: the caller of the newest is the likeliest still to listen."""
    calls = [come(0.0, "0", 0.19), come(0.01, "1", 0.19), come(0.1, "2", 0.19), come(0.3, "3", 0), come(0.35, "4", 0)]
    scene = play(way, bulkhead(1, max_wait=300), *calls)

    assert scene.order == ["0", "1", "4", "3", "2"]


@every_way
def test_a_call_that_comes_to_a_full_and_congested_queue_displaces_the_oldest(way: str) -> None:
    """By rule Q3, rule Q5: the oldest is refused at once."""
    calls = [come(0, "0", 9), *(come(0.1 * number, str(number)) for number in (1, 2, 3, 4.1, 4.5))]
    scene = play(way, bulkhead(1, 2, max_wait=300), *calls)

    assert scene.ends["3"] == ("full", 0.3)
    assert scene.ends["1"] == ("waited", 0.4)
    assert scene.ends["2"] == ("displaced", 0.45)
    assert scene.ends["4.5"] == ("waited", 0.75)


@pytest.mark.parametrize("way", ["asyncio", "offloaded", "task"])
def test_without_a_longest_wait_the_order_stays_first_in_first_out(way: str) -> None:
    """By rule Q4: however long the queue has been filled."""
    scene = play(way, bulkhead(1), *(come(0.1 * number, str(number)) for number in range(6)))

    assert scene.order == ["0", "1", "2", "3", "4", "5"]


@every_way
def test_more_important_calls_displace_others_from_a_full_queue(way: str) -> None:
    """By rule K1, rule Q5: the lowest tier first; a call that finds no lower one is refused."""
    level = Criticality
    calls = [
        come(0, "runs", 0.5),
        come(0.01, "degraded", 0, level.DEGRADED), come(0.02, "best effort", 0, level.BEST_EFFORT),
        come(0.03, "normal", 0), come(0.04, "critical", 0, level.CRITICAL), come(0.05, "normal again", 0),
        come(0.06, "best effort again", 0, level.BEST_EFFORT),
    ]  # fmt: skip
    scene = play(way, bulkhead(1, 2, max_wait=2000), *calls)

    assert scene.ends["best effort"] == ("displaced", 0.03)
    assert scene.ends["degraded"] == ("displaced", 0.04)
    assert scene.ends["normal again"] == ("full", 0.05)
    assert scene.ends["best effort again"] == ("full", 0.06)
    assert scene.order == ["runs", "normal", "critical"]


@pytest.mark.parametrize(("way", "max_wait"), [*((way, 5000) for way in WAYS), ("asyncio", 0), ("task", 0)])
def test_a_congested_queue_serves_the_highest_tier_first(way: str, max_wait: int) -> None:
    """By rule K1, rule Q4: whether there is a longest wait or not."""
    level = Criticality
    calls = [
        come(0, "runs", 6),
        come(0.1, "a", 0, level.BEST_EFFORT),
        come(2, "b", 0),
        come(2.5, "c", 0, level.CRITICAL),
    ]
    scene = play(way, bulkhead(1, max_wait=max_wait), *calls)

    assert scene.order[:3] == ["runs", "c", "b"]


def test_criticality_lets_nobody_pass_a_limit() -> None:
    """By rule K3: a critical call is refused where there is no lower one to displace."""
    with virtual_time() as clock:
        guard = Guard(bulkhead=Bulkhead(1), name="narrow")
        running = clock.start(guard.call, faulttolerance.sleep, 1)
        clock.sleep(0.1)
        with criticality("critical"), pytest.raises(BulkheadException):
            guard.call(lambda: None)
        running.result()


# criticality itself


def test_the_level_is_normal_until_a_block_says_otherwise() -> None:
    """By rule K3: blocks nest, may be entered again, and set the level; names stand for levels."""
    block = criticality("best_effort")
    seen = [Criticality.current()]
    with block as level, criticality(Criticality.CRITICAL):
        seen += [level, Criticality.current()]
        with block:
            seen.append(Criticality.current())
        seen.append(Criticality.current())
    seen.append(Criticality.current())

    low, high = Criticality.BEST_EFFORT, Criticality.CRITICAL
    assert seen == [NORMAL, low, high, low, high, NORMAL]
    assert low < Criticality.DEGRADED < NORMAL < high
    assert repr(block) == "criticality('best_effort')"


def test_the_level_follows_tasks_pool_threads_and_retries() -> None:
    """By rule K3: wherever the call goes on."""
    seen: list[Criticality] = []

    @asynchronous
    @retry(max_retries=1, delay=0, jitter=0)
    def service() -> Future[None]:
        seen.append(Criticality.current())
        raise OSError

    async def main() -> None:
        async with criticality("degraded"):
            task = asyncio.ensure_future(inner())
        await task

    async def inner() -> None:
        await asyncio.gather(asyncio.wrap_future(service()), return_exceptions=True)
        seen.append(Criticality.current())

    asyncio.run(main())

    assert seen == [Criticality.DEGRADED] * 3


@pytest.mark.parametrize("wrong", ["urgent", "", None, 3, 2.0, b"normal"])
def test_another_level_is_refused(wrong: Any) -> None:
    """The error names the levels that exist; a number is no level."""
    with pytest.raises(ValueError, match=r"criticality\(level\) is .*'best_effort', 'degraded', 'normal', 'critical'"):
        criticality(wrong)


def test_a_throttle_asks_for_the_criticality_of_a_call() -> None:
    """By rule K2: while the throttle refuses a part of the calls, the important ones pass."""
    with virtual_time() as clock:
        guard = Guard(adaptive_throttle=AdaptiveThrottle(), name="throttled by tier")
        passed = dict.fromkeys(Criticality, 0)

        def service(works: bool) -> None:
            passed[Criticality.current()] += 1
            if not works:
                raise OSError

        for number in range(800):
            clock.advance(0.01)
            with criticality(list(Criticality)[number % 4]):
                try:
                    guard.call(service, number % 8 in (2, 3))
                except (OSError, ThrottleException):
                    pass
        guard.close()

    assert passed[Criticality.CRITICAL] == 200
    assert passed[Criticality.BEST_EFFORT] < 100


# outcomes


def test_the_reason_of_a_refusal_survives_pickling() -> None:
    """By rule Q5, rule P5: a refusal that an application made says that the bulkhead was full."""
    with virtual_time() as clock:
        guard = Guard(bulkhead=Bulkhead(1, max_wait=100), name="slow")
        running = clock.start(guard.call, faulttolerance.sleep, 1)
        clock.sleep(0.1)
        with pytest.raises(BulkheadException) as raised:
            guard.call(lambda: None)
        running.result()

    copy = pickle.loads(pickle.dumps(raised.value))

    assert (copy.reason, str(copy), copy.retry_after) == ("waited", str(raised.value), None)
    assert str(copy) == "slow: bulkhead is full, and no permit came free within the longest wait"
    assert BulkheadException("mine").reason == "full"


@every_way
def test_waiters_that_left_count_as_rejected_and_their_wait_as_waiting(way: str) -> None:
    """By rule Q5: synchronous guards with a longest wait have the metrics of waiting, too."""
    meter = PrometheusMeter()
    scene = play(way, bulkhead(1, 2, max_wait=300), come(0, "a", 0.2), come(0.1, "b", 0.5), come(0.25, "c", 0))

    assert scene.ends == {"a": ("served", 0.2), "b": ("served", 0.7), "c": ("waited", 0.55)}
    values = {name: value for (name, _), value in meter.values().items() if "bulkhead" in name and value}
    waits = {name: found for (name, _), found in meter.histograms().items() if "waiting" in name}
    (found,) = [one for one in guards() if any(one.counts.values())]
    counts = {tags: count for (name, tags), count in found.counts.items() if name == "ft.bulkhead.calls.total"}
    assert counts == {(("bulkheadResult", "accepted"),): 2, (("bulkheadResult", "rejected"),): 1}
    assert values
    (durations,) = waits.values()
    assert (durations.count, round(durations.sum, 3)) == (3, 0.4)


def test_a_synchronous_guard_without_a_longest_wait_has_no_metrics_of_waiting() -> None:
    """By rule Q1: the specification has none for it."""
    names = {
        max_wait: {name for name, _ in next(one for one in guards() if one.name == f"waits{max_wait}").counts}
        for max_wait in (0, 50)
        if Guard(bulkhead=Bulkhead(1, max_wait=max_wait), name=f"waits{max_wait}").call(int) == 0
    }

    assert not any("Waiting" in name for name in names[0])
    assert any("executionsWaiting" in name for name in names[50])


# declared and configured


@pytest.mark.parametrize("wrong", [-1, "soon", None, True, float("inf"), "-1s"])
def test_a_wrong_longest_wait_is_refused(wrong: Any) -> None:
    """The error at the declaration names the allowed values."""
    with refused("@Bulkhead(max_wait)", "a duration >= 0"):
        bulkhead(max_wait=wrong)(lambda: None)


def test_a_configured_longest_wait_holds_and_a_wrong_one_is_reported() -> None:
    """The key and ``explain`` show it."""

    @bulkhead(2)
    def service() -> None: ...

    with configured({"Bulkhead/maxWait": "250ms"}):
        service()
        assert "maxWait = 250ms" in explain(service)
    with configured({"Bulkhead/maxWait": "-3"}), refused("Bulkhead/maxWait", "-3"):
        validate()


def test_an_interruption_ends_the_wait_and_gives_the_place_back() -> None:
    """By rule Q2, rule R0: the interruption is that of an enclosing deadline, on its own thread."""
    with virtual_time() as clock:
        outer, guard = Guard(timeout=Timeout(200)), Guard(bulkhead=Bulkhead(1, 1, max_wait=5000))
        running = clock.start(guard.call, faulttolerance.sleep, 1)
        clock.sleep(0.1)
        began = clock.monotonic()
        with pytest.raises(TimeoutException):
            outer.call(guard.call, lambda: None)
        waited = clock.monotonic() - began
        guard.call(lambda: None)
        served = clock.monotonic() - began
        running.result()

    assert (round(waited, 3), round(served, 3)) == (0.2, 0.9)
