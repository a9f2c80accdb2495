"""Functions that do not suit the way in which a guard calls them."""

from __future__ import annotations

import abc
import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    ExecutionContext,
    FaultToleranceDefinitionException,
    Guard,
    TimeoutException,
    apply_guard,
    asynchronous,
    circuit_breakers,
    configure,
    retry,
    sleep,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout


class Till:
    """Functions of many kinds, which count payments."""

    def __init__(self) -> None:
        self.paid = 0

    def pay(self, amount=1):  # type: ignore[no-untyped-def]  # what it returns is told by nothing
        self.paid += amount
        return "paid"

    def pay_annotated(self, amount: int = 1) -> str:
        self.paid += amount
        return "paid"

    async def pay_later(self, amount: int = 1) -> str:
        self.paid += amount
        return "paid"

    def pay_by_awaitable(self, amount: int = 1) -> Awaitable[str]:
        return self.pay_later(amount)


@pytest.fixture
def till() -> Till:
    return Till()


def strict(**more: Any) -> Guard:
    """Return a guard of which each policy would handle a failure."""
    return Guard(
        retry=Retry(jitter=0), circuit_breaker=CircuitBreaker(request_volume_threshold=1), fallback=Fallback(instead),
        **more,
    )  # fmt: skip


def instead(context: ExecutionContext) -> str:
    return "instead"


def test_call_async_calls_a_function_that_turns_out_not_to_be_asynchronous_once(till: Till) -> None:
    """The call is not repeated or replaced, and is no failure of the callee."""
    guard = strict(name="till")

    with pytest.raises(TypeError, match=r"till: call_async .* use call; .* was called once"):
        asyncio.run(guard.call_async(lambda: till.pay()))

    assert till.paid == 1
    assert circuit_breakers.state("till") == "closed"
    guard.close()


@pytest.mark.parametrize("wrapped", [lambda pay: pay, functools.partial])
@pytest.mark.parametrize("method", ["pay", "pay_annotated"])
def test_call_async_runs_a_plain_function_on_a_thread(till: Till, wrapped: Any, method: str) -> None:
    """The loop goes on meanwhile, whatever the return annotation says; a class is called so, too."""
    guard = strict()

    async def main() -> tuple[Any, Any]:
        return await guard.call_async(wrapped(getattr(till, method)), 3), await guard.call_async(int, "7")

    assert asyncio.run(main()) == ("paid", 7)
    assert till.paid == 3


class Loaded(abc.ABC):  # noqa: B024  # its metaclass counts
    """An object that takes a while to be made."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()


class Made(type):
    """Its classes may return an awaitable in place of an object."""

    def __call__(cls) -> Any:
        return asyncio.sleep(0, "made")


class Later(metaclass=Made): ...


def test_call_async_makes_an_object_of_a_class_with_a_metaclass_on_a_thread() -> None:
    """Unless the metaclass itself decides what a call returns."""
    guard = strict()

    assert asyncio.run(guard.call_async(Loaded)).thread is not threading.main_thread()
    assert asyncio.run(guard.call_async(Later)) == "made"


def test_a_plain_function_on_a_thread_has_every_policy(till: Till) -> None:
    """The guard applies its retries, fallback, time-out, circuit and permits in each way of calling."""
    entered, leave, calls = asyncio.Event(), threading.Event(), list[str]()

    def fail() -> None:
        calls.append(threading.current_thread().name)
        raise OSError

    async def main() -> None:
        guard = Guard(retry=Retry(max_retries=2, jitter=0), bulkhead=Bulkhead(1), name="till")
        loop = asyncio.get_running_loop()

        def block() -> bool:
            loop.call_soon_threadsafe(entered.set)
            return leave.wait(10)

        assert await Guard(retry=Retry(jitter=0), fallback=Fallback(instead)).call_async(fail) == "instead"
        assert len(calls) == 4
        assert threading.current_thread().name not in calls
        blocking = asyncio.ensure_future(guard.call_async(block))
        await entered.wait()
        with pytest.raises(BulkheadException):
            guard.call(till.pay)
        configure(properties={"till/Retry/maxRetries": 0})
        leave.set()
        assert await blocking
        calls.clear()
        with pytest.raises(OSError):
            await guard.call_async(fail)
        assert len(calls) == 1
        with pytest.raises(TimeoutException):
            await Guard(timeout=Timeout(20)).call_async(sleep, 10)
        guard.close()

    asyncio.run(main())


def test_an_awaitable_of_a_plain_function_is_awaited_on_the_loop_of_the_call(till: Till) -> None:
    """A function without an annotation may return one, as under ``@asynchronous``."""

    def pay_on(loop: asyncio.AbstractEventLoop):  # type: ignore[no-untyped-def]
        async def pay() -> bool:
            return asyncio.get_running_loop() is loop

        return pay()

    async def main() -> Any:
        return await strict().call_async(pay_on, asyncio.get_running_loop())

    assert asyncio.run(main()) is True


class _Rows:
    """Generator functions, and what looks like them from outside."""

    def read(self) -> Iterator[int]:
        yield 1

    async def read_later(self) -> AsyncIterator[int]:
        yield 1

    __call__ = read

    def open(self) -> Iterator[int]:
        return self.read()


@pytest.mark.parametrize("wrapped", [lambda read: read, functools.partial])
@pytest.mark.parametrize("read", [_Rows().read, _Rows().read_later, _Rows.read, _Rows()])
def test_generator_functions_are_refused_by_each_way_of_calling(read: Any, wrapped: Any) -> None:
    """By rule P4, whatever was called before: no policy could see the failure of a stream."""
    for guard in (Guard(), strict()):
        assert [*guard.call(_Rows().open)] == [1]
        for _ in range(2):
            with pytest.raises(FaultToleranceDefinitionException, match=r"is a generator function.*body of the loop"):
                guard.call(wrapped(read), *[_Rows()] * (read is _Rows.read))
            with pytest.raises(FaultToleranceDefinitionException, match=r"is a generator function.*body of the loop"):
                asyncio.run(guard.call_async(wrapped(read), *[_Rows()] * (read is _Rows.read)))


def test_call_async_awaits_any_awaitable(till: Till) -> None:
    """The function need not be an ``async def``."""

    class Paying:
        def __call__(self) -> Coroutine[Any, Any, str]:
            return till.pay_later()

    def passed_on(pay: Callable[..., Any]) -> Callable[..., Any]:
        # Its annotation is that of what it wraps, and says nothing of what it returns itself.
        @functools.wraps(pay)
        def paying() -> Any:
            return asyncio.ensure_future(asyncio.to_thread(pay))

        return paying

    ways: list[Callable[[], Any]] = [
        till.pay_later,
        till.pay_by_awaitable,
        functools.partial(till.pay_later, amount=1),
        lambda: till.pay_later(),
        Paying(),
        lambda: asyncio.ensure_future(till.pay_later()),
        passed_on(till.pay_annotated),
    ]

    async def main() -> list[str]:
        return [await strict().call_async(pay) for pay in ways]

    assert asyncio.run(main()) == ["paid"] * len(ways)
    assert till.paid == len(ways)


def resolved_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that passes for a coroutine function, as those of decorators that run one to its end."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        coroutine = function(*args)
        with pytest.raises(StopIteration) as end:
            coroutine.send(None)
        return end.value.value

    return wrapper


@pytest.mark.parametrize("guarded", [retry(jitter=0), strict()], ids=["decorator", "guard"])
def test_a_wrapper_that_only_passes_for_a_coroutine_function_is_called_once(till: Till, guarded: Any) -> None:
    """It wraps a coroutine function, and returns its result."""
    pay = guarded(resolved_wrapper(till.pay_later))

    with pytest.raises(TypeError, match=r"counts as a coroutine function: Till.pay_later returned .* class str"):
        asyncio.run(pay())

    assert till.paid == 1
    assert asyncio.run(asynchronous_call(resolved_wrapper(till.pay_later))) == "paid"


async def asynchronous_call(function: Callable[..., Any]) -> Any:
    """``@asynchronous`` takes either."""
    return await asynchronous(function)()


# Fallbacks that do not suit


async def instead_later(context: ExecutionContext) -> str:
    return "instead"


class InsteadLater:
    async def handle(self, context: ExecutionContext) -> str:
        return "instead"


@pytest.mark.parametrize("handler", [instead_later, InsteadLater])
def test_a_coroutine_function_is_no_fallback_of_a_synchronous_call(till: Till, handler: Any) -> None:
    """The caller would get a coroutine that is never awaited; the function is not called at all."""
    guard = Guard(fallback=Fallback(handler), name="later")

    with pytest.raises(FaultToleranceDefinitionException, match=r"Guard later\.call @Fallback\(value\).*coroutine fu"):
        guard.call(till.pay)
    with pytest.raises(FaultToleranceDefinitionException, match=r"Till.pay under Guard later.*coroutine function"):
        guard(Till.pay)
    with pytest.raises(FaultToleranceDefinitionException, match=r"Till.pay under Guard later.*coroutine function"):
        apply_guard("later")(Till.pay)(till)

    assert till.paid == 0
    guard.close()


@pytest.mark.parametrize("handler", [instead_later, InsteadLater, instead])
def test_a_fallback_of_an_asynchronous_call_is_asynchronous_or_not(handler: Any) -> None:
    """A guard serves both kinds of calls; a fallback that suits only one kind is refused for the other."""
    guard = Guard(fallback=Fallback(handler))

    async def fails() -> str:
        raise OSError

    assert asyncio.run(guard.call_async(fails)) == "instead"
    assert asyncio.run(guard(fails)()) == "instead"


def test_a_breaker_of_a_guard_with_such_a_fallback_is_known() -> None:
    """A question for names calls no function."""
    guard = Guard(circuit_breaker=CircuitBreaker(), fallback=Fallback(instead_later), name="later")

    assert "later" in circuit_breakers.names()
    guard.close()


class NeedsSomething:
    def __init__(self, something: int) -> None:
        self.something = something

    def handle(self, context: ExecutionContext) -> int:
        return self.something


@pytest.mark.parametrize("handler", [lambda: 1, NeedsSomething, lambda context, more: more])
def test_a_handler_that_cannot_be_called_is_refused_when_the_guard_is_made(handler: Any) -> None:
    """A decorator refuses it, too; the name stays free."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"Guard unfit @Fallback\(value\)"):
        Guard(fallback=Fallback(handler), name="unfit")

    Guard(retry=Retry(), name="unfit").close()


def returns_a_number(context: ExecutionContext) -> int:
    return 1


def test_a_handler_of_another_type_is_refused_where_a_guard_decorates(till: Till) -> None:
    """The return annotations of the two differ."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"pay_annotated under Guard .* which returns int"):
        Guard(fallback=Fallback(returns_a_number))(Till.pay_annotated)


def test_a_configured_handler_is_checked_as_well(till: Till) -> None:
    """The function does not run under a fallback that could not replace it."""
    guard = Guard(fallback=Fallback(instead), name="configured")
    configure(properties={"configured/Fallback/value": f"{__name__}.InsteadLater"})

    with pytest.raises(FaultToleranceDefinitionException, match="which is a coroutine function"):
        guard.call(till.pay)

    assert till.paid == 0
    guard.close()
