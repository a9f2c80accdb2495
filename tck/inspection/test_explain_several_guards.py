"""Explanations of a function under several guards, and the list of guards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import Guard, apply_guard, bulkhead, circuit_breaker, explain, fallback, guards, retry, timeout
from faulttolerance.policies import Bulkhead, Retry, Timeout
from kit.definition import refused


@pytest.fixture
def payments() -> Iterator[Guard]:
    guard = Guard(retry=Retry(max_retries=7), name="payments")
    yield guard
    guard.close()


def headings(text: str) -> list[str]:
    """Return the lines that begin a guard, and the policies in it."""
    return [
        line.partition(" (")[0].strip() for line in text.splitlines() if "[" not in line and " variable " not in line
    ]


def test_a_function_under_a_guard_is_explained(payments: Guard) -> None:
    """The guard may be put there in any way."""

    @payments
    def charge() -> None: ...

    @apply_guard("payments")
    async def refund() -> None: ...

    class Client:
        @classmethod
        @payments
        def find(cls) -> None: ...

        @payments
        def send(self) -> None: ...

    for function in (charge, refund, Client.find, Client().find, Client.send, Client().send):
        found = explain(function)
        assert found.startswith(f"{__name__}.{function.__qualname__}, by the guard payments\n")
        assert "maxRetries = 7" in found
    assert explain(Client, "send") == explain(Client().send)
    assert "(declared on the guard)" in explain(Guard(retry=Retry())(len))


def test_guards_that_stand_above_one_another_are_all_explained(payments: Guard) -> None:
    """The outermost comes first, and each has its own values."""

    @bulkhead
    @payments
    @timeout
    def charge() -> None: ...

    @retry(max_retries=2)
    class Client:
        @payments
        def send(self) -> None: ...

    name = f"{__name__}.{charge.__qualname__}"
    assert headings(explain(charge)) == [name, "Bulkhead", f"{name}, by the guard payments", "Retry", name, "Timeout"]
    found = explain(Client().send)
    assert found.index("maxRetries = 2") < found.index("by the guard payments") < found.index("maxRetries = 7")


def test_a_missing_guard_is_reported(payments: Guard) -> None:
    """It cannot be explained; ``validate`` reports it among all other faults."""

    @apply_guard("paymnets")
    @timeout
    def charge() -> None: ...

    with pytest.raises(KeyError, match=r"no guard is named 'paymnets'; did you mean 'payments'\?"):
        explain(charge)


def test_the_code_of_a_call_is_shown_for_guards_too(payments: Guard) -> None:
    """Decorators have it, too; the code of a coroutine function differs."""
    shared = Guard(timeout=Timeout(100), bulkhead=Bulkhead(2))

    @shared
    async def charge() -> None: ...

    assert "policies.fall_back(" in explain(payments, source=True)
    assert "async def" not in explain(payments, source=True)
    assert "async def" in explain(charge, source=True)


def test_a_class_is_explained_method_by_method() -> None:
    """An explanation of a class needs the name of a method."""

    class Client:
        @retry
        def charge(self) -> None: ...

    with pytest.raises(ValueError, match=r"Client is a class: name the method, as in explain\(Client, 'call'\)"):
        explain(Client)

    assert explain(Client, "charge").splitlines()[0].endswith("Client.charge")


def test_a_wrapper_of_a_guarded_function_is_not_explained(payments: Guard) -> None:
    """A guard knows its function by identity: a wrapper may do anything."""

    @payments
    def charge() -> None: ...

    @functools.wraps(charge)
    def wrapper() -> None: ...

    with pytest.raises(ValueError, match="is not guarded"):
        explain(wrapper)


def listed(of: Callable[..., object]) -> list[str]:
    """Return the names of the guarded functions in *of*, without that part of the name."""
    prefix = f"{__name__}.{of.__name__}.<locals>."
    return [one.name.removeprefix(prefix) for one in guards() if one.name.startswith(prefix)]


@pytest.mark.parametrize("descriptor", [property, functools.cached_property])
def test_a_guarded_property_is_explained_by_its_name(descriptor: Any) -> None:
    """Rule M3: as a method is, in the class and in its subclasses."""

    class Client:
        @descriptor
        @retry(max_retries=7)
        def balance(self) -> int:
            return 1

    class Special(Client): ...

    for cls in (Client, Special):
        assert f"{cls.__qualname__}.balance\n" in (explained := explain(cls, "balance"))
        assert "maxRetries = 7 " in explained


def test_a_property_is_listed_once_for_each_class_used_or_not() -> None:
    """It belongs to its class, as any other method."""

    class Base:
        @property
        @retry
        def price(self) -> int:
            return 1

        @functools.cached_property
        @retry
        def name(self) -> str:
            return "name"

    class Heir(Base):
        pass

    names = ["Base.price", "Heir.price", "Base.name", "Heir.name"]
    test = test_a_property_is_listed_once_for_each_class_used_or_not
    assert listed(test) == names
    assert (Base().price, Base().name, Heir().price, Heir().name) == (1, "name", 1, "name")
    assert listed(test) == names


def test_a_method_that_was_guarded_late_is_listed_once_for_each_class_that_uses_it() -> None:
    """Before its first use its name is that of its definition."""

    class Client:
        def send(self) -> None: ...

    Client.send = retry(Client.send)  # type: ignore[method-assign]
    test = test_a_method_that_was_guarded_late_is_listed_once_for_each_class_that_uses_it
    assert listed(test) == ["Client.send"]
    Client().send()
    assert listed(test) == ["Client.send"]


def test_class_level_decorators_are_not_for_properties() -> None:
    """L2: this holds even for properties with a decorator of their own."""

    @timeout
    class Client:
        @property
        @retry
        def price(self) -> int:
            return 1

    getter: Any = vars(Client)["price"].fget
    assert headings(explain(getter))[1:] == ["Retry"]


def test_the_fallback_method_of_a_property_is_looked_up_when_the_class_is_created() -> None:
    """R6: it is looked up as that of a method."""
    with refused("names 'missing'", "Client.price"):

        class Client:
            @property
            @fallback(fallback_method="missing")
            def price(self) -> int:
                return 1


def test_a_guarded_property_runs_plainly_where_it_is_reached_through_super() -> None:
    """L3: it does so as a method does."""
    calls = []

    class Base:
        @property
        @retry(max_retries=3, jitter=0)
        def price(self) -> int:
            calls.append(1)
            raise OSError

    class Heir(Base):
        @property
        def price(self) -> int:
            return super().price

    with pytest.raises(OSError):
        _ = Heir().price

    assert len(calls) == 1


@pytest.mark.usefixtures("clock")
def test_a_listed_guard_has_the_facts_of_explain_for_programs() -> None:
    """It has the current state, and the policies that refuse calls or let them wait."""

    class Client:
        @circuit_breaker(request_volume_threshold=2, delay=60_000)
        @bulkhead(1)
        def charge(self) -> None:
            raise ConnectionError

    [guard] = [one for one in guards() if one.method is Client.charge]
    before = guard.impaired, guard.conditions

    for _ in range(2):
        with pytest.raises(ConnectionError):
            Client().charge()

    told = explain(Client.charge).as_dict()
    assert before == ((), {})
    assert guard.impaired == ("CircuitBreaker",)
    assert guard.as_dict() | {"wrong": []} == told
    assert [policy["now"].split(",")[0] for policy in told["policies"]] == ["open for 0 s", "0 of 1 running"]
