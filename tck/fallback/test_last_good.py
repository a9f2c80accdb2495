"""Rule Y1: the last good result answers for a call that fails, while it is young enough."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import weakref
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    circuit_breaker,
    degradations,
    explain,
    fallback,
    guards,
    instrumentation,
    last_good,
    reload,
    retry,
    retry_when,
    timeout,
)
from faulttolerance.policies import Fallback, Retry
from faulttolerance.testing import configured
from kit import Clock, Invoke, Service, key


class Client(Service):
    """A service that answers until it has a failure to raise."""

    failure: BaseException | None = None
    answers = 0

    async def give(self, what: object) -> str:
        self.executions += 1
        if self.failure is not None:
            raise self.failure
        self.answers += 1
        return f"{what} {self.answers}"


def test_the_last_good_result_of_the_same_call_answers(invoke: Invoke) -> None:
    """Each object and each argument has its own; the newest counts (rule Y1)."""

    class Prices(Client):
        @fallback(last_good(max_age=60_000))
        @retry(max_retries=1, jitter=0)
        @invoke.body
        async def price(self, article: str) -> str:
            return await self.give(article)

    shop, other = Prices(), Prices()
    good = [seen(invoke(shop.price, article)) for article in ("tea", "milk", "tea")]
    shop.failure = other.failure = ConnectionError()

    assert good == ["tea 1", "milk 2", "tea 3"]
    assert [seen(invoke(shop.price, article)) for article in ("tea", "milk")] == ["tea 3", "milk 2"]
    assert invoke.outcome(shop.price, "bread") is ConnectionError
    assert invoke.outcome(other.price, "tea") is ConnectionError
    assert shop.executions == 9


def seen(result: Any) -> Any:
    """Return the result of a method; of a future, the result inside."""
    return result.result() if hasattr(result, "result") else result


@pytest.mark.parametrize(("age", "outcome"), [(59.999, "tea 1"), (60.0, ConnectionError)])
def test_a_result_answers_while_it_is_younger_than_max_age(
    invoke: Invoke, clock: Clock, age: float, outcome: Any
) -> None:
    """Its age counts on the shared clock, from the end of the call (rule Y1)."""

    class Prices(Client):
        @fallback(last_good(timedelta(minutes=1)))
        @invoke.body
        async def price(self, article: str) -> str:
            return await self.give(article)

    shop = Prices()
    invoke(shop.price, "tea")
    shop.failure = ConnectionError()
    clock.sleep(age)

    assert seen(invoke.outcome(shop.price, "tea")) == outcome


def test_a_result_that_was_refused_to_the_end_is_not_remembered(invoke: Invoke) -> None:
    """It comes out by ``give="result"``, and is not a good one for that (rules Y1 and T4)."""

    class Prices(Client):
        stale = False

        @fallback(last_good(max_age=60_000))
        @retry(max_retries=1, delay=0, jitter=0)
        @retry_when(result=lambda result: str(seen(result)).startswith("stale"), give="result")
        @invoke.body
        async def price(self) -> str:
            return await self.give("stale" if self.stale else "fresh")

    shop = Prices()
    before = seen(invoke(shop.price))
    shop.stale = True
    given = seen(invoke(shop.price))
    shop.failure = ConnectionError()

    assert (before, given, seen(invoke(shop.price))) == ("fresh 1", "stale 3", "fresh 1")


def test_the_answer_of_a_fallback_is_never_remembered(invoke: Invoke, clock: Clock) -> None:
    """Otherwise a result would stay young for ever, and a makeshift become good (rule Y1)."""

    class Prices(Client):
        @fallback(last_good(max_age=60_000), lambda context: "makeshift")
        @invoke.body
        async def price(self, article: str) -> str:
            return await self.give(article)

    shop = Prices()
    shop.failure = ConnectionError()
    before = seen(invoke(shop.price, "tea"))
    shop.failure = None
    invoke(shop.price, "tea")
    shop.failure = ConnectionError()
    outcomes = []
    for _ in range(3):
        clock.sleep(25)
        outcomes.append(seen(invoke(shop.price, "tea")))

    assert (before, outcomes) == ("makeshift", ["tea 1", "tea 1", "makeshift"])


def test_a_result_that_another_policy_discards_is_not_remembered(invoke: Invoke) -> None:
    """The memory is outside retry and time-out: a result that they refuse is not good (rule Y1)."""

    class Prices(Client):
        @fallback(last_good(max_age=60_000))
        @retry(max_retries=0)
        @retry_when(result=lambda result: seen(result).startswith("bad"))
        @timeout(1000)
        @circuit_breaker
        @invoke.body
        async def price(self, article: str) -> str:
            return await self.give(article)

    shop = Prices()

    assert [type(invoke.outcome(shop.price, "bad")) for _ in range(2)] == [type] * 2
    assert seen(invoke(shop.price, "tea")).startswith("tea")


def test_the_sets_of_the_fallback_hold() -> None:
    """A failure that ``skip_on`` names is not replaced (rule Y1)."""

    class Prices(Client):
        @fallback(last_good(max_age=60_000), skip_on=KeyError)
        async def price(self) -> str:
            return await self.give("tea")

    async def main() -> None:
        shop = Prices()
        await shop.price()
        shop.failure = KeyError()
        with pytest.raises(KeyError):
            await shop.price()
        shop.failure = OSError()
        assert await shop.price() == "tea 1"

    asyncio.run(main())


def test_the_least_recently_used_result_goes_first() -> None:
    """So the memory is bounded; an answer is a use (rule Y1)."""
    fails = False

    @fallback(last_good(max_age=60_000, max_entries=2))
    def double(number: int) -> int:
        if fails:
            raise ConnectionError
        return 2 * number

    double(1), double(2)
    fails = True
    assert double(1) == 2
    fails = False
    double(3)
    fails = True

    assert (double(1), double(3)) == (2, 6)
    with pytest.raises(ConnectionError):
        double(2)


@pytest.mark.parametrize("by", ["number", ("number",), lambda number, user: number])
def test_a_key_tells_calls_apart(by: Any) -> None:
    """The key is the name of a parameter, several names, or a callable with the method's parameters (rule Y1)."""
    fails = False

    @fallback(last_good(max_age=60_000, key=by))
    def double(number: int, user: list[str]) -> str:
        if fails:
            raise ConnectionError
        return f"{2 * number} for {user[0]}"

    double(1, ["ada"])
    fails = True

    assert double(1, ["ben"]) == double(number=1, user=["cleo"]) == "2 for ada"


def test_arguments_without_a_hash_are_refused_before_the_function_runs() -> None:
    """The error names ``key=``; so nothing is silently not remembered (rule Y1)."""
    ran = []

    @fallback(last_good(max_age=60_000))
    def total(numbers: list[int]) -> int:
        ran.append(1)
        return sum(numbers)

    with pytest.raises(TypeError, match=r"is not hashable; identify calls by key="):
        total([1, 2])
    assert ran == []


@pytest.mark.parametrize("is_first", [True, False])
def test_no_further_fallback_answers_for_arguments_without_a_hash(is_first: bool, invoke: Invoke) -> None:
    """By rule Y1: else the method would never run for them, however healthy it is."""
    remembered, default = last_good(max_age=60_000), lambda _: "default"

    class Reports(Service):
        @fallback(*((remembered, default) if is_first else (default, remembered)))
        @invoke.body
        async def total(self, numbers: list[int] | int) -> str:
            self.executions += 1
            raise ConnectionError

    reports = Reports()

    with pytest.raises(TypeError, match=r"is not hashable; identify calls by key="):
        invoke(reports.total, [1, 2])
    assert reports.executions == 0
    assert invoke(reports.total, 1) == "default"


def test_a_keyword_without_a_hash_is_refused_as_any_argument_without_one() -> None:
    """Also where the function takes any keywords, and without a further fallback that would answer."""

    @fallback(last_good(max_age=60_000), lambda _: "default")
    def search(**filters: Any) -> str:
        raise ConnectionError

    with pytest.raises(TypeError, match=r"search: the key .* is not hashable; identify calls by key="):
        search(brand=["a", "b"])
    assert search(brand="a") == "default"


def test_a_key_that_fails_ends_the_call_alike_whether_or_not_anybody_listens() -> None:
    """Rule F1: the next fallback is asked, and no event says that the one before answered."""

    def failing(order: str) -> object:
        raise ValueError(order)

    class Shop:
        @fallback(last_good(max_age=1000, key=failing), lambda order: "printed")
        def price(self, order: str) -> str:
            return "120"

    assert Shop().price("tea") == "printed"
    sent: list[object] = []
    before = instrumentation.get_event_sinks()
    instrumentation.set_event_sinks([sent.append])
    try:
        assert Shop().price("tea") == "printed"
    finally:
        instrumentation.set_event_sinks(before)
    assert len(sent) == 1


def test_objects_that_cannot_be_referred_to_weakly_need_a_key() -> None:
    """The error names the class and ``key=``, and comes before the function runs (rule Y1)."""
    ran: list[str] = []

    class Prices:
        __slots__ = ()

        @fallback(last_good(max_age=60_000))
        def price(self, good: str) -> None:
            ran.append(good)

        @fallback(last_good(max_age=60_000, key="good"))
        def price_by_key(self, good: str) -> str:
            ran.append(good)
            if len(ran) > 1:
                raise ConnectionError
            return f"price of {good}"

    with pytest.raises(TypeError, match=r"weak reference to '.*Prices' object; identify calls by key="):
        Prices().price("tea")
    assert ran == []
    assert [Prices().price_by_key("tea") for _ in range(2)] == ["price of tea"] * 2


def test_objects_are_not_kept() -> None:
    """A result of an object that is gone does not answer for another one in its place (rules Y1, L4)."""

    class Prices(Client):
        @fallback(last_good(max_age=60_000))
        def price(self) -> str:
            if self.failure is not None:
                raise self.failure
            return "tea"

    shop = Prices()
    shop.price()
    gone = weakref.ref(shop)
    del shop
    gc.collect()
    assert gone() is None
    for _ in range(100):
        new = Prices()
        new.failure = ConnectionError()
        with pytest.raises(ConnectionError):
            new.price()


def test_each_method_and_each_guard_remembers_its_own() -> None:
    """Also where they share one value, as on a class (rules Y1, L1)."""
    remembered = last_good(max_age=60_000)

    @fallback(remembered)
    class Shop(Client):
        def price(self) -> str:
            if self.failure is not None:
                raise self.failure
            return "a price"

        def name(self) -> str:
            raise ConnectionError

    shop = Shop()
    shop.price()
    shop.failure = ConnectionError()

    assert shop.price() == "a price"
    with pytest.raises(ConnectionError):
        shop.name()


def test_a_guard_remembers_by_function_and_arguments() -> None:
    """The same holds for blocking and awaited calls (rule Y1)."""
    guard = Guard(fallback=Fallback(last_good(max_age=60_000)), retry=Retry(max_retries=0))
    fails = False

    def double(number: int) -> int:
        if fails:
            raise ConnectionError
        return 2 * number

    async def triple(number: int) -> int:
        if fails:
            raise ConnectionError
        return 3 * number

    async def main() -> tuple[int, int]:
        nonlocal fails
        fails = False
        await guard.call_async(triple, 2)
        guard.call(double, 2)
        fails = True
        return guard.call(double, 2), await guard.call_async(triple, 2)

    assert asyncio.run(main()) == (4, 6)
    with pytest.raises(ConnectionError):
        guard.call(double, 3)


def test_a_remembered_result_outlives_a_reload() -> None:
    """Rule C3: also where other values come into force."""
    fails = False

    @fallback(last_good(max_age=60_000))
    @retry(max_retries=0)
    def price() -> int:
        if fails:
            raise ConnectionError
        return 120

    price()
    fails = True
    with configured({"Retry/maxRetries": 1, "Retry/jitter": 0}):
        reload()
        assert price() == 120


def test_it_is_counted_and_collected_as_a_fallback_is() -> None:
    """It is applied where there was a result, and not where there was none (rules Y1, Y2)."""

    class Prices(Client):
        @fallback(last_good(max_age=60_000))
        @retry(max_retries=1, jitter=0)
        def price(self, article: str) -> str:
            if self.failure is not None:
                raise self.failure
            return article

    shop = Prices()
    shop.price("tea")
    shop.failure = ConnectionError()
    with degradations() as found:
        shop.price("tea")
        with pytest.raises(ConnectionError):
            shop.price("milk")

    assert [(one.by, type(one.failure)) for one in found] == [("last_good", ConnectionError)]
    (guard,) = [one for one in guards() if one.name == f"{key(Prices)}.price"]
    counts = {tags: count for (metric, tags), count in guard.counts.items() if metric == "ft.invocations.total"}
    assert {tuple(value for _, value in tags): count for tags, count in counts.items() if count} == {
        ("valueReturned", "notApplied"): 1,
        ("valueReturned", "applied"): 1,
        ("exceptionThrown", "notApplied"): 1,
    }
    assert "last_good" in explain(Prices.price).__repr__() or "LastGood" in repr(explain(Prices.price))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"max_age": 0}, r"max_age\) is 0"),
        ({"max_age": -1}, r"max_age\) is -1"),
        ({"max_age": 1, "max_entries": 0}, r"max_entries\) is 0"),
        ({"max_age": 1, "key": 3}, r"key\) is 3"),
    ],
)
def test_wrong_values_are_refused(arguments: dict[str, Any], problem: str) -> None:
    """The error says what is wrong, where, which value it got and what is allowed (rule R9)."""
    with pytest.raises(FaultToleranceDefinitionException, match=problem):
        last_good(**arguments)


def test_a_key_that_names_no_parameter_is_refused() -> None:
    """The error names the nearest one (rule R9); a second memory of one method is refused, too."""
    with pytest.raises(FaultToleranceDefinitionException, match="did you mean 'number'"):

        @fallback(last_good(max_age=1000, key="numbr"))
        def double(number: int) -> int:
            return 2 * number

    with pytest.raises(FaultToleranceDefinitionException, match="has last_good more than once"):
        Fallback(last_good(1000), last_good(2000))


def test_max_age_has_no_default() -> None:
    """The application decides the age that an answer may have (rule Y1)."""
    with pytest.raises(TypeError, match="max_age"):
        last_good()  # type: ignore[call-arg]


def test_many_threads_remember_at_once() -> None:
    """Each answer belongs to its argument, and the memory stays bounded (rules Y1, L6)."""
    chance = random.Random(7)
    fails = [chance.random() < 0.5 for _ in range(1000)]
    wrong: list[object] = []

    @fallback(last_good(max_age=60_000, max_entries=50))
    def double(number: int, step: int) -> int:
        if fails[step]:
            raise ConnectionError
        return 2 * number

    @fallback(last_good(max_age=60_000, max_entries=50, key="number"))
    def by_number(number: int, step: int) -> int:
        return double(number, step)

    def call_often(seed: int) -> None:
        mine = random.Random(seed)
        for step in range(300):
            number = mine.randrange(100)
            try:
                if by_number(number, step) != 2 * number:
                    wrong.append(number)
            except ConnectionError:
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=call_often, args=(seed,)) for seed in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_keeps_the_remembered_results() -> None:
    """Rule L5: results belong to no thread."""
    fails = False

    @fallback(last_good(max_age=60_000))
    def price() -> int:
        if fails:
            raise ConnectionError
        return 120

    price()
    child = os.fork()
    if not child:
        fails = True
        os._exit(0 if price() == 120 else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_last_good_above_a_function_is_refused_with_the_remedy() -> None:
    """It is a value of ``@fallback``, and no decorator."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"got <function .*allowed: @fallback\(last_good"):

        @last_good("1m")
        def price() -> str:
            return "9.50"


def test_last_good_without_its_parentheses_is_refused_when_the_function_is_declared() -> None:
    """It would fail only in the outage."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"Fallback\(value\) is <function last_good"):
        fallback(last_good)(lambda: None)


def test_a_mock_may_stand_for_a_handler_though_it_has_every_attribute() -> None:
    """Tests of applications put mocks in place of handlers."""
    assert fallback(Mock(return_value="mocked"))(Mock(side_effect=OSError))() == "mocked"
