"""Rules FB1, FB2 and Y2: fallbacks that are asked in turn, and the record of their answers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from faulttolerance import (
    ExecutionContext,
    FaultToleranceDefinitionException,
    Future,
    Guard,
    asynchronous,
    completed_future,
    degradations,
    fallback,
    guards,
    retry,
)
from faulttolerance.instrumentation import Degradation
from faulttolerance.policies import Fallback, Retry
from faulttolerance.testing import configured
from kit import Invoke, Service, key


class First(OSError):
    """The failure that the first fallback raises."""


def gives_up(context: ExecutionContext) -> NoReturn:
    """Raise a failure of its own."""
    raise First("no copy") from context.failure


class Printed:
    """A handler whose answer names the failure that it was asked for."""

    def handle(self, context: ExecutionContext) -> Any:
        return f"instead of {type(context.failure).__name__}"


# Rule FB1


def test_the_next_fallback_is_asked_with_the_failure_of_the_one_before(invoke: Invoke) -> None:
    """They are asked in order, until one answers (rule FB1)."""
    asked: list[str] = []

    def asks(context: ExecutionContext) -> Any:
        asked.append(type(context.failure).__name__)
        return gives_up(context)

    class Client(Service):
        @fallback(asks, asks, Printed, asks)
        @retry(max_retries=1, jitter=0)
        @invoke.body
        async def service(self) -> str:
            self.executions += 1
            raise ConnectionError

    client = Client()

    assert invoke(client.service) == "instead of First"
    assert asked == ["ConnectionError", "First"]
    assert client.executions == 2


def test_methods_and_handlers_stand_beside_one_another() -> None:
    """A string names a method, which takes the arguments of the guarded one (rule FB1)."""

    class Client(Service):
        @fallback("copy", Printed)
        def service(self, article: str) -> str:
            raise ConnectionError(article)

        @fallback("copy", Printed)
        async def awaited(self, article: str) -> str:
            raise ConnectionError(article)

        def copy(self, article: str, failure: ConnectionError) -> str:
            self.executions += 1
            raise First(article) from failure

    client = Client()

    assert client.service("tea") == asyncio.run(client.awaited("tea")) == "instead of First"
    assert client.executions == 2


@pytest.mark.parametrize("given", [["copy"], ("copy",)])
def test_a_list_of_one_method_names_that_method(given: Any) -> None:
    """A program may build the list, and a file may contain it (rule FB1)."""

    class Client(Service):
        @fallback(given)
        def service(self) -> str:
            raise ConnectionError

        @fallback(gives_up)
        def configured(self) -> str:
            raise ConnectionError

        def copy(self) -> str:
            return "a copy"

    assert Client().service() == "a copy"
    with configured({f"{key(Client)}/configured/Fallback/value": given}):
        assert Client().configured() == "a copy"
    with pytest.raises(FaultToleranceDefinitionException, match="and fallback_method are both missing"):
        Fallback(given[:0])


def test_a_method_that_is_for_other_failures_is_passed_over() -> None:
    """The next one is asked with the same failure (rule FB1)."""

    class Client(Service):
        @fallback("for_keys", "for_all")
        def service(self) -> str:
            raise ConnectionError

        def for_keys(self, failure: KeyError) -> str:
            return "a key"

        def for_all(self, failure: Exception) -> str:
            return type(failure).__name__

    assert Client().service() == "ConnectionError"


def test_the_same_sets_say_whether_the_next_one_is_asked(invoke: Invoke) -> None:
    """A failure that ``skip_on`` names comes out, with the failure before it as its cause (rule FB1)."""

    class Client(Service):
        @fallback(gives_up, Printed, skip_on=First)
        @invoke.body
        async def service(self) -> str:
            raise ConnectionError

    with pytest.raises(First) as raised:
        invoke(Client().service)

    assert isinstance(raised.value.__cause__, ConnectionError)


def test_the_failure_of_the_last_one_comes_out(invoke: Invoke) -> None:
    """The same holds where there is one fallback alone (rule FB1)."""

    class Client(Service):
        @fallback(gives_up, lambda context: {}["price"])
        @invoke.body
        async def service(self) -> str:
            raise ConnectionError

    with pytest.raises(KeyError) as raised:
        invoke(Client().service)

    assert isinstance(raised.value.__context__, First)


@pytest.mark.parametrize("control_flow", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_control_flow_of_a_fallback_asks_no_further_one(control_flow: type[BaseException]) -> None:
    """It is no failure (rule R0)."""

    def stops(context: ExecutionContext) -> NoReturn:
        raise control_flow

    @fallback(stops, Printed)
    def service() -> str:
        raise ConnectionError

    with pytest.raises(control_flow):
        service()


def test_a_cancellation_in_a_fallback_asks_no_further_one() -> None:
    """Also while a coroutine waits in it (rule R0)."""
    asked: list[object] = []

    async def waits(context: ExecutionContext) -> None:
        await asyncio.sleep(30)

    @fallback(waits, asked.append)
    async def service() -> None:
        raise ConnectionError

    async def main() -> None:
        call = asyncio.ensure_future(service())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(main())
    assert asked == []


@pytest.mark.parametrize("last", [True, False])
def test_a_stop_iteration_is_a_failure_as_any_other(invoke: Invoke, last: bool) -> None:
    """In coroutines, the language turns it into a ``RuntimeError`` (rule FB1)."""

    def ends(context: ExecutionContext) -> NoReturn:
        raise StopIteration("the end")

    class Client(Service):
        @fallback(*((ends, ends) if last else (ends, Printed)))
        @invoke.body
        async def service(self) -> str:
            raise ConnectionError

    outcome = invoke.outcome(Client().service)

    assert outcome in (
        (StopIteration, RuntimeError) if last else ("instead of StopIteration", "instead of RuntimeError")
    )


def test_awaited_fallbacks_are_asked_in_turn_too(invoke: Invoke) -> None:
    """Each is over before the next is asked (rule FB1)."""
    if invoke.convention == "blocking":
        return

    async def later(context: ExecutionContext) -> str:
        return gives_up(context)

    def future(context: ExecutionContext) -> Any:
        return completed_future("from a future") if invoke.convention == "offloaded" else asyncio.sleep(0, "awaited")

    class Client(Service):
        @fallback(later, future)
        @invoke.body
        async def service(self) -> Any:
            raise ConnectionError

    assert invoke(Client().service) in ("from a future", "awaited")


def test_a_chain_counts_as_one_fallback() -> None:
    """It is applied where any of them was asked, and not where none was for the failure (rule FB1)."""

    class Client(Service):
        @fallback("for_keys", "for_values")
        def service(self, failure: Exception) -> str:
            raise failure

        def for_keys(self, failure: Exception, why: KeyError) -> str:
            return "a key"

        def for_values(self, failure: Exception, why: ValueError) -> str:
            return "a value"

    client = Client()
    with pytest.raises(OSError):
        client.service(OSError())
    assert client.service(ValueError()) == "a value"

    (guard,) = [one for one in guards() if one.name == f"{key(Client)}.service"]
    counts = {tags: count for (metric, tags), count in guard.counts.items() if metric == "ft.invocations.total"}
    assert {tag for tags, count in counts.items() if count for tag in tags if tag[0] == "fallback"} == {
        ("fallback", "notApplied"),
        ("fallback", "applied"),
    }


def test_a_guard_takes_several_handlers() -> None:
    """By position or as a list, but no methods, for it belongs to no class (rule FB1)."""

    def fail() -> NoReturn:
        raise ConnectionError

    assert Guard(fallback=Fallback(gives_up, Printed)).call(fail) == "instead of First"
    assert Guard(fallback=Fallback(value=[gives_up, Printed])).call(fail) == "instead of First"
    assert asyncio.run(Guard(fallback=Fallback(gives_up, Printed)).call_async(fail)) == "instead of First"
    with pytest.raises(FaultToleranceDefinitionException, match="is 'printed'; allowed: a handler: a guard belongs"):
        Guard(fallback=Fallback(gives_up, "printed"))


def test_several_handlers_can_be_configured() -> None:
    """Commas separate their names, and those of methods, or an array of a file has them (rule FB1)."""

    class Client(Service):
        @fallback("copy")
        def service(self) -> str:
            raise ConnectionError

        def copy(self) -> str:
            return "a copy"

    class Other(Service):
        @fallback(gives_up)
        def service(self) -> str:
            raise ConnectionError

        def copy(self, failure: First) -> str:
            return "a copy"

    names = f"{__name__}.gives_up, copy"
    for given in (names, names.split(", ")):
        with configured({f"{key(Other)}/service/Fallback/value": given}):
            assert Other().service() == "a copy"
    assert Client().service() == "a copy"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((gives_up, 3), "allowed: a FallbackHandler class or a callable"),
        ((gives_up, "no name"), "allowed: a FallbackHandler class or a callable"),
        ((gives_up, OSError), "is the class OSError, which has no method handle"),
        ((gives_up, "missing"), "names 'missing', which"),
        ((gives_up, lambda: None), "which does not take one argument"),
    ],
)
def test_each_of_several_is_checked(given: tuple[Any, ...], problem: str) -> None:
    """Each is checked as if it stood alone, and named as a part of the value (rule R9)."""

    def declare() -> None:
        @fallback(*given)
        def service() -> str:
            raise ConnectionError

        service()

    with pytest.raises(FaultToleranceDefinitionException, match=rf"@Fallback\(value\) .*{problem}"):
        declare()


def test_a_wrong_method_in_a_configured_chain_is_named_with_its_key() -> None:
    """The error has the key and the source (rule R9)."""

    @fallback(gives_up)
    def service() -> str:
        raise ConnectionError

    wrong = "names 'no_such_method'.*Fallback/value in configure"
    with (
        pytest.raises(FaultToleranceDefinitionException, match=wrong),
        configured({"Fallback/value": f"{__name__}.gives_up,no_such_method"}),
    ):
        service()


# Rule FB2


async def later(context: ExecutionContext) -> str:
    return "later"


class Later:
    async def handle(self, context: ExecutionContext) -> str:
        return "later"


@pytest.mark.parametrize("handlers", [(later,), (Later,), (Printed, later)])
def test_a_coroutine_function_behind_a_synchronous_call_is_refused(handlers: tuple[Any, ...]) -> None:
    """Before the function runs, and when it is defined where its annotation says that nothing is awaited (rule FB2)."""
    ran: list[int] = []
    with pytest.raises(FaultToleranceDefinitionException, match="is a coroutine function"):

        @fallback(*handlers)
        def annotated() -> str:
            return "served"

    @fallback(*handlers)
    def service():  # type: ignore[no-untyped-def]
        ran.append(1)

    with pytest.raises(FaultToleranceDefinitionException, match="is a coroutine function"):
        service()
    with pytest.raises(FaultToleranceDefinitionException, match="is a coroutine function"):
        Guard(fallback=Fallback(*handlers)).call(ran.append, 1)
    assert ran == []


# Rule Y2


def test_an_answer_of_a_fallback_is_collected(invoke: Invoke) -> None:
    """The record has the method, the failure, and the fallback that answered (rule Y2)."""

    class Client(Service):
        @fallback(gives_up, Printed)
        @invoke.body
        async def service(self) -> str:
            raise ConnectionError

    with degradations() as found:
        invoke(Client().service)
        invoke(Client().service)

    assert [(one.method, type(one.failure), one.by) for one in found] == [
        (f"{key(Client)}.service", First, "Printed")
    ] * 2
    assert isinstance(found[0], Degradation)


def test_a_fallback_that_answers_nothing_is_not_collected(invoke: Invoke) -> None:
    """Neither a fallback that fails, nor a call that succeeds (rule Y2)."""

    class Client(Service):
        failure: BaseException | None = ConnectionError()

        @fallback(gives_up)
        @invoke.body
        async def service(self) -> str:
            if self.failure is not None:
                raise self.failure
            return "served"

    client = Client()
    with degradations() as found:
        assert invoke.outcome(client.service) is First
        client.failure = None
        assert invoke(client.service) == "served"

    assert found == []


@fallback(lambda context: "copy")
def page() -> str:
    """Fail, and answer by the fallback."""
    raise ConnectionError


def test_a_call_outside_the_block_is_not_collected() -> None:
    """Before it, after it, and in a context of its own (rule Y2)."""
    page()
    with degradations() as found:
        contextvars.Context().run(page)
    page()

    assert found == []


def test_the_outer_block_sees_the_answers_of_the_inner_one() -> None:
    """A part of a page is part of it (rule Y2)."""
    with degradations() as outer:
        page()
        with degradations() as inner:
            page()

    assert (len(outer), len(inner)) == (2, 1)


def test_a_call_that_starts_in_the_block_is_collected() -> None:
    """Tasks, calls on threads of the pool, and threads that get a copy of the context (rule Y2)."""

    @fallback(lambda context: completed_future("copy"))
    @asynchronous
    def offloaded() -> Future[str]:
        raise ConnectionError

    async def main() -> None:
        await asyncio.gather(asyncio.create_task(_paged()), asyncio.to_thread(page))

    with degradations() as found:
        asyncio.run(main())
        offloaded().result(10)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(contextvars.copy_context().run, page).result(10)
            pool.submit(page).result(10)  # this one knows nothing of the block

    assert [one.by.rpartition(".")[2] for one in found] == ["<lambda>"] * 4


async def _paged() -> None:
    page()


def test_requests_do_not_see_each_others_degradations() -> None:
    """Each task and each thread has a context of its own (rule Y2)."""

    async def request() -> int:
        with degradations() as found:
            await asyncio.sleep(0)
            page()
            await asyncio.sleep(0)
        return len(found)

    async def main() -> list[int]:
        return await asyncio.gather(*(request() for _ in range(100)))

    assert asyncio.run(main()) == [1] * 100


def test_a_block_may_be_left_in_another_context() -> None:
    """Some frameworks run the two halves of a generator in two of them (rule Y2)."""

    def halves() -> Any:
        with degradations() as found:
            yield found

    steps = halves()
    found = contextvars.copy_context().run(next, steps)
    page()
    with pytest.raises(StopIteration):
        next(steps)

    assert found == []


def test_degradations_from_many_threads_are_all_there() -> None:
    """64 threads add them at once (rule L6)."""

    def call_often() -> None:
        for _ in range(100):
            page()

    with degradations() as found:
        contexts = [contextvars.copy_context() for _ in range(64)]
        threads = [threading.Thread(target=one.run, args=(call_often,)) for one in contexts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(found) == 6400


def test_a_guard_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name in metrics and messages (rule Y2)."""
    guard: Any = Guard(retry=Retry(max_retries=0), fallback=Fallback(Printed), name="degraded")
    failing: Callable[[], NoReturn] = lambda: (_ for _ in ()).throw(ConnectionError())  # noqa: E731

    with degradations() as found:
        guard.call(failing)
    guard.close()

    assert [(one.method, one.by) for one in found] == [("degraded", "Printed")]
