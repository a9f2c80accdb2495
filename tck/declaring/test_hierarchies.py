"""Rules L1 to L4, L7 and L8: the guards in a hierarchy of classes, and how long they live."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    configure,
    explain,
    fallback,
    guards,
    retry,
    timeout,
    unguarded,
)
from faulttolerance._metrics.counters import ledger
from kit import Invoke, Service, stacked
from kit.definition import refused
from kit.interpreter import drops_classes

T = TypeVar("T")
Wrong: TypeAlias = FaultToleranceDefinitionException


def executions_of(invoke: Invoke, service: Any, name: str = "service", *args: Any) -> int:
    """Return how often a method that fails is executed by one call of it."""
    before = service.executions
    assert invoke.outcome(getattr(service, name), *args) is OSError
    return int(service.executions - before)


twice = retry(max_retries=1, jitter=0)
thrice = retry(max_retries=2, jitter=0)


def through(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of *function*, as an application may write it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


# L1: one state per concrete class and method


def test_a_call_with_any_other_object_in_place_of_self_is_one_of_the_class_of_the_method() -> None:
    """L1: libraries for GraphQL call a method of a schema with its parent object, which is ``None`` at the root."""

    class Query:
        @retry(max_retries=2, delay=0, jitter=0)
        @circuit_breaker(request_volume_threshold=3)
        def item(self, calls: list[int]) -> None:
            calls.append(1)
            raise OSError

    def executions(parent: Any) -> int:
        calls: list[int] = []
        with pytest.raises((OSError, CircuitBreakerOpenException)):
            Query.item(parent, calls)
        return len(calls)

    assert executions(None) == 3
    assert [executions(parent) for parent in ({}, Query())] == [0, 0]
    (name,) = [guard.name for guard in guards() if guard.name.endswith("Query.item") and guard.conditions]
    circuit_breakers.reset(name)
    configure(properties={f"{name.removesuffix('.item')}/item/Retry/maxRetries": 1})
    assert executions(None) == 2


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
@pytest.mark.parametrize("outside", [through, lambda function: timeout(60_000)(through(function))])
def test_a_guard_below_a_wrapper_has_one_state_for_a_static_method_or_method_of_the_class(
    kind: Callable[[Any], Any], outside: Callable[[Any], Any]
) -> None:
    """L1: the first argument of a call is no object of its class."""

    class Client:
        @kind
        @outside
        @circuit_breaker(request_volume_threshold=2)
        def ask(*args: Any) -> None:
            raise OSError

    for argument in (1, "one"):
        with pytest.raises(OSError):
            Client.ask(argument)
    with pytest.raises(CircuitBreakerOpenException, match=r"Client\.ask: circuit breaker is open"):
        Client.ask(1.0)


def test_inherited_static_method_has_the_state_of_the_class_that_declares_it() -> None:
    """L1: a static method knows no concrete class; a class method has one state per class that it is called on."""

    class Base:
        @staticmethod
        @circuit_breaker(request_volume_threshold=1)
        def static() -> None:
            raise OSError

        @classmethod
        @circuit_breaker(request_volume_threshold=1)
        def of_class(cls) -> None:
            raise OSError

    class One(Base):
        pass

    class Other(Base):
        pass

    def outcomes(name: str) -> list[type[BaseException]]:
        found = []
        for cls in (One, Other):
            with pytest.raises((OSError, CircuitBreakerOpenException)) as raised:
                getattr(cls, name)()
            found.append(type(raised.value))
        return found

    assert outcomes("static") == [OSError, CircuitBreakerOpenException]
    assert outcomes("of_class") == [OSError, OSError]


def test_function_is_its_own_key(invoke: Invoke) -> None:
    """L1: two functions of one name and module have two circuits."""

    def make() -> Any:
        @circuit_breaker(request_volume_threshold=1)
        @invoke.body
        async def function() -> None:
            raise OSError

        return function

    one, other = make(), make()
    outcomes = [invoke.outcome(function) for function in (one, other, one)]

    assert outcomes == [OSError, OSError, CircuitBreakerOpenException]


def test_method_that_is_reached_by_two_names_has_one_state(invoke: Invoke) -> None:
    """L1: an alias in the class is the same method."""

    class Client(Service):
        @circuit_breaker(request_volume_threshold=1)
        @invoke.body
        async def service(self) -> None:
            raise OSError

        alias = service

    client = Client()
    outcomes = [invoke.outcome(method) for method in (client.service, client.alias)]

    assert outcomes == [OSError, CircuitBreakerOpenException]


# L2: class-level decorators


def test_class_level_decorator_covers_public_methods_only(invoke: Invoke) -> None:
    """L2: names of a class with an underscore, properties and nested classes stay as they are."""

    @twice
    class Client(Service):
        @invoke.body
        async def public(self) -> None:
            self.executions += 1
            raise OSError

        @invoke.body
        async def _private(self) -> None:
            self.executions += 1
            raise OSError

        def __call__(self) -> None:
            self.executions += 1
            raise OSError

        @property
        def value(self) -> int:
            self.executions += 1
            raise OSError

        class Nested(Service):
            def method(self) -> None:
                self.executions += 1
                raise OSError

    client, nested = Client(), Client.Nested()
    with pytest.raises(OSError):
        client()
    with pytest.raises(OSError):
        _ = client.value
    with pytest.raises(OSError):
        nested.method()
    plain = client.executions

    assert plain == 2
    assert nested.executions == 1
    assert executions_of(invoke, client, "public") == 2
    assert executions_of(invoke, client, "_private") == 1


def test_class_level_decorator_covers_static_and_class_methods() -> None:
    """L2, P1: they stay static and class methods."""
    executions = []

    @twice
    class Client:
        @staticmethod
        def static() -> None:
            executions.append("static")
            raise OSError

        @classmethod
        def of_class(cls) -> None:
            executions.append(cls.__name__)
            raise OSError

    class Special(Client):
        pass

    for call in (Client.static, Client().static, Client.of_class, Special.of_class):
        with pytest.raises(OSError):
            call()

    assert executions == ["static"] * 4 + ["Client"] * 2 + ["Special"] * 2


def test_subclass_inherits_class_level_decorators_for_its_overrides(invoke: Invoke) -> None:
    """L2: also for methods that it adds, two levels down, and from a mixin."""

    @twice
    class Base(Service):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    class Middle(Base):
        pass

    class Leaf(Middle):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

        @invoke.body
        async def more(self) -> None:
            self.executions += 1
            raise OSError

    assert executions_of(invoke, Leaf()) == 2
    assert executions_of(invoke, Leaf(), "more") == 2


def test_mixin_s_class_level_decorator_covers_methods_of_the_other_base(invoke: Invoke) -> None:
    """L2: a class-level decorator holds for every public method of a subclass, from any base."""

    class Plain(Service):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    @twice
    class Mixin:
        pass

    class Before(Mixin, Plain):
        pass

    class Behind(Plain, Mixin):
        pass

    assert executions_of(invoke, Before()) == 2
    assert executions_of(invoke, Behind()) == 2
    assert executions_of(invoke, Plain()) == 1


def test_nearest_decorator_of_a_kind_wins(invoke: Invoke) -> None:
    """L2: the method's before the class's, the subclass's before the base's."""

    @retry(max_retries=4, jitter=0)
    class Base(Service):
        @twice
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

        @invoke.body
        async def other(self) -> None:
            self.executions += 1
            raise OSError

    @thrice
    class Leaf(Base):
        pass

    assert executions_of(invoke, Base()) == 2
    assert executions_of(invoke, Leaf()) == 2
    assert executions_of(invoke, Base(), "other") == 5
    assert executions_of(invoke, Leaf(), "other") == 3


def test_method_level_decorator_does_not_follow_an_override(invoke: Invoke) -> None:
    """L2: an override that does not repeat it has none; nor has it when it calls its base (L3)."""

    class Base(Service):
        @twice
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    class Leaf(Base):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    assert executions_of(invoke, Leaf()) == 1
    assert executions_of(invoke, Base()) == 2


# L3: behind the first of a name


@pytest.mark.parametrize("way", ["super()", "Base.service(self)"])
def test_guarded_method_that_an_override_calls_runs_plainly(way: str) -> None:
    """L3: whether the override is guarded or not, its base's policies do not apply again."""

    class Base(Service):
        @thrice
        def service(self) -> None:
            self.executions += 1
            raise OSError

    class Plain(Base):
        def service(self) -> None:
            super().service() if way == "super()" else Base.service(self)

    class Guarded(Base):
        @twice
        def service(self) -> None:
            super().service() if way == "super()" else Base.service(self)

    executions = {}
    for cls in (Base, Plain, Guarded):
        service = cls()
        with pytest.raises(OSError):
            service.service()
        executions[cls.__name__] = service.executions

    assert executions == {"Base": 3, "Plain": 1, "Guarded": 2}


def test_coroutine_method_that_an_override_awaits_runs_plainly(invoke: Invoke) -> None:
    """L3: in every environment."""
    if not invoke.is_on_loop:
        pytest.skip("the other conventions are in the test before")

    class Base(Service):
        @thrice
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    class Leaf(Base):
        @twice
        @invoke.body
        async def service(self) -> None:
            await super().service()

    assert executions_of(invoke, Leaf()) == 2


def test_super_through_a_diamond_applies_policies_once(invoke: Invoke) -> None:
    """L3: in cooperative inheritance, only the first guarded method in the order of resolution is guarded."""
    if invoke.convention != "blocking":
        pytest.skip("decided once per class, whatever the convention")

    class Root(Service):
        @twice
        def service(self) -> list[str]:
            self.executions += 1
            return ["Root"]

    class Left(Root):
        @twice
        def service(self) -> list[str]:
            return ["Left", *super().service()]

    class Right(Root):
        @twice
        def service(self) -> list[str]:
            self.executions += 1
            if self.executions < 2:
                raise OSError
            return ["Right", *super().service()]

    class Both(Left, Right):
        pass

    assert Both().service() == ["Left", "Right", "Root"]


def test_other_guarded_method_is_guarded_when_it_is_called_through_self(invoke: Invoke) -> None:
    """L3: only a method that is reached behind the first of its name runs plainly."""

    class Base(Service):
        @thrice
        def inner(self) -> None:
            self.executions += 1
            raise OSError

        @twice
        def outer(self) -> None:
            self.inner()

    class Leaf(Base):
        def outer(self) -> None:
            super().outer()

    base, leaf = Base(), Leaf()
    for service in (base, leaf):
        with pytest.raises(OSError):
            service.outer()

    assert base.executions == 6
    assert leaf.executions == 3


def test_super_of_static_and_class_methods_runs_plainly() -> None:
    """L3: class methods follow the rule of methods."""
    executions = []

    class Base:
        @classmethod
        @thrice
        def of_class(cls) -> None:
            executions.append(cls.__name__)
            raise OSError

    class Leaf(Base):
        @classmethod
        @twice
        def of_class(cls) -> None:
            super().of_class()

    with pytest.raises(OSError):
        Leaf.of_class()

    assert executions == ["Leaf"] * 2


def test_class_level_decorator_runs_an_override_and_its_base_under_one_set_of_policies() -> None:
    """L3: a class-level decorator guards a method once, not at every level."""

    @twice
    class Base(Service):
        def service(self) -> None:
            self.executions += 1
            raise OSError

    class Leaf(Base):
        def service(self) -> None:
            super().service()

    leaf = Leaf()
    with pytest.raises(OSError):
        leaf.service()

    assert leaf.executions == 2


# Classes of every make


def test_abstract_method_s_decorator_stays_with_it(invoke: Invoke) -> None:
    """L2: the implementation is an override; class-level policies follow it, method-level ones do not."""

    @twice
    class Port(abc.ABC):
        executions = 0

        @abc.abstractmethod
        def service(self) -> None: ...

    class Adapter(Port):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    with pytest.raises(TypeError, match="abstract"):
        Port()  # type: ignore[abstract]

    assert Port.__abstractmethods__ == {"service"}
    assert executions_of(invoke, Adapter()) == 2


def test_guarded_abstract_method_stays_abstract() -> None:
    """P3: under any order of the decorators."""

    class Port(abc.ABC):
        @abc.abstractmethod
        @twice
        def above(self) -> None: ...

        @twice
        @abc.abstractmethod
        def below(self) -> None: ...

    assert Port.__abstractmethods__ == {"above", "below"}


@pytest.mark.parametrize("slots", [False, True])
def test_dataclass_is_guarded(invoke: Invoke, slots: bool) -> None:
    """L2: above or below ``@dataclass``, with slots too, where the class is made a second time."""

    @twice
    @dataclasses.dataclass(slots=slots)
    class Above:
        executions: int = 0

        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    @dataclasses.dataclass(slots=slots)
    @twice
    class Below:
        executions: int = 0

        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    @dataclasses.dataclass(slots=slots)
    class OnMethod:
        executions: int = 0

        @twice
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    class Leaf(Below):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    assert [executions_of(invoke, cls()) for cls in (Above, Below, OnMethod, Leaf)] == [2, 2, 2, 2]


def test_method_of_a_slotted_dataclass_may_call_super() -> None:
    """L3: the class that ``dataclass(slots=True)`` replaced does not count as another level."""

    class Base:
        executions = 0

        @thrice
        def service(self) -> None:
            type(self).executions += 1
            raise OSError

    @dataclasses.dataclass(slots=True)
    class Leaf(Base):
        value: int = 0

        @twice
        def service(self) -> None:
            Base.service(self)

    with pytest.raises(OSError):
        Leaf().service()

    assert Leaf.executions == 2


def test_enumeration_is_guarded() -> None:
    """L2, P1: members stay members."""
    executions = []

    @twice
    class Level(enum.Enum):
        LOW = 1

        def service(self) -> None:
            executions.append(self.name)
            raise OSError

    class Method(enum.Enum):
        HIGH = 1

        @twice
        def service(self) -> None:
            executions.append(self.name)
            raise OSError

    for member in (Level.LOW, Method.HIGH):
        with pytest.raises(OSError):
            member.service()

    assert executions == ["LOW", "LOW", "HIGH", "HIGH"]
    assert list(Method) == [Method.HIGH]
    assert list(Level) == [Level.LOW]


def test_protocol_and_its_implementation_are_guarded(invoke: Invoke) -> None:
    """L2: a protocol that is inherited from explicitly hands its class-level policies on, and stays a protocol."""

    @twice
    class Port(Protocol):
        def service(self) -> Any: ...

    class Adapter(Port):
        executions = 0

        @invoke.body
        async def service(self) -> Any:
            self.executions += 1
            raise OSError

    assert getattr(Port, "_is_protocol", False)
    with pytest.raises(TypeError):
        Port()  # type: ignore[misc]
    assert executions_of(invoke, Adapter()) == 2


def test_generic_class_is_guarded(invoke: Invoke) -> None:
    """L1, L2: a parametrised alias makes instances of the one class."""

    @twice
    class Box(Service, Generic[T]):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    class Special(Box[int]):
        pass

    assert executions_of(invoke, Box[int]()) == 2
    assert executions_of(invoke, Special()) == 2


def test_own_init_subclass_with_keywords_goes_on(invoke: Invoke) -> None:
    """L2: the class-level decorator adds to it, wherever in the hierarchy it is."""
    seen = []

    class Root(Service):
        def __init_subclass__(cls, /, root: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            seen.append(("root", cls.__name__, root))

    @twice
    class Base(Root, root="base"):
        def __init_subclass__(cls, /, tag: str, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            seen.append(("base", cls.__name__, tag))

    @thrice
    class WithoutOwn(Base, tag="x", root="y"):
        pass

    class Leaf(WithoutOwn, tag="leaf", root="r"):
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    assert seen == [
        ("root", "Base", "base"),
        ("root", "WithoutOwn", "y"),
        ("base", "WithoutOwn", "x"),
        ("root", "Leaf", "r"),
        ("base", "Leaf", "leaf"),
    ]
    assert executions_of(invoke, Leaf()) == 3


def test_metaclass_with_keywords_goes_on() -> None:
    """L2: the keywords of a class reach its metaclass unchanged."""

    class Meta(type):
        def __new__(mcs, name: str, bases: Any, namespace: Any, *, label: str = "") -> Any:
            cls = super().__new__(mcs, name, bases, namespace)
            cls.label = label  # type: ignore[attr-defined]
            return cls

        def __init__(cls, name: str, bases: Any, namespace: Any, **_: Any) -> None:
            super().__init__(name, bases, namespace)

    @twice
    class Base(metaclass=Meta, label="base"):
        pass

    class Leaf(Base, label="leaf"):
        def service(self) -> int:
            return 1

    assert (Base.label, Leaf.label) == ("base", "leaf")  # type: ignore[attr-defined]
    assert Leaf().service() == 1


# L4: the lifetimes of classes, guards and objects


@drops_classes
@pytest.mark.parametrize("level", ["method", "class"])
def test_dropped_class_is_gone_and_leaves_its_counts(invoke: Invoke, level: str) -> None:
    """L4: neither the class nor its guards are kept, and its counts stay under its name."""
    decorators = [retry(max_retries=1, jitter=0), bulkhead(3)]

    def make() -> tuple[weakref.ref[Any], str]:
        class Dropped(Service):
            @invoke.body
            async def service(self) -> None:
                raise OSError

            if level == "method":
                service = stacked(*decorators)(service)

        cls: Any = Dropped
        if level == "class":
            for decorator in decorators:
                cls = decorator(cls)
        invoke.outcome(cls().service)
        return weakref.ref(cls), f"{cls.__module__}.{cls.__qualname__}.service"

    made, name = make()
    gc.collect()

    assert made() is None
    assert [guard for guard in guards() if guard.name == name] == []
    assert sum(ledger.read().counts[name].values()) > 0


def test_redefined_class_adds_to_the_counts_of_its_name(invoke: Invoke) -> None:
    """L4: a module that is loaded again redefines its classes."""

    def use() -> str:
        class Again:
            @retry(max_retries=0)
            @invoke.body
            async def service(self) -> None: ...

        invoke(Again().service)
        return f"{Again.__module__}.{Again.__qualname__}.service"

    for _ in range(3):
        name = use()
        gc.collect()
    total = {
        series: count
        for series, count in ledger.read().counts[name].items()
        if series[0] == "ft.invocations.total" and count
    }

    assert list(total.values()) == [3]


def slots_of_attrs(cls: type) -> Any:
    """Return a copy of *cls* with slots, by a package that many applications have."""
    return pytest.importorskip("attrs").define(cls)


opens_at_once = circuit_breaker(request_volume_threshold=1)


def replaced_below_its_methods(with_slots: Callable[[type], Any]) -> Any:
    @with_slots
    class Client:
        @opens_at_once
        def fetch(self) -> None:
            raise OSError

    return Client


def replaced_below_its_decorator(with_slots: Callable[[type], Any]) -> Any:
    @opens_at_once
    @with_slots
    class Client:
        @timeout("1 h")
        def fetch(self) -> None:
            raise OSError

    return Client


def replaced_above_its_decorator(with_slots: Callable[[type], Any]) -> Any:
    @with_slots
    @opens_at_once
    class Client:
        def fetch(self) -> None:
            raise OSError

    return Client


def replaced_below_a_decorated_base(with_slots: Callable[[type], Any]) -> Any:
    @opens_at_once
    class Base:
        pass

    @with_slots
    class Client(Base):
        def fetch(self) -> None:
            raise OSError

    return Client


@drops_classes
@pytest.mark.parametrize("with_slots", [dataclasses.dataclass(slots=True), slots_of_attrs], ids=["dataclass", "attrs"])
@pytest.mark.parametrize(
    "made",
    [
        replaced_below_its_methods,
        replaced_below_its_decorator,
        replaced_above_its_decorator,
        replaced_below_a_decorated_base,
    ],
)
def test_a_class_that_a_copy_with_slots_replaces_leaves_nothing(made: Any, with_slots: Any) -> None:
    """L4: a circuit that is asked and steered by its name is that of the objects, though none has called it yet."""
    client = made(with_slots)
    name = f"{client.__module__}.{client.__qualname__}.fetch"

    circuit_breakers.force_open(name)
    with pytest.raises(CircuitBreakerOpenException):
        client().fetch()
    circuit_breakers.reset(name)
    with pytest.raises(OSError):
        client().fetch()
    gc.collect()

    assert circuit_breakers.state(name) == "open"
    assert [guard.name for guard in guards(name)] == [name]


def test_a_class_that_was_called_keeps_its_guards_when_it_is_copied() -> None:
    """L1: a copy that stands beside its original has states of its own."""
    client = replaced_below_its_methods(lambda cls: cls)
    with pytest.raises(OSError):
        client().fetch()

    body = {name: value for name, value in vars(client).items() if name not in ("__dict__", "__weakref__")}
    copy = type(client.__name__, client.__bases__, body)

    with pytest.raises(OSError):
        copy().fetch()
    with pytest.raises(CircuitBreakerOpenException):
        client().fetch()


def test_superseded_guard_is_gone_at_once() -> None:
    """L4, L8: decorators above one another leave one guard, without waiting for the garbage collector."""
    gc.disable()
    try:

        @retry
        @timeout
        @bulkhead
        def function() -> None: ...

        mine = [guard for guard in guards() if guard.name.endswith("gone_at_once.<locals>.function")]
    finally:
        gc.enable()

    assert [guard.method for guard in mine] == [function]


def test_instance_is_freed_after_its_calls(invoke: Invoke) -> None:
    """L4: no guard keeps the object, nor the arguments, nor the failure of a call."""

    class Client(Service):
        @retry(max_retries=1, jitter=0)
        @circuit_breaker()
        @timeout(60_000)
        @bulkhead(1)
        @invoke.body
        async def service(self, argument: object) -> None:
            raise OSError

    client, argument = Client(), Service()
    kept = weakref.ref(client), weakref.ref(argument)
    invoke.outcome(client.service, argument)
    del client, argument
    gc.collect()

    assert [one() for one in kept] == [None, None]


def test_classes_that_come_and_go_on_many_threads_are_told_apart() -> None:
    """L1, L4, L6: a new class at the address of a dead one is not taken for it."""
    wrong: list[str] = []

    def work() -> None:
        for number in range(40):

            class Passing:
                @fallback(lambda context: -1)
                def service(self, own: int = number) -> int:
                    return own

            if Passing().service() != number:
                wrong.append("the path of another class")
            del Passing
            gc.collect(0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


# L7: whose methods


def test_methods_of_other_packages_are_left_alone() -> None:
    """L7: a class-level decorator does not guard methods of a foreign base class; ``explain`` shows it."""

    @twice
    class Worker(threading.Thread):
        def serve(self) -> None: ...

    class Special(Worker):
        def run(self) -> None: ...

    assert Worker.start is threading.Thread.start
    assert Worker.join is threading.Thread.join
    assert "Retry" in explain(Worker, "serve")
    assert "Retry" in explain(Special, "run")
    with pytest.raises(ValueError, match="not guarded"):
        explain(Worker, "start")


def test_guarded_method_of_another_package_keeps_its_own_policies_only(invoke: Invoke) -> None:
    """L7: also a method that is guarded itself; a base in the package of the decorated class is another case."""

    class Foreign(Service):
        __module__ = "elsewhere.services"

        @bulkhead(1)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    class Own(Service):
        @bulkhead(1)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    foreign, own = twice(type("Client", (Foreign,), {})), twice(type("Client", (Own,), {}))

    assert executions_of(invoke, foreign()) == 1
    assert executions_of(invoke, own()) == 2


def test_unguarded_method_is_exempt(invoke: Invoke) -> None:
    """L7: from class-level decorators, also those of subclasses."""

    @twice
    class Base(Service):
        @unguarded
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

        @invoke.body
        async def other(self) -> None:
            self.executions += 1
            raise OSError

    @thrice
    class Leaf(Base):
        pass

    assert executions_of(invoke, Base()) == 1
    assert executions_of(invoke, Leaf()) == 1
    assert executions_of(invoke, Base(), "other") == 2


@pytest.mark.parametrize("position", [0, 1, 2])
def test_unguarded_exempts_a_method_that_is_guarded_itself(invoke: Invoke, position: int) -> None:
    """L7: it keeps its own policies, wherever among them ``@unguarded`` stands."""
    decorators: list[Any] = [bulkhead(1), timeout(60_000)]
    decorators.insert(position, unguarded)

    @twice
    class Client(Service):
        @stacked(*decorators)
        @invoke.body
        async def service(self) -> None:
            self.executions += 1
            raise OSError

    shown = explain(Client, "service")

    assert executions_of(invoke, Client()) == 1
    assert "Bulkhead" in shown
    assert "Retry" not in shown


def test_unguarded_static_and_class_methods_are_exempt() -> None:
    """L7: either side of ``staticmethod`` and ``classmethod``."""
    executions = []

    @twice
    class Client:
        @unguarded
        @staticmethod
        def static() -> None:
            executions.append("static")
            raise OSError

        @classmethod
        @unguarded
        def of_class(cls) -> None:
            executions.append("class")
            raise OSError

    for call in (Client.static, Client.of_class):
        with pytest.raises(OSError):
            call()

    assert executions == ["static", "class"]


def test_generators_are_skipped_by_class_level_decorators() -> None:
    """L7, P4: a generator method stays as it is."""

    @twice
    class Client:
        def stream(self) -> Iterator[int]:
            yield 1

        async def astream(self) -> Any:
            yield 1

        @staticmethod
        def static_stream() -> Iterator[int]:
            yield 1

    assert list(Client().stream()) == [1]
    assert list(Client.static_stream()) == [1]
    with pytest.raises(ValueError, match="not guarded"):
        explain(Client, "stream")


# L8: guards are made, never changed


def test_decorating_a_guard_gives_a_new_one_with_its_own_state(invoke: Invoke) -> None:
    """L8: the old one keeps its policies and its circuit."""

    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
    @invoke.body
    async def base() -> None:
        executions.append(None)
        raise OSError

    executions: list[None] = []
    more: Any = twice(base)
    outcomes = [invoke.outcome(more) for _ in range(2)]
    of_more = len(executions)
    executions.clear()
    invoke.outcome(base)

    assert outcomes == [OSError, CircuitBreakerOpenException]
    assert of_more == 2
    assert len(executions) == 1


def test_wrapper_that_copied_the_attributes_of_a_guard_is_no_guard() -> None:
    """L8: ``functools.wraps`` and ``lru_cache`` copy ``__dict__``; their result can be guarded in its own right."""

    @twice
    def guarded() -> None:
        executions.append(None)
        raise OSError

    @twice
    @functools.wraps(guarded)
    def wrapper() -> None:
        guarded()

    executions: list[None] = []
    with pytest.raises(OSError):
        wrapper()
    with pytest.raises(ValueError, match="not guarded"):
        explain(functools.lru_cache(guarded))

    assert len(executions) == 4


def test_same_policy_twice_is_refused() -> None:
    """L8: on one function, also through a static method, and on one class."""
    for target in (lambda: None, staticmethod(lambda: None)):
        with refused("@Retry", "twice"):
            retry(retry(target))
    with refused("@Retry", "twice"):

        @retry
        @retry
        class _Client:
            pass


def test_guard_is_a_plain_function() -> None:
    """L8: it binds as functions do, compares as they do, and its bound methods are equal."""

    class Client:
        @bulkhead(1)
        def service(self) -> None: ...

    client = Client()

    assert type(Client.service) is type(executions_of)
    assert client.service == client.service
    assert hash(client.service) == hash(client.service)


def test_method_that_is_put_on_a_class_later_is_guarded(invoke: Invoke) -> None:
    """L1: a guard that was made outside of the class body takes the class of the object that it is called on."""

    class Client(Service):
        pass

    @invoke.body
    async def service(self: Any) -> None:
        self.executions += 1
        raise OSError

    service.__qualname__ = f"{Client.__qualname__}.service"
    Client.service = twice(service)  # type: ignore[attr-defined]

    assert executions_of(invoke, Client()) == 2


def test_guard_refuses_beyond_the_limit_of_its_own_class_only() -> None:
    """L1: an object of a subclass made by ``type()`` has the permits of that class."""

    class Base:
        @bulkhead(1)
        def service(self, inner: Callable[[], Any] | None = None) -> str:
            return inner() if inner else "served"

    leaf = type("Leaf", (Base,), {})
    base = Base()

    assert base.service(leaf().service) == "served"
    with pytest.raises(BulkheadException):
        base.service(Base().service)


def wrapped_by_wrapt(function: Callable[..., Any]) -> Any:
    """Return a wrapper of *function*, as instrumentation writes it."""
    return pytest.importorskip("wrapt").FunctionWrapper(
        function, lambda wrapped, _, args, kwargs: wrapped(*args, **kwargs)
    )


@pytest.mark.parametrize("wrapper", [through, wrapped_by_wrapt])
@pytest.mark.parametrize("outside", [lambda function: function, timeout(60_000)])
@pytest.mark.parametrize("inside", [bulkhead(3), thrice])
def test_policies_of_a_class_apply_once_to_a_method_with_a_wrapper_between_guards(
    inside: Callable[[Any], Any], outside: Callable[[Any], Any], wrapper: Callable[[Any], Any]
) -> None:
    """L2: and a policy of the same kind on the method, also below the wrapper, comes in their place."""
    executions = []

    @twice
    class Client:
        @outside
        @wrapper
        @inside
        def ask(self) -> None:
            executions.append(type(self))
            raise OSError

    class Sub(Client):
        pass

    for cls in (Client, Sub):
        with pytest.raises(OSError):
            cls().ask()

    assert executions == [cls for cls in (Client, Sub) for _ in range(3 if inside is thrice else 2)]


@pytest.mark.parametrize("exempting", [property, unguarded])
def test_policies_of_a_class_do_not_apply_below_a_wrapper_in_a_property_or_an_unguarded_method(exempting: Any) -> None:
    """L2: as to any of them."""
    executions = []

    @twice
    class Client:
        @exempting
        @through
        @timeout(60_000)
        def ask(self) -> None:
            executions.append(1)
            raise OSError

    with pytest.raises(OSError):
        Client().ask()

    assert executions == [1]


@pytest.mark.parametrize("outside", [lambda function: function, timeout(60_000)])
def test_policies_of_a_class_apply_to_methods_that_take_their_documentation_from_another(
    outside: Callable[[Any], Any],
) -> None:
    """L2, L3: functools.wraps says nothing of calls, and a guard that is a method itself is not below a wrapper."""
    executions = []

    @twice
    class Client:
        @thrice
        def ask(self) -> None:
            executions.append(1)
            raise OSError

        @timeout(60_000)
        def tell(self) -> None:
            executions.append(1)
            raise OSError

        @outside
        @functools.wraps(ask)
        def ask_again(self) -> None:
            executions.append(1)
            raise OSError

        @property
        @outside
        @functools.wraps(tell)
        def told(self) -> None:
            self.tell()

    class Sub(Client):
        @outside
        @functools.wraps(Client.ask)
        def ask(self) -> None:
            super().ask()

        @property
        @functools.wraps(Client.tell)
        def told_again(self) -> None:
            self.tell()

    for call in (Client().tell, Client().ask_again, Sub().ask):
        executions.clear()
        with pytest.raises(OSError):
            call()
        assert len(executions) == 2


def test_policies_of_a_class_method_below_a_wrapper_of_wrapt_apply_beside_those_of_a_subclass() -> None:
    """L2: its guard is found in the wrapper, which passes for a class method."""
    executions = []

    class Client:
        @wrapped_by_wrapt
        @classmethod
        @twice
        def ask(cls) -> None:
            executions.append(cls)
            raise OSError

    @timeout(60_000)
    class Sub(Client):
        pass

    with pytest.raises(OSError):
        Sub.ask()

    assert executions == [Sub, Sub]
