"""Unusual classes and names of an application are declared as any others."""

from __future__ import annotations

import gc
import weakref
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pytest

import faulttolerance
from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    circuit_breaker,
    circuit_breakers,
    explain,
    exponential_backoff,
    fallback,
    guards,
    retry,
)
from faulttolerance._metrics.counters import ledger
from faulttolerance.policies import Retry
from kit.interpreter import drops_classes


@drops_classes
def test_a_class_is_freed_although_its_policy_names_an_exception_that_refers_to_it() -> None:
    """L4: equal policies are shared, but none is kept that names an object of the application."""

    def made() -> weakref.ref[type]:
        class Refused(Exception):
            client: Any = None

        class Client:
            @retry(retry_on=Refused, max_retries=1, jitter=0)
            def ask(self) -> int:
                return 1

        Refused.client = Client
        Client().ask()
        return weakref.ref(Client)

    left = made()
    gc.collect()

    assert left() is None


class Frozen(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise AttributeError(name)

    def __delattr__(cls, name: str) -> None:
        raise AttributeError(name)


def test_methods_of_a_class_whose_metaclass_refuses_changes_are_guarded() -> None:
    """A guard is in its class from the beginning, and changes nothing there."""

    class Client(metaclass=Frozen):
        @retry(max_retries=1, jitter=0)
        def ask(self) -> int:
            return 1

        @staticmethod
        @retry(max_retries=1, jitter=0)
        def tell() -> int:
            return 2

    assert (Client().ask(), Client.tell()) == (1, 2)
    assert "Client.tell" in explain(Client.tell)


class Argument:
    """An object to which weak references are possible."""


def test_a_decorator_in_a_function_keeps_none_of_its_variables() -> None:
    """A service may declare guards in a function that runs until its end."""
    argument = Argument()
    kept = weakref.ref(argument)

    retry(max_retries=1)(sorted)
    del argument

    assert kept() is None


def test_a_guard_that_a_function_creates_keeps_none_of_its_variables() -> None:
    """A service may create guards in a function that runs until its end."""
    argument = Argument()
    kept = weakref.ref(argument)

    Guard(retry=Retry(max_retries=1))
    del argument

    assert kept() is None


def test_exception_whose_class_cannot_be_hashed_may_be_named() -> None:
    """The exceptions of an application may have any metaclass."""

    class Unhashable(type):
        def __eq__(cls, other: object) -> bool:
            return cls is other

    class Refused(Exception, metaclass=Unhashable):
        pass

    @retry(retry_on=Refused, max_retries=1, jitter=0)
    def ask() -> int:
        return 1

    assert ask() == 1


def test_handler_whose_type_is_defined_late_is_compared_when_it_is_known() -> None:
    """R6: an unknown return type is not taken for one that fits."""

    class Handler:
        def handle(self, context: object) -> Late:
            return Late()

    @fallback(Handler)
    def ask() -> int:
        raise OSError

    globals()["Late"] = Late = type("Late", (), {})
    try:
        with pytest.raises(FaultToleranceDefinitionException, match="returns Late"):
            ask()
    finally:
        del globals()["Late"]


def test_methods_of_metaclasses_are_listed_with_the_others() -> None:
    """A metaclass has no ``__subclasses__`` that can be asked without an argument."""

    class Meta(type):
        @retry(max_retries=1)
        def registered(cls) -> str:
            return cls.__name__

    assert any(one.name.endswith("Meta.registered") for one in guards())


def test_a_method_that_was_put_into_its_class_late_has_one_breaker() -> None:
    """A look at the breakers creates none for a class that is not known yet."""

    class Client:
        def ask(self) -> None:
            raise OSError

    Client.ask = circuit_breaker(request_volume_threshold=1, failure_ratio=1.0)(Client.ask)  # type: ignore[method-assign]
    with pytest.raises(OSError):
        Client().ask()
    (name,) = [one for one in circuit_breakers.names() if one.endswith("Client.ask") and "one_breaker" in one]

    assert circuit_breakers.state(name) == "open"


def test_showing_the_code_of_a_call_counts_nothing() -> None:
    """``explain`` is for people, and leaves no series behind."""

    @retry(max_retries=1)
    def never_called() -> None: ...

    explain(never_called, source=True)

    assert not any("never_called" in name for name in ledger.read().counts)


def test_names_that_are_loaded_later_are_listed_once() -> None:
    """Completion shows the result of ``dir``."""
    for name in faulttolerance.__all__:
        getattr(faulttolerance, name)

    names = faulttolerance.__dir__()

    assert len(names) == len(set(names))
    assert set(faulttolerance.__all__) <= set(names)


def test_a_guarded_protocol_is_still_met_by_a_class_with_its_methods() -> None:
    """An attribute of the decorator on a protocol is no member that implementations lack."""

    @retry(max_retries=1)
    @runtime_checkable
    class Payments(Protocol):
        def charge(self) -> int: ...

    class Bank:
        def charge(self) -> int:
            return 5

    assert isinstance(Bank(), Payments)
    assert not isinstance(object(), Payments)


class Lazy:
    """An object that is created when it is first used, as Django's SimpleLazyObject: it is too early for that."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"{name} of a lazy object")


class _Fields(type):
    def __getattr__(cls, name: str) -> Any:
        return {}[name]  # mostly an oversight, which Python itself never meets


class Record(metaclass=_Fields): ...


def test_lazy_objects_in_a_class_are_left_alone() -> None:
    """Whether an attribute is a method is seen from its type: isinstance() evaluates such an object."""

    class Base:
        model = Lazy()
        record = Record()

        @exponential_backoff
        @retry
        def send(self) -> str:
            return "sent"

    @exponential_backoff
    class Client(Base):
        model = Lazy()

        @retry
        def receive(self) -> str:
            return "received"

    port = Guard(retry).port(Client(), ["send", "receive"])

    assert (port.send(), port.receive()) == ("sent", "received")
    assert "ExponentialBackoff (declared on " in explain(Client, "receive")


class Failing:
    """A class of another library, whose methods fail at first."""

    calls = 0

    @staticmethod
    def load(path: str = "") -> str:
        Failing.calls += 1
        if Failing.calls == 1:
            raise OSError
        return path

    class Inner:
        @staticmethod
        def load(path: str = "") -> str:
            return Failing.load(path)


def _local_load() -> Any:
    class Local:
        @staticmethod
        def load(path: str = "") -> str:
            return Failing.load(path)

    return Local.load


@pytest.mark.parametrize("load", [Failing.load, Failing.Inner.load, _local_load()])
@pytest.mark.parametrize(("args", "kwargs"), [((), {}), (("a",), {}), ((), {"path": "a"})])
def test_a_static_method_guarded_outside_its_class_is_a_function(load: Any, args: Any, kwargs: Any) -> None:
    """Its first argument, which it may not have, is no object of the class."""
    Failing.calls = 0
    guarded = retry(max_retries=1, jitter=0)(load)

    guarded(*args, **kwargs)

    assert [one.name for one in guards() if one.method is guarded] == [f"{__name__}.{load.__qualname__}"]


class Price(NamedTuple):
    """A class whose metaclass creates another one in its place, which no hook in the class body hears of."""

    amount: int = 0

    @staticmethod
    @retry(max_retries=1, jitter=0)
    def newest() -> str:
        return Failing.load("newest")

    @classmethod
    @retry(max_retries=1, jitter=0)
    def of(cls) -> str:
        return Failing.load(cls.__name__)

    @retry(max_retries=1, jitter=0)
    def shown(self) -> str:
        return Failing.load(f"{self.amount}")


def test_methods_of_every_kind_of_a_named_tuple_are_guarded_under_its_name() -> None:
    """Static methods are, too, and class methods do not belong to ``type``."""
    for call, result in ((Price.newest, "newest"), (Price.of, "Price"), (Price(3).shown, "3")):
        Failing.calls = 0
        assert call() == result

    names = {one.name for one in guards() if one.name.startswith(f"{__name__}.Price.")}
    assert names == {f"{__name__}.Price.{name}" for name in ("newest", "of", "shown")}
