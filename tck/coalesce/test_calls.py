"""Calls that share a result, through public names: leaders, followers, and the outcome of each."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextvars import Context, copy_context
from types import FrameType
from typing import Any

import pytest

from faulttolerance import (
    Guard,
    Interrupted,
    TimeoutException,
    asynchronous,
    bulkhead,
    coalesce,
    configure,
    guards,
    partition_by,
    reload,
    retry,
    sleep,
    timeout,
)
from faulttolerance.policies import Coalesce, Retry
from faulttolerance.testing import virtual_time
from kit.definition import refused
from kit.program import python
from kit.struck import Strike, Struck


class Shop:
    """A backend that takes a second, and records each call; each kind of call lets only one in at a time."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def _ask(self, order: str) -> object:
        self.asked.append(order)
        if order == "broken":
            raise OSError(order)
        return object()

    @coalesce(key="order")
    @retry(max_retries=1, jitter=0)
    @bulkhead(1)
    def load(self, order: str) -> object:
        sleep(1)
        return self._ask(order)

    @coalesce
    @bulkhead(1, 1)
    async def load_async(self, order: str, page: int = 1) -> object:
        await asyncio.sleep(1)
        return self._ask(order)

    @asynchronous
    @coalesce
    @bulkhead(1, 1)
    def load_apart(self, order: str) -> Any:
        sleep(1)
        return self._ask(order)

    @asynchronous
    @coalesce
    @bulkhead(1, 1)
    async def load_as_task(self, order: str) -> object:
        await asyncio.sleep(1)
        return self._ask(order)


def roles(shop: Callable[..., object]) -> dict[str, int]:
    """Count the calls of a guarded function that led, and those that followed."""
    (guard,) = [guard for guard in guards() if guard.name.endswith(shop.__qualname__)]
    series = {tags: count for (metric, tags), count in guard.counts.items() if metric == "ft.coalesce.calls.total"}
    return {tags[0][1]: count for tags, count in series.items()}


def test_threads_that_overlap_make_one_call() -> None:
    """Rule CO1: calls that overlap get the same object as their result; the next call executes anew."""
    shop = Shop()
    with virtual_time() as clock:
        results = [call.result() for call in [clock.start(shop.load, "a") for _ in range(5)]]
        another = shop.load("a")

    assert all(result is results[0] for result in results)
    assert another is not results[0]
    assert shop.asked == ["a", "a"]


@pytest.mark.parametrize("name", ["load_async", "load_as_task"])
def test_tasks_that_overlap_make_one_call(name: str) -> None:
    """Rule CO1: calls of coroutine functions with the same target and arguments are one."""
    shop = Shop()

    async def main() -> list[object]:
        return await asyncio.gather(*(getattr(shop, name)("a") for _ in range(5)))

    with virtual_time() as clock:
        results = clock.run(main())

    assert all(result is results[0] for result in results)
    assert shop.asked == ["a"]


def test_asynchronous_calls_that_overlap_make_one_call() -> None:
    """Rule CO3: each caller of an ``@asynchronous def`` has a future of its own, and none holds a permit."""
    shop = Shop()
    with virtual_time() as clock:
        futures = clock.start(lambda: [shop.load_apart("a") for _ in range(5)]).result()
        results = [future.result() for future in futures]

    assert len({id(future) for future in futures}) == 5
    assert all(result is results[0] for result in results)
    assert shop.asked == ["a"]


def test_by_default_the_target_and_all_arguments_tell_calls_apart() -> None:
    """Rule CO1: defaults are applied, keywords are arguments like others, and another object is another target."""
    asked = []

    class Page:
        @coalesce
        async def load(self, order: str, page: int = 1, **options: int) -> object:
            asked.append((order, page))
            await asyncio.sleep(1)
            return object()

    async def main() -> list[object]:
        one, two = Page(), Page()
        same = [one.load("a"), one.load(order="a"), one.load("a", page=1)]
        return await asyncio.gather(*same, two.load("a"), one.load("a", 2), one.load("a", x=1))

    with virtual_time() as clock:
        results = clock.run(main())

    assert len({id(result) for result in results}) == 4
    assert len(asked) == 4


def test_a_failure_is_shared_as_it_is() -> None:
    """Rule CO1: followers get the leader's failure itself, and its traceback does not grow by them (trap 25)."""
    shop, seen = Shop(), []

    def call() -> None:
        try:
            shop.load("broken")
        except OSError as error:
            seen.append((error, traceback.extract_tb(error.__traceback__)))

    with virtual_time() as clock:
        for one in [clock.start(call) for _ in range(20)]:
            one.result()

    assert len({id(error) for error, _ in seen}) == 1
    assert len(shop.asked) == 2  # the leader's own retry
    lengths = [len(trace) for _, trace in seen]
    assert max(lengths) - min(lengths) <= 3  # the frames of a follower, which has none of the call's
    assert all("_ask" in [frame.name for frame in trace] for _, trace in seen)


def chain_of(failure: BaseException) -> list[BaseException]:
    """Return a failure and the exceptions in whose handling it was raised."""
    chain: list[BaseException] = []
    link: BaseException | None = failure
    while link is not None:
        chain.append(link)
        link = link.__context__
    return chain


@pytest.mark.parametrize("first", [True, False], ids=["leader handles", "follower handles"])
@pytest.mark.parametrize("is_nested", [True, False], ids=["nested", "plain"])
def test_a_shared_failure_tells_nobody_what_another_caller_was_handling(first: bool, is_nested: bool) -> None:
    """Rule CO1: its chain is that of the call; a leader whose retry goes by causes sees no cause of a follower."""
    seen: list[BaseException] = []

    def fail() -> None:
        if not is_nested:
            raise ValueError("outer")
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer")  # noqa: B904

    @coalesce
    def load() -> None:
        sleep(1)
        fail()

    @coalesce
    async def load_async() -> None:
        await asyncio.sleep(1)
        fail()

    def call(handles: bool) -> None:
        try:
            if not handles:
                load()
            try:
                raise ConnectionError("secret")
            except ConnectionError:
                load()
        except ValueError as error:
            seen.append(error)

    async def call_async(handles: bool) -> None:
        try:
            if not handles:
                await load_async()
            try:
                raise ConnectionError("secret")
            except ConnectionError:
                await load_async()
        except ValueError as error:
            seen.append(error)

    async def both() -> None:
        await asyncio.gather(call_async(first), call_async(not first), call_async(not first))

    with virtual_time() as clock:
        for one in [clock.start(call, first), clock.start(call, not first), clock.start(call, not first)]:
            one.result()
        clock.run(both())

    assert len({id(error) for error in seen}) == 2
    kinds = [ValueError, KeyError] if is_nested else [ValueError]
    assert [[type(link) for link in chain_of(error)] for error in seen] == [kinds] * 6


def test_a_failure_that_nobody_shares_is_linked_as_in_plain_python() -> None:
    """Rule CO1: its context is the exception that its caller was handling."""

    @coalesce
    def load() -> None:
        raise ValueError("plain")

    def handle() -> None:
        try:
            raise ConnectionError
        except ConnectionError:
            load()

    with pytest.raises(ValueError, match="plain") as caught:
        handle()

    assert [type(link) for link in chain_of(caught.value)] == [ValueError, ConnectionError]


def test_futures_that_share_a_failure_do_not_let_its_traceback_grow() -> None:
    """Rule CO1: asking many futures, or one of them often, adds nothing to the one traceback (trap 25)."""
    shop, lengths = Shop(), []
    with virtual_time() as clock:
        futures = clock.start(lambda: [shop.load_apart("broken") for _ in range(20)]).result()
        for future in [*futures, *futures]:
            with pytest.raises(OSError, match="broken") as caught:
                future.result()
            lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))

    assert max(lengths) - min(lengths) <= 3
    assert shop.asked == ["broken"]


def test_a_leader_that_is_cancelled_hands_over() -> None:
    """Rule CO2: a cancelled leader ends nobody else's call; the follower that came first leads."""
    shop = Shop()

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(shop.load_async("a")) for _ in range(4)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        await asyncio.sleep(0.75)
        assert shop.asked == []  # it begins anew
        return await asyncio.gather(*tasks, return_exceptions=True)

    with virtual_time() as clock:
        cancelled, *results = clock.run(main())

    assert isinstance(cancelled, asyncio.CancelledError)
    assert all(result is results[0] for result in results)
    assert shop.asked == ["a"]
    assert roles(Shop.load_async)["leader"] >= 2


def test_a_leader_whose_clean_up_fails_at_its_cancellation_hands_over() -> None:
    """Rule CO2: what the cancellation of one caller broke is no failure of the others."""
    leaders: list[int] = []

    @coalesce
    async def load() -> str:
        leaders.append(len(leaders))
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise ConnectionError("the connection could not be given back") from None
        return "loaded"

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(load()) for _ in range(3)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with virtual_time() as clock:
        failed, *results = clock.run(main())

    assert isinstance(failed, ConnectionError)
    assert results == ["loaded", "loaded"]
    assert leaders == [0, 1]


def test_an_interrupted_leader_hands_over_to_the_next_thread() -> None:
    """Rule CO2: a leader whose enclosing deadline passes keeps its failure to itself."""
    shop = Shop()
    impatient = timeout(500)(lambda: shop.load("a"))
    with virtual_time() as clock:
        first = clock.start(impatient)
        second = clock.start(lambda: (sleep(0.25), shop.load("a"))[1])
        third = clock.start(lambda: (sleep(0.3), shop.load("a"))[1])
        with pytest.raises(TimeoutException):
            first.result()

        assert second.result() is third.result()
    assert shop.asked == ["a"]


def test_an_asynchronous_leader_that_is_cancelled_hands_over() -> None:
    """Rule CO2: a leader's future can be cancelled, and a follower leads on a thread of the pool."""
    shop = Shop()
    with virtual_time() as clock:

        def main() -> list[Any]:
            futures = [shop.load_apart("a") for _ in range(4)]
            sleep(0.5)
            assert futures[0].cancel()
            return futures

        cancelled, *futures = clock.start(main).result()
        results = [future.result() for future in futures]

    assert cancelled.cancelled()
    assert all(result is results[0] for result in results)
    assert shop.asked == ["a"]


def test_a_time_out_of_the_call_itself_is_shared() -> None:
    """Rule CO2: the time-out of the guarded function is part of the flight, and a failure like any other."""
    asked = []

    @coalesce
    @timeout(1000)
    def load() -> None:
        asked.append(1)
        sleep(5)

    with virtual_time() as clock:
        calls = [clock.start(load) for _ in range(3)]
        for call in calls:
            with pytest.raises(TimeoutException):
                call.result()

    assert asked == [1]


def test_a_follower_waits_no_longer_than_its_own_deadline() -> None:
    """Rule CO3: a follower is interrupted where it waits, and the flight goes on without it."""
    shop = Shop()
    impatient = timeout(500)(lambda: shop.load("a"))

    def follow() -> float:
        began = clock.monotonic()
        with pytest.raises(TimeoutException):
            impatient()
        return clock.monotonic() - began

    with virtual_time() as clock:
        leader = clock.start(shop.load, "a")
        follower = clock.start(lambda: (sleep(0.1), follow())[1])

        assert follower.result() == 0.5
        leader.result()
    assert shop.asked == ["a"]


@pytest.mark.parametrize("name", ["load_async", "load_as_task"])
def test_a_follower_can_be_cancelled_alone(name: str) -> None:
    """Rule CO3: cancelling a follower ends neither the leader nor other followers."""
    shop = Shop()

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(getattr(shop, name)("a")) for _ in range(3)]
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with virtual_time() as clock:
        first, cancelled, last = clock.run(main())

    assert isinstance(cancelled, asyncio.CancelledError)
    assert first is last
    assert shop.asked == ["a"]


def test_an_asynchronous_follower_can_be_cancelled_alone() -> None:
    """Rule CO3: the future of a follower is its own, to cancel as well."""
    shop = Shop()
    with virtual_time() as clock:

        def main() -> list[Any]:
            futures = [shop.load_apart("a") for _ in range(3)]
            sleep(0.5)
            assert futures[1].cancel()
            return futures

        first, cancelled, last = clock.start(main).result()

        assert first.result() is last.result()
    assert cancelled.cancelled()
    assert shop.asked == ["a"]


def test_the_metrics_of_the_guard_count_the_call_of_the_leader_alone() -> None:
    """Rule CO4: the guard counts one invocation and one attempt; another metric counts leaders and followers."""

    @coalesce
    @retry
    def load() -> None:
        sleep(1)

    with virtual_time() as clock:
        for call in [clock.start(load) for _ in range(5)]:
            call.result()

    (guard,) = [guard for guard in guards() if guard.name.endswith(load.__qualname__)]
    assert roles(load) == {"leader": 1, "follower": 4}
    assert sum(count for (metric, _), count in guard.counts.items() if metric == "ft.invocations.total") == 1
    assert sum(count for (metric, _), count in guard.counts.items() if metric == "ft.retry.calls.total") == 1


def test_calls_are_counted_where_coalesce_is_the_only_policy() -> None:
    """By rule CO4: the guard counts the call of the leader, by its outcome, also where each key has its own state."""

    @coalesce
    def alone(failure: Exception | None = None) -> None:
        if failure is not None:
            raise failure

    @partition_by("good")
    @coalesce
    async def by_key(good: str) -> None: ...

    @partition_by("good")
    def without(good: str) -> None: ...

    alone()
    with pytest.raises(OSError):
        alone(OSError())
    asyncio.run(by_key("tea"))
    without("tea")

    counted = [
        {dict(tags)["result"]: count for (metric, tags), count in guard.counts.items() if "invocations" in metric}
        for function in (alone, by_key, without)
        for guard in guards()
        if guard.name.endswith(function.__qualname__)
    ]
    assert counted == [{"valueReturned": 1, "exceptionThrown": 1}, *[{"valueReturned": 1, "exceptionThrown": 0}] * 2]


def test_a_key_without_a_hash_is_an_error_that_names_the_remedy() -> None:
    """Rule CO5: the function is not called, and the error says to give ``key=``."""
    shop = Shop()

    with pytest.raises(TypeError, match=r"Shop.load: .*key="):
        shop.load([])  # type: ignore[arg-type]
    assert shop.asked == []


def test_a_call_that_its_own_flight_makes_runs_plainly() -> None:
    """Rule CO5: a call that follows itself would wait for ever; it runs plainly in every way of calling (trap 25)."""

    @coalesce(key=lambda depth: "same")
    def plain(depth: int) -> int:
        return depth if depth == 3 else plain(depth + 1)

    @coalesce(key=lambda depth: "same")
    async def awaited(depth: int) -> int:
        return depth if depth == 3 else await asyncio.create_task(awaited(depth + 1))

    @asynchronous
    @coalesce(key=lambda depth: "same")
    def apart(depth: int) -> Any:
        return depth if depth == 3 else apart(depth + 1).result(30)  # pyright: ignore[reportCallIssue]

    assert plain(1) == 3
    assert asyncio.run(asyncio.wait_for(awaited(1), 30)) == 3
    assert apart(1).result(30) == 3  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("leads", [True, False], ids=["leads", "follows"])
@pytest.mark.parametrize("other", ["sys", "greenlet"])
def test_a_call_on_the_thread_of_a_loop_does_not_wait_for_a_task_of_the_loop(other: str, leads: bool) -> None:
    """Rule CO5: the task may also lead only later, and a library such as SQLAlchemy may have imported ``greenlet``."""
    pytest.importorskip(other)
    program = f"""
        import asyncio
        import threading
        import {other}
        from faulttolerance import Guard
        from faulttolerance.policies import Coalesce

        guard = Guard(coalesce=Coalesce("order"))

        async def fetch(order):
            await asyncio.sleep(0.05)
            return "task"

        def exit(order):
            begun.set()
            end.wait(20)
            raise SystemExit

        begun, end = threading.Event(), threading.Event()
        leader = threading.Thread(target=guard.call, args=(exit, "a"))

        async def main():
            if not {leads}:
                leader.start()
                begun.wait(20)
            task = asyncio.ensure_future(guard.call_async(fetch, "a"))
            await asyncio.sleep(0)
            threading.Timer(0.1, end.set).start()
            print(guard.call(lambda order: "thread", "a"), await task)

        asyncio.run(main())
    """
    assert python(program, seconds=20).stdout.split() == ["thread", "task"]


def test_a_call_on_the_thread_of_a_loop_does_not_wait_for_an_offloaded_call() -> None:
    """Rule CO5: what the application decides for it, and what its function returns, may be awaited on that loop."""
    program = """
        import asyncio
        import time
        from faulttolerance import Guard
        from faulttolerance.policies import Coalesce, HonorRetryAfter, Retry

        guard = Guard(coalesce=Coalesce(lambda *_: ""), retry=Retry(), honor_retry_after=HonorRetryAfter())
        outcomes = iter([OSError()])

        def fetch():
            time.sleep(0.05)
            for failure in outcomes:
                raise failure
            return "thread"

        async def main():
            task = asyncio.ensure_future(guard.call_async(fetch))
            await asyncio.sleep(0)
            print(guard.call(lambda: "loop"), await task)

        asyncio.run(main())
    """
    assert python(program, seconds=20).stdout.split() == ["loop", "thread"]


def test_flights_that_would_wait_for_one_another_do_not() -> None:
    """Rule CO5: where a call of one flight would follow another that follows this one, it runs plainly."""
    calls = []

    @coalesce
    def fetch(key: str, other: str = "") -> str:
        calls.append((key, other))
        sleep(1)
        return fetch(other) if other else key

    with virtual_time() as clock:
        one, two = clock.start(fetch, "a", "b"), clock.start(fetch, "b", "a")

        assert (one.result(), two.result()) == ("b", "a")

    entered = threading.Barrier(2)

    @coalesce(key="key")
    def cross(key: str, other: str) -> str:
        if threading.current_thread().name == key:
            entered.wait(30)
            return cross(other, key)
        return key

    threads = [
        threading.Thread(target=cross, args=pair, name=pair[0], daemon=True) for pair in (("a", "b"), ("b", "a"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_loops_and_threads_share_one_flight() -> None:
    """Rule CO6: followers on several loops are woken where they wait."""
    asked, go, waiting = [], threading.Event(), threading.Barrier(5)

    @coalesce
    async def load() -> object:
        asked.append(1)
        await asyncio.get_running_loop().run_in_executor(None, go.wait, 30)
        return object()

    results = []

    async def main() -> None:
        call = asyncio.ensure_future(load())
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, waiting.wait, 30)
        results.append(await call)

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    waiting.wait(30)
    go.set()
    for thread in threads:
        thread.join(30)

    assert len({id(result) for result in results}) == 1
    assert asked == [1]


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_drops_the_flights_of_other_threads() -> None:
    """Rule CO6: in the child no call waits for a leader that does not exist there."""
    entered, go = threading.Event(), threading.Event()

    @coalesce
    def load() -> int:
        if entered.is_set():
            return os.getpid()
        entered.set()
        go.wait(30)
        return os.getpid()

    leader = threading.Thread(target=load)
    leader.start()
    entered.wait(30)
    child = os.fork()
    if not child:
        os._exit(0 if load() == os.getpid() else 1)
    go.set()
    leader.join(30)

    assert os.waitpid(child, 0)[1] == 0


def test_a_key_function_that_fails_takes_nothing() -> None:
    """Rule CO5: its failure reaches the caller in the way of the call, and the next call succeeds."""

    def by_length(order: str) -> int:
        return len(order)

    @asynchronous
    @coalesce(key=by_length)
    @bulkhead(1)
    def apart(order: Any) -> Any:
        return order

    @coalesce(key=by_length)
    @bulkhead(1)
    def load(order: Any) -> Any:
        return order

    for _ in range(3):
        with pytest.raises(TypeError, match="len"):
            load(1)
        with pytest.raises(TypeError, match="len"):
            apart(1).result(30)  # pyright: ignore[reportCallIssue]
    assert load("a") == apart("a").result(30) == "a"  # pyright: ignore[reportCallIssue]


def test_a_guard_shares_results_by_function_and_arguments() -> None:
    """Rule CO1: calls through one guard are one where the function and its arguments are the same."""
    guard, asked = Guard(coalesce=Coalesce(), retry=Retry(max_retries=0)), []

    def load(order: str) -> object:
        asked.append(order)
        sleep(1)
        return object()

    def store(order: str) -> object:
        return load(order)

    with virtual_time() as clock:
        loads = [clock.start(guard.call, load, "a") for _ in range(3)]
        other = clock.start(guard.call, store, "a")
        results = [call.result() for call in loads]

        assert other.result() is not results[0]
    assert all(result is results[0] for result in results)
    assert asked == ["a", "a"]


def test_nothing_is_kept_of_a_flight_that_is_over() -> None:
    """Rule CO1: neither arguments nor results nor failures outlive their calls: this is no cache."""

    class Thing:
        pass

    @coalesce(key=lambda thing: 1)
    def load(thing: Thing) -> Thing:
        if thing is None:
            raise OSError
        return thing

    thing = Thing()
    gone = weakref.ref(load(thing))
    del thing
    with pytest.raises(OSError):
        load(None)  # type: ignore[arg-type]
    gc.collect()

    assert gone() is None


def test_a_flight_ends_under_the_configuration_it_began_with() -> None:
    """Rule CO6: a reload in the middle neither loses a follower nor ends the flight."""
    pytest.importorskip("pydantic_settings")
    shop = Shop()
    with virtual_time() as clock:
        calls = [clock.start(shop.load, "a") for _ in range(3)]
        clock.advance(0.5)
        configure(properties={"Retry/maxRetries": 2})
        reload()
        late = clock.start(shop.load, "a")
        results = {id(call.result()) for call in [*calls, late]}
    configure(properties={})

    assert len(results) == 1
    assert shop.asked == ["a"]


def test_a_signal_that_raises_in_a_waiting_follower_leaves_the_flight_alone() -> None:
    """Rule CO3: control flow that reaches a follower is its own."""
    shop = Shop()
    caught: list[BaseException] = []

    def follow() -> None:
        try:
            shop.load("a")
        except BaseException as error:
            caught.append(error)

    with virtual_time() as clock:
        leader = clock.start(shop.load, "a")
        follower = clock.start(timeout(200)(follow))
        follower.exception()
        leader.result()

    assert [type(error) for error in caught] == [Interrupted]


def test_a_declaration_without_a_meaning_is_refused() -> None:
    """Rule CO5: so are a class, a name of no parameter, a key with other parameters, and a lambda that may be a key."""

    def load(order: str) -> str:
        return order

    class Client:
        def load(self, order: str) -> str:
            return order

    with refused("@Coalesce is on a class"):
        coalesce(Client)
    with refused("names 'ordr'", "did you mean 'order'"):
        coalesce(key="ordr")(load)
    with refused("whose parameters are"):
        coalesce(key=lambda: 1)(load)
    with refused("@Coalesce(key) is 7"):
        coalesce(key=7)(load)  # type: ignore[arg-type]
    with refused("decorates no function"):
        coalesce(lambda order: order)("an order")


def test_a_lambda_is_a_key_with_or_without_its_name() -> None:
    """Rule CO1: as the first argument it makes the key too, since it can stand above no function."""

    def load(order: str, trace: int) -> object:
        sleep(1)
        return object()

    by_order: Any = lambda order, trace: order  # noqa: E731
    with virtual_time() as clock:
        for shared in (
            coalesce(by_order)(load),
            coalesce(key=by_order)(load),
            coalesce("order")(lambda order, trace: load(order, trace)),
        ):
            first, second, other = (clock.start(shared, *call) for call in (("a", 1), ("a", 2), ("b", 3)))
            assert first.result() is second.result() is not other.result()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_handler_that_raises_anywhere_leaves_no_flight_behind(role: str) -> None:
    """Rules R0 and CO2: wherever a signal's handler raises, others get their result, and the next call its own."""
    entered, go = threading.Event(), threading.Event()
    others: list[threading.Thread] = []

    @coalesce(key=lambda: 1)
    def load() -> int:
        entered.set()
        if role == "follower" and threading.current_thread() in others:
            go.wait(30)
        elif role == "leader" and not others[-1].is_alive() and not go.is_set():
            others[-1].start()
            time.sleep(0.005)  # it follows by now, mostly
        return 7

    number, strike = 0, None
    while strike is None or strike.where:
        number += 1
        entered.clear()
        go.clear()
        results: list[object] = []
        other = threading.Thread(target=lambda results=results: results.append(load()), daemon=True)
        others.append(other)
        strike = Strike(number, "coalesce/layer.py", "coalesce/strategy.py")
        if role == "follower":
            other.start()
            entered.wait(30)
            threading.Timer(0.002, go.set).start()
        try:
            with strike:
                load()
        except Struck:
            pass
        go.set()
        if other.ident is None:
            other.start()  # the call was struck before its body
        other.join(10)

        assert results == [7], f"struck {strike.where}"
        assert load() == 7
    assert number > 8


def test_a_handler_that_calls_the_same_waits_for_no_call_below_it() -> None:
    """Rule CO5: wherever a signal comes, its handler gets an answer."""

    @coalesce(key=lambda: 1)
    def load() -> int:
        return 7

    load()
    number, strike = 0, None
    while strike is None or strike.where:
        number += 1
        answers: list[int] = []
        strike = Strike(
            number, "coalesce/layer.py", "coalesce/strategy.py", handle=lambda answers=answers: answers.append(load())
        )
        with strike:
            assert load() == 7

        assert answers == [7] * bool(strike.where)
    assert number > 8


def test_a_call_within_its_own_flight_has_no_role() -> None:
    """Rule CO5: a call that runs without coalescing shares nothing, so it is no follower."""

    @coalesce(key=lambda depth: 1)
    def load(depth: int) -> int:
        return depth if depth else load(1)

    assert load(0) == 1
    assert roles(load) == {"leader": 1, "follower": 0}


@pytest.mark.parametrize("is_within", [False, True], ids=["leads", "within its own flight"])
@pytest.mark.parametrize("blocks", [False, True], ids=["task", "thread"])
def test_calls_that_start_one_another_keep_nothing_of_flights_that_have_ended(blocks: bool, is_within: bool) -> None:
    """Nothing is kept after the end of a flight: a refresh that schedules the next one goes on for ever."""

    class Order:
        pass

    orders: list[weakref.ref[Order]] = []
    contexts: list[Context] = []

    def begun(order: Order) -> None:
        orders.append(weakref.ref(order))
        contexts[:] = [copy_context()]

    @coalesce(key="order")
    def load(order: Order, makes_another: bool) -> None:
        load(order, False) if makes_another else begun(order)

    @coalesce(key="order")
    async def load_async(order: Order, makes_another: bool) -> None:
        await load_async(order, False) if makes_another else begun(order)

    begun(Order())
    for _ in range(3):
        if blocks:
            contexts[0].run(load, Order(), is_within)
        else:
            contexts[0].run(asyncio.run, load_async(Order(), is_within))
    gc.collect()

    assert [order() is None for order in orders] == [True, True, True, False]


def test_a_handler_in_a_follower_does_not_wait_for_the_next_leader() -> None:
    """Rule CO5: the call below it may have to lead, and cannot go on before the handler has ended."""
    entered, go = threading.Event(), threading.Event()
    answers: list[int] = []

    @coalesce(key=lambda: 1)
    def load() -> int:
        if threading.current_thread() is leader:
            entered.set()
            go.wait(30)
            raise Struck
        return 7

    def handle(_: int, frame: FrameType | None) -> None:
        if not answers and any(step.f_code.co_name == "_sleep" for step, _ in traceback.walk_stack(frame)):
            answers.append(load())
            go.set()

    def signal_until_answered(ident: int) -> None:
        while not go.wait(0.005):
            signal.pthread_kill(ident, signal.SIGUSR1)

    def lead() -> None:
        with pytest.raises(Struck):
            load()

    leader = threading.Thread(target=lead)
    sender = threading.Thread(target=signal_until_answered, args=(threading.get_ident(),))
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        leader.start()
        entered.wait(30)
        sender.start()

        assert load() == 7
    finally:
        go.set()
        leader.join(30)
        sender.join(30)
        signal.signal(signal.SIGUSR1, before)
    assert answers == [7]
