"""Rule R0: control flow passes through every policy, changes nothing, and gives back what the call held."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from faulttolerance import (
    BulkheadException,
    ExecutionContext,
    Guard,
    Interrupted,
    TimeoutException,
    asynchronous,
    before_retry,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    fallback,
    guards,
    rate_limit,
    retry,
    sleep,
    timeout,
)
from faulttolerance.policies import Retry
from kit import INTERRUPTION, Clock, Error, Invoke, Service, key

Held: TypeAlias = Callable[[], list[str]]
GiveUp: TypeAlias = Callable[..., BaseException]

CONTROL_FLOW = [
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    asyncio.CancelledError,
    Interrupted,
    Error,
]
CANCELLATION = (asyncio.CancelledError, concurrent.futures.CancelledError)


def raised_by(invoke: Invoke, method: Callable[..., Any], *args: Any) -> type[BaseException]:
    """Return the class of the exception of a call; the future of a cancelled call raises a class of its own."""
    try:
        result = invoke(method, *args)
    except concurrent.futures.CancelledError:
        return asyncio.CancelledError
    except BaseException as error:
        return type(error)
    raise AssertionError(f"returned {result!r}")


def counts_of(method: Any) -> dict[Any, int]:
    """Return the counts of a guarded method of one class, without zeros."""
    (found,) = [guard for guard in guards() if guard.method is method]
    return {series: count for series, count in found.counts.items() if count}


# Every kind of it


@pytest.mark.parametrize("kind", CONTROL_FLOW)
def test_control_flow_is_not_retried_not_replaced_and_not_judged(
    invoke: Invoke, kind: type[BaseException], held: Held
) -> None:
    """R0: one attempt, no fallback, no verdict, no permit lost, though the sets name ``BaseException``."""

    class Client(Service):
        @fallback(lambda context: "replaced", apply_on=BaseException)
        @retry(max_retries=3, jitter=0, retry_on=BaseException)
        @circuit_breaker(request_volume_threshold=2, failure_ratio=0.1, fail_on=BaseException)
        @timeout(60_000)
        @bulkhead(1, waiting_task_queue=1)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise kind

    client = Client()
    outcomes = [raised_by(invoke, client.service) for _ in range(3)]

    assert outcomes == [kind] * 3
    assert client.executions == 3
    assert circuit_breakers.state(key(Client, "service").replace("/", ".")) == "closed"
    assert held() == []


def test_a_task_ends_by_its_cancellation_though_the_sets_name_cancellations(clock: Clock) -> None:
    """R0: a further attempt or a fallback would swallow it, and a time-out of asyncio would end nothing."""
    attempts = 0

    @fallback(lambda context: "replaced", apply_on=asyncio.CancelledError)
    @retry(max_retries=3, jitter=0, retry_on=(OSError, asyncio.CancelledError))
    async def wait() -> object:
        nonlocal attempts
        attempts += 1
        return await asyncio.sleep(60)

    async def main() -> None:
        async with asyncio.timeout(1):
            await wait()

    with pytest.raises(TimeoutError):
        clock.run(main())

    assert attempts == 1


@pytest.mark.parametrize("kind", CONTROL_FLOW)
def test_metrics_count_control_flow_as_an_exception_without_a_retry_or_a_verdict(
    invoke: Invoke, kind: type[BaseException]
) -> None:
    """R0: ``exceptionThrown``, ``exceptionNotRetryable``, ``timedOut=false``, and no result of the breaker."""

    class Client(Service):
        @retry(max_retries=3, jitter=0)
        @circuit_breaker()
        @timeout(60_000)
        @invoke.body
        async def counted(self) -> None:
            raise kind

    raised_by(invoke, Client().counted)
    if invoke.convention == "task" and kind in (KeyboardInterrupt, SystemExit):
        pytest.skip("asyncio ends the loop at once, before the call has heard of it")
    counts = counts_of(Client.counted)

    def tags_of(metric: str) -> list[Any]:
        return [dict(tags) for name, tags in counts if name == metric]

    assert [tags["result"] for tags in tags_of("ft.invocations.total")] == ["exceptionThrown"]
    assert [tags["retryResult"] for tags in tags_of("ft.retry.calls.total")] == ["exceptionNotRetryable"]
    assert tags_of("ft.retry.retries.total") == []
    assert tags_of("ft.timeout.calls.total") == [{"timedOut": "false"}]
    assert tags_of("ft.circuitbreaker.calls.total") == []


def test_set_that_names_the_class_itself_takes_it(invoke: Invoke) -> None:
    """R0: a ``BaseException`` that is no ``Exception`` is a failure where a set names its own class."""

    class Client(Service):
        @fallback(lambda context: "replaced", apply_on=(Exception, Error))
        @retry(max_retries=2, jitter=0, retry_on=(Exception, Error))
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise Error

    client = Client()
    result = invoke(client.service)

    assert result == "replaced"
    assert client.executions == 3


@pytest.mark.parametrize("kind", CONTROL_FLOW)
def test_probe_that_ends_by_control_flow_gives_its_place_back(
    invoke: Invoke, clock: Clock, kind: type[BaseException], held: Held
) -> None:
    """R0, R4: the circuit stays half-open, and the next call is the probe that decides."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0, delay=1000)
        @invoke.body
        async def service(self, failure: type[BaseException] | None) -> str:
            if failure is not None:
                raise failure
            return "served"

    client = Client()
    name = f"{key(Client)}.service"
    assert raised_by(invoke, client.service, OSError) is OSError
    clock.sleep(1.5)
    probed = raised_by(invoke, client.service, kind)
    state = circuit_breakers.state(name)
    result = invoke(client.service, None)

    assert probed is kind
    assert state == "half-open"
    assert result == "served"
    assert circuit_breakers.state(name) == "closed"
    assert held() == []


@pytest.mark.parametrize("kind", CONTROL_FLOW)
def test_control_flow_of_the_application_around_an_attempt_comes_out(
    invoke: Invoke, kind: type[BaseException], held: Held
) -> None:
    """R0: the same holds where a fallback, a hook before a retry or a predicate raises it."""

    def give_in(context: ExecutionContext) -> Any:
        raise kind

    class Client(Service):
        @fallback(give_in)
        @bulkhead(1)
        @invoke.body
        async def falls_back(self) -> None:
            raise OSError

        @retry(jitter=0)
        @before_retry(give_in)
        @bulkhead(1)
        @invoke.body
        async def prepares(self) -> None:
            self.executions += 1
            raise OSError

    client = Client()
    outcomes = [raised_by(invoke, method) for method in (client.falls_back, client.prepares)]

    assert outcomes == [kind, kind]
    assert client.executions == 1
    assert held() == []


# At every point


def test_call_that_is_ended_while_its_body_runs(invoke: Invoke, clock: Clock, give_up: GiveUp, held: Held) -> None:
    """R0: the body receives one exception; no retry or fallback follows, and the permit is free."""
    heard = []

    class Client(Service):
        @fallback(lambda context: "replaced")
        @retry(max_retries=3, jitter=0)
        @circuit_breaker(request_volume_threshold=1)
        @timeout(60_000)
        @bulkhead(1, waiting_task_queue=1)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            try:
                await invoke.sleep(10)
            except BaseException as error:
                heard.append(type(error))
                raise

    client = Client()
    ended = give_up(client.service, 1)
    clock.sleep(30)

    assert isinstance(ended, (TimeoutException, *CANCELLATION))
    assert [issubclass(one, INTERRUPTION) for one in heard] == [True]
    assert client.executions == 1
    assert circuit_breakers.state(f"{key(Client)}.service") == "closed"
    assert held() == []


def test_call_that_is_ended_while_it_waits_for_a_permit(invoke: Invoke, clock: Clock, held: Held) -> None:
    """R0, R5: the call leaves the queue and never starts; the running call keeps its permit."""
    if invoke.convention == "blocking":
        pytest.skip("a synchronous call does not wait for a permit")

    class Client(Service):
        @retry(max_retries=3, jitter=0)
        @circuit_breaker()
        @bulkhead(1, waiting_task_queue=1)
        @invoke.body
        async def service(self) -> str:
            self.executions += 1
            await invoke.sleep(10)
            return "served"

    client = Client()
    if invoke.is_on_loop:

        async def main() -> tuple[Any, list[Any]]:
            first, second = (asyncio.ensure_future(client.service()) for _ in range(2))
            await asyncio.sleep(1)
            second.cancel()
            await asyncio.wait([second])
            third = asyncio.ensure_future(client.service())
            return second.cancelled(), list(await asyncio.gather(first, third))

        cancelled, results = clock.run(main())
    else:
        first, second = client.service(), client.service()
        clock.sleep(1)
        second.cancel()
        third = client.service()
        cancelled, results = second.cancelled(), [first.result(30), third.result(30)]

    assert cancelled
    assert results == ["served", "served"]
    assert client.executions == 2
    assert held() == []


def test_permit_that_came_with_the_cancellation_is_passed_on(clock: Clock, held: Held) -> None:
    """R0, B31: a waiter that is admitted and cancelled in one turn of the loop hands its permit to the next."""

    class Client(Service):
        @bulkhead(1, waiting_task_queue=5)
        async def service(self, turn: asyncio.Event, at_last: Callable[[], object] | None = None) -> str:
            await turn.wait()
            if at_last is not None:
                asyncio.get_running_loop().call_soon(at_last)
            return "served"

    client = Client()

    async def main() -> tuple[bool, list[str]]:
        turn, done = asyncio.Event(), asyncio.Event()
        done.set()
        # The cancellation runs after the permit was handed over, before it is taken.
        first = asyncio.ensure_future(client.service(turn, lambda: second.cancel()))
        second = asyncio.ensure_future(client.service(done))
        third = asyncio.ensure_future(client.service(done))
        await asyncio.sleep(0.1)
        turn.set()
        return await asyncio.wait_for(_cancelled(second), 5), [await first, await asyncio.wait_for(third, 5)]

    was_cancelled, results = clock.run(main())

    assert was_cancelled
    assert results == ["served", "served"]
    assert held() == []


async def _cancelled(task: asyncio.Future[Any]) -> bool:
    await asyncio.wait([task])
    return task.cancelled()


def attempts_of_cancelled_calls(clock: Clock, guard: Callable[[Callable[[], Any]], Callable[[], Any]]) -> int:
    """Return the number of attempts of two calls that are cancelled; the clean-up of the guarded function fails."""
    attempts = []

    async def save() -> None:
        attempts.append(None)
        try:
            await asyncio.sleep(10)
        finally:
            raise ConnectionError("the rollback failed")

    service = guard(save)

    async def main() -> None:
        for _ in range(2):
            call = asyncio.ensure_future(service())
            await asyncio.sleep(1)
            call.cancel()
            with pytest.raises(ConnectionError, match="rollback"):
                await call

    clock.run(main())
    return len(attempts)


@pytest.mark.parametrize(
    "policies",
    [
        [],
        [timeout("1m"), circuit_breaker(request_volume_threshold=1)],
        [fallback(lambda context: "replaced")],
    ],
)
def test_a_cancelled_call_whose_clean_up_fails_is_not_retried(policies: list[Any], clock: Clock, held: Held) -> None:
    """R0: as without a guard, the failure comes out; it is no evidence about the callee, and opens no circuit."""

    def guarded(save: Callable[[], Any]) -> Any:
        for policy in (retry(max_retries=3, delay=0, jitter=0), *policies):
            save = policy(save)
        return save

    assert attempts_of_cancelled_calls(clock, guarded) == 2
    assert held() == []


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_cancelled_block_whose_clean_up_fails_is_not_retried(is_awaited: bool, clock: Clock, held: Held) -> None:
    """R0: also where one statement `with` is around code that waits."""
    guard = Guard(retry(max_retries=3, delay=0, jitter=0), circuit_breaker(request_volume_threshold=1))

    def guarded(save: Callable[[], Any]) -> Any:
        async def service() -> None:
            if is_awaited:
                async for awaited in guard.attempts():
                    async with awaited:
                        await save()
            else:
                for attempt in guard.attempts():
                    with attempt:
                        await save()

        return service

    assert attempts_of_cancelled_calls(clock, guarded) == 2
    assert held() == []


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_block_of_a_clean_up_is_retried_where_it_is_refused(is_awaited: bool, clock: Clock) -> None:
    """R0: the clean-up of a cancelled task guards its own blocks, which a full limit may refuse first."""
    guard = Guard(retry(max_retries=1, delay=1_000, jitter=0), rate_limit(1, window=1))
    released = []

    async def release() -> None:
        if is_awaited:
            async for awaited in guard.attempts():
                async with awaited:
                    released.append(None)
        else:
            for attempt in guard.attempts():
                with attempt:
                    released.append(None)

    async def service() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await release()

    async def main() -> None:
        call = asyncio.ensure_future(service())
        await asyncio.sleep(1)
        await release()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    clock.run(main())

    assert len(released) == 2


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_fallback_answers_in_the_clean_up_after_a_time_out(is_coroutine: bool, clock: Clock) -> None:
    """R0: the calls of a clean-up start after the time-out, which therefore ended none of them."""
    answers = []

    @fallback(lambda context: "into the outbox")
    def release() -> str:
        raise ConnectionError

    @timeout(100)
    def reserve() -> None:
        try:
            sleep(1)
        finally:
            answers.append(release())

    @fallback(lambda context: "into the outbox")
    async def release_async() -> str:
        raise ConnectionError

    @timeout(100)
    async def reserve_async() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            answers.append(await release_async())

    with pytest.raises(TimeoutException):
        clock.run(reserve_async()) if is_coroutine else reserve()

    assert answers == ["into the outbox"]


def test_a_fallback_answers_in_another_thread_than_that_of_a_time_out(clock: Clock) -> None:
    """R0: the time-out of the caller interrupts no call that it has handed to another thread, and does not wait for."""

    @asynchronous
    @fallback(lambda context: "into the outbox")
    def audit() -> concurrent.futures.Future[str]:
        sleep(2)
        raise ConnectionError

    sent: list[Any] = []

    @timeout(1_000)
    def order() -> None:
        sent.append(audit())
        sleep(5)

    with pytest.raises(TimeoutException):
        order()

    assert sent[0].result() == "into the outbox"


async def _expire() -> None:
    """Fail as libraries do that cancel the task for their own time-out, and never withdraw that request."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        raise TimeoutError from None


async def _refuse() -> None:
    try:
        raise OSError
    except OSError:
        raise ConnectionError from None


@pytest.mark.parametrize("is_block", [False, True])
@pytest.mark.parametrize("fail", [_expire, _refuse])
def test_a_call_that_a_clean_up_makes_is_retried(fail: Callable[[], Any], is_block: bool, clock: Clock) -> None:
    """R0: only the call that was cancelled is over, and not those that its caller makes because of that."""
    guard, attempts = Guard(retry(max_retries=3, delay=0, jitter=0, retry_on=(ConnectionError, TimeoutError))), []

    async def release() -> None:
        attempts.append(None)
        if len(attempts) < 3:
            await fail()

    async def service() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            if is_block:
                async for attempt in guard.attempts():
                    async with attempt:
                        await release()
            else:
                await guard.call_async(release)

    async def main() -> None:
        call = asyncio.ensure_future(service())
        await asyncio.sleep(1)
        call.cancel()
        assert await _cancelled(call)

    clock.run(main())

    assert len(attempts) == 3


def test_a_failed_task_group_is_retried(clock: Clock) -> None:
    """Up to Python 3.12 one that fails at its end leaves its task cancelled; one that fails before hides that."""
    attempts = []

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ConnectionError

    @retry(max_retries=3, delay=0, jitter=0)
    async def load(seconds: float) -> None:
        attempts.append(seconds)
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.sleep(seconds)

    async def main() -> None:
        for seconds in (0, 10):
            with pytest.raises(ExceptionGroup):
                await load(seconds)

    clock.run(main())

    assert attempts == [0] * 4 + [10] * 4


def test_call_that_is_ended_in_a_delay(invoke: Invoke, clock: Clock, give_up: GiveUp, held: Held) -> None:
    """R0: no further attempt follows."""
    if invoke.convention == "blocking":
        pytest.skip("rule R12: a delay that would reach an enclosing deadline is not begun; see the test with a signal")

    class Client(Service):
        @fallback(lambda context: "replaced")
        @retry(max_retries=3, delay=10_000, jitter=0)
        @bulkhead(1)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    client = Client()
    ended = give_up(client.service, 1)
    clock.sleep(30)

    assert isinstance(ended, CANCELLATION)
    assert client.executions == 1
    assert held() == []


@pytest.mark.parametrize("place", ["fallback", "before a retry"])
def test_call_that_is_ended_beside_its_attempts(
    invoke: Invoke, give_up: GiveUp, place: str, held: Held, clock: Clock
) -> None:
    """R0: a fallback or a hook before a retry receives the exception and ends; no further code of the call runs."""
    heard = []
    guarded_by = fallback(fallback_method="beside") if place == "fallback" else before_retry(method_name="beside")

    class Client(Service):
        @retry(max_retries=1, jitter=0)
        @guarded_by
        @bulkhead(1)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

        @bulkhead(1)
        @invoke.body
        async def beside(self) -> None:
            try:
                await invoke.sleep(10)
            except BaseException as error:
                heard.append(type(error))
                raise

    client = Client()
    ended = give_up(client.service, 1)
    clock.sleep(30)

    assert isinstance(ended, (TimeoutException, *CANCELLATION))
    assert [issubclass(one, INTERRUPTION) for one in heard] == [True]
    assert client.executions == (2 if place == "fallback" else 1)
    assert held() == []


def test_probe_that_is_ended_from_outside_gives_its_place_back(
    invoke: Invoke, clock: Clock, give_up: GiveUp, held: Held
) -> None:
    """R0, R4, B2: the circuit stays half-open; the next probe closes it."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0, delay=1000)
        @bulkhead(1, waiting_task_queue=1)
        @invoke.body
        async def service(self) -> str:
            self.executions += 1
            if self.executions == 1:
                raise OSError
            if self.executions == 2:
                await invoke.sleep(10)
            return "served"

    client = Client()
    name = f"{key(Client)}.service"
    assert invoke.outcome(client.service) is OSError
    clock.sleep(1.5)
    ended = give_up(client.service, 0.5)
    clock.sleep(0.1)
    state = circuit_breakers.state(name)
    left = held()
    result = invoke(client.service)

    assert isinstance(ended, (TimeoutException, *CANCELLATION))
    assert state == "half-open"
    assert left == []
    assert result == "served"
    assert circuit_breakers.state(name) == "closed"


def test_attempt_that_an_outer_deadline_ended_is_neutral(invoke: Invoke, held: Held) -> None:
    """R0: the breaker of the inner call does not count it, and the inner call is not retried."""
    if invoke.convention == "offloaded":
        pytest.skip("its caller does not wait in it")

    class Client(Service):
        @retry(max_retries=5, jitter=0)
        @circuit_breaker(request_volume_threshold=1, failure_ratio=0.1)
        @invoke.body
        async def inner(self) -> None:
            self.executions += 1
            await invoke.sleep(10)

        if invoke.convention == "blocking":

            @timeout(1000)
            def outer(self) -> None:
                self.inner()
        else:

            @timeout(1000)
            async def outer(self) -> None:
                await self.inner()

    client = Client()
    outcome = invoke.outcome(client.outer)

    assert outcome is TimeoutException
    assert client.executions == 1
    assert circuit_breakers.state(f"{key(Client)}.inner") == "closed"
    assert held() == []


# Ctrl-C, as the operating system sends it


@pytest.mark.parametrize("place", ["body", "delay", "fallback"])
def test_ctrl_c_ends_a_call_wherever_it_is(place: str, held: Held) -> None:
    """R0: ``KeyboardInterrupt`` comes out of the main thread at once, and the permit is free."""
    executions = []

    class Client:
        @fallback(fallback_method="instead")
        @retry(max_retries=1, delay=0 if place == "fallback" else 30_000, jitter=0)
        @timeout(60_000)
        @bulkhead(1)
        def service(self) -> None:
            executions.append(None)
            if place != "fallback":
                timer.start()
            if place == "body":
                sleep(30)
            raise OSError

        def instead(self) -> None:
            # Begun inside the call: on a busy machine the signal may strike while ``start`` itself waits.
            timer.start()
            sleep(30)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            Client().service()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, previous)

    assert len(executions) == (2 if place == "fallback" else 1)
    assert held() == []


def test_a_refused_waiter_of_a_guard_leaves_nothing(clock: Clock, held: Held) -> None:
    """R0: a rejected call holds nothing, in ``Guard.call`` and ``Guard.call_async`` alike."""
    from faulttolerance.policies import Bulkhead

    guard = Guard(bulkhead=Bulkhead(1, 1), retry=Retry(max_retries=0))

    async def body() -> None:
        await asyncio.sleep(1)

    async def main() -> list[Any]:
        calls = [asyncio.ensure_future(guard.call_async(body)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(BulkheadException):
            guard.call(lambda: None)
        return await asyncio.gather(*calls, return_exceptions=True)

    results = clock.run(main())

    assert [type(one) for one in results] == [type(None), type(None), BulkheadException]
    assert held() == []


def test_failure_that_is_thrown_into_a_waiting_coroutine_gives_its_place_back(held: Held) -> None:
    """Code that drives a coroutine by hand may throw any exception into it; the next call waits in its place."""

    class Client(Service):
        @bulkhead(1, waiting_task_queue=1)
        async def service(self, turn: asyncio.Event) -> str:
            await turn.wait()
            return "served"

    client = Client()

    async def main() -> list[str]:
        turn = asyncio.Event()
        first = asyncio.ensure_future(client.service(turn))
        await asyncio.sleep(0)
        waiting = client.service(turn)
        waiting.send(None)
        with pytest.raises(OSError, match="thrown in"):
            waiting.throw(OSError("thrown in"))
        last = asyncio.ensure_future(client.service(turn))
        await asyncio.sleep(0)
        turn.set()
        return [await first, await asyncio.wait_for(last, 5)]

    assert asyncio.run(main()) == ["served", "served"]
    assert held() == []
