"""R8: a synchronous guard reports a result that has to be awaited, since it does not see how that ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any
from weakref import ref

import pytest

from faulttolerance import (
    Future,
    Guard,
    asynchronous,
    circuit_breaker,
    circuit_breakers,
    completed_future,
    configure,
    fallback,
    guards,
    retry,
    retry_when,
)
from faulttolerance.policies import CircuitBreaker, Fallback, Retry


class Awaitable:
    def __await__(self) -> Generator[None, None, int]:
        yield
        return 7


class Service:
    """A function that returns one result after another."""

    def __init__(self, *results: object) -> None:
        self.results: Iterator[object] = iter(results)
        self.calls = 0

    def __call__(self, context: object = None) -> Any:
        self.calls += 1
        return next(self.results)


def failed_future() -> concurrent.futures.Future[int]:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    future.set_exception(OSError())
    return future


COMING: dict[str, Callable[[], object]] = {
    "awaitable": Awaitable,
    "future of an executor": concurrent.futures.Future,
    "future of ours": Future,
    "future that failed": failed_future,
    "future of asyncio": lambda: asyncio.get_running_loop().create_future(),
    "task": lambda: asyncio.create_task(asyncio.sleep(0)),
    "coroutine": lambda: asyncio.sleep(0),
    "call": lambda: asynchronous(asyncio.sleep)(0),
}
GUARDS: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "retry": retry,
    "circuit_breaker": circuit_breaker,
    "retry_when": lambda service: retry_when(result=lambda result: False)(retry(service)),
    "guard": lambda service: Guard(retry=Retry())(service),
}


async def ended(result: Any) -> None:
    """Await or cancel a result, so that none is left unawaited."""
    if isinstance(result, concurrent.futures.Future) or asyncio.isfuture(result):
        result.cancel()
    else:
        await result


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
@pytest.mark.parametrize("make", COMING.values(), ids=COMING)
def test_the_first_result_that_is_to_be_awaited_is_reported_whenever_it_comes(
    make: Callable[[], object], guard: Callable[[Any], Callable[[], Any]]
) -> None:
    """The warning is given once for each guard, at the line that calls it."""

    async def main() -> None:
        guarded = guard(Service(1, None, "a", make(), 2, make()))
        with warnings.catch_warnings(record=True) as before:
            assert [guarded() for _ in range(3)] == [1, None, "a"]
        with pytest.warns(RuntimeWarning, match="is guarded as a synchronous function and returned") as seen:
            results = [guarded() for _ in range(3)]

        assert not before
        assert [one.filename for one in seen] == [__file__]
        await ended(results[0])
        await ended(results[2])

    asyncio.run(main())


@pytest.mark.parametrize("kind", COMING)
def test_an_awaitable_result_is_an_error_of_guard_call(kind: str) -> None:
    """Each call raises it; nothing is retried or replaced, and it is no failure of the callee.

    A future of an executor cannot be awaited, and is warned of.
    """
    guard = Guard(
        retry=Retry(jitter=0),
        circuit_breaker=CircuitBreaker(request_volume_threshold=1),
        fallback=Fallback(lambda context: "instead"),
        name="given",
    )

    async def main() -> None:
        results = [COMING[kind]() for _ in range(2)]
        service = Service(*results)
        if kind in ("future of an executor", "future that failed"):
            with pytest.warns(RuntimeWarning, match="given is guarded as a synchronous function"):
                assert [guard.call(service) for _ in range(2)] == results
        else:
            for _ in range(2):
                with pytest.raises(
                    TypeError, match=r"given: the function returned an object of the class .* use call_async"
                ):
                    guard.call(service)
        assert service.calls == 2
        assert circuit_breakers.state("given") == "closed"
        if kind != "coroutine":
            for result in results:
                await ended(result)

    asyncio.run(main())
    guard.close()


def test_where_warnings_are_errors_the_call_is_not_made_again() -> None:
    """The warning is no failure of the callee, and is counted once."""
    service = Service(Future(), Future())
    guarded = Guard(retry=Retry(jitter=0), fallback=Fallback(lambda context: "instead"), name="strict")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            guarded(service)()

    assert service.calls == 1
    counts = next(one.counts for one in guards() if one.name == "strict")
    assert sum(count for (name, _), count in counts.items() if name == "ft.invocations.total") == 1
    guarded.close()


def test_a_fallback_that_returns_an_awaitable_is_reported_too() -> None:
    """No caller awaits it either."""

    @fallback(Service(Future()))
    def service() -> Any:
        raise OSError

    with pytest.warns(RuntimeWarning, match="service"):
        service()


def test_an_asynchronous_function_that_was_switched_off_is_not_reported() -> None:
    """It is declared as it ought to be, and was switched off on purpose."""
    configure(properties={"Asynchronous/enabled": "false"})

    @asynchronous
    @retry
    def service() -> Any:
        return Future()

    assert not service().done()


def test_a_future_that_has_its_result_is_not_reported() -> None:
    """Such a future cannot fail any more."""
    assert retry(lambda: completed_future(1))().result() == 1


def test_classes_of_results_are_not_kept() -> None:
    """A guard outlives classes that are made while it lives, as those that inherit a guarded method (L4)."""

    class Base:
        @retry
        def itself(self) -> Any:
            return self

    def made() -> ref[type]:
        class Heir(Base):
            pass

        Heir().itself()
        Heir().itself()
        return ref(Heir)

    found = made()
    gc.collect()

    assert found() is None
