"""L2: a decorator of a class covers every public method, also an attribute that becomes one when it is looked up."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from typing import Any

import pytest

from faulttolerance import around_invoke, circuit_breakers, explain, guards, retry, timeout, unguarded
from kit.definition import refused


class Failing:
    """A counter of attempts, which all fail."""

    calls = 0

    @classmethod
    def fail(cls, *args: object) -> None:
        cls.calls += 1
        raise OSError


def attempts(call: Any, *args: Any) -> int:
    """Return how many attempts *call* makes."""
    Failing.calls = 0
    with pytest.raises(OSError):
        ended(call(*args))
    return Failing.calls


def ended(outcome: Any) -> Any:
    return asyncio.run(outcome) if inspect.iscoroutine(outcome) else outcome


@retry(max_retries=2, jitter=0)
class Service:
    def _send(self, order: int, *, urgent: bool = False) -> None:
        """Send it."""
        Failing.fail()

    async def _send_later(self, order: int) -> None:
        Failing.fail()

    @classmethod
    def _find(cls, name: str) -> None:
        Failing.fail()

    @staticmethod
    def _check(order: int, amount: int) -> None:
        Failing.fail()

    send_one = functools.partialmethod(_send, 1)
    send_later = functools.partialmethod(_send_later, 1)
    find_all = functools.partialmethod(_find, "*")
    check_one = functools.partialmethod(_check, 1)
    exempt = unguarded(functools.partialmethod(_send, 2))
    _private = functools.partialmethod(_send, 3)

    @functools.singledispatchmethod
    def show(self, what: object) -> None:
        raise NotImplementedError

    @show.register
    def _(self, what: int) -> None:
        Failing.fail()

    @functools.singledispatchmethod
    @classmethod
    def load(cls, what: object) -> None:
        Failing.fail()

    @functools.singledispatchmethod
    def show_later(self, what: object) -> Any:
        raise NotImplementedError

    @show_later.register
    async def _(self, what: int) -> None:
        Failing.fail()

    @functools.lru_cache  # noqa: B019  # classes live as long as the tests
    def cached(self, what: int) -> int:
        if what < 0:
            Failing.fail()
        return what

    fallback_handler = Failing().fail


class Heir(Service):
    send_two = functools.partialmethod(Service._send, 2)


@pytest.mark.parametrize("cls", [Service, Heir])
def test_methods_of_every_kind_are_retried(cls: type[Service]) -> None:
    """They are called on an object, and on the class where that is possible."""
    service: Any = cls()
    for call in (service.send_one, service.send_later, service.find_all, cls.find_all):
        assert attempts(call) == 3
    for call in (service.check_one, cls.check_one, service.load, cls.load, service.show, service.show_later):
        assert attempts(call, 7) == 3
    assert attempts(service.cached, -1) == 3
    assert attempts(cls.send_one, service) == 3
    assert attempts(Heir().send_two) == 3


def test_an_attribute_that_is_exempt_or_no_method_is_left_alone() -> None:
    """Also a private attribute, and a callable that is called without the object whose attribute it is."""
    service: Any = Service()
    for call in (service.exempt, service._private, service.fallback_handler):
        assert attempts(call) == 1


def test_methods_look_as_they_did() -> None:
    """They keep name, signature, documentation, and their kind: coroutine functions or not."""
    assert str(inspect.signature(Service().send_one)) == "(*, urgent: 'bool' = False) -> 'None'"
    assert str(inspect.signature(Service.find_all)) == "() -> 'None'"
    assert str(inspect.signature(Service().check_one)) == "(amount: 'int') -> 'None'"
    assert Service.send_one.__qualname__ == "Service.send_one"
    assert Service.send_one.__doc__ == "Send it."
    assert inspect.iscoroutinefunction(Service().send_later)
    assert not inspect.iscoroutinefunction(Service().show)
    assert pickle.loads(pickle.dumps(Service.show)) is Service.show


def test_each_class_has_a_state_and_a_name_of_its_own() -> None:
    """L1: the same holds for any method."""
    names = [one.name for one in guards()]
    for name in ("send_one", "find_all", "check_one", "show", "load", "cached"):
        assert f"{__name__}.Service.{name}" in names
        assert f"{__name__}.Heir.{name}" in names
        assert "maxRetries = 2" in explain(Heir, name)
    assert f"{__name__}.Service.exempt" not in names
    assert circuit_breakers.names() is not None


def test_implementations_may_be_registered_later() -> None:
    """They are registered on the class, before and after a call."""

    @retry(max_retries=1, jitter=0)
    class Later:
        @functools.singledispatchmethod
        def show(self, what: object) -> str:
            Failing.fail()
            return ""

    assert attempts(Later().show, 1) == 2

    register: Any = Later.show.register
    register(int, lambda self, what: f"number {what}")

    @register(str)
    def _(self: Later, what: str) -> None:
        Failing.fail()

    assert Later().show(1) == "number 1"
    assert attempts(Later().show, "a") == 2


def test_a_cache_stays_a_cache() -> None:
    """It is inside the guard, and can still be asked and cleared."""
    service: Any = Service()
    Service.cached.cache_clear()

    assert [service.cached(1), service.cached(1)] == [1, 1]
    assert Service.cached.cache_info().hits == 1


def test_methods_that_an_undecorated_base_defines_are_covered() -> None:
    """The decorated class inherits them."""

    class Base:
        def _send(self, order: int) -> None:
            Failing.fail()

        send_one = functools.partialmethod(_send, 1)

    @retry(max_retries=1, jitter=0)
    class Decorated(Base):
        pass

    assert attempts(Decorated().send_one) == 2
    assert attempts(Base().send_one) == 1


def test_a_method_of_a_built_in_class_with_arguments_is_guarded() -> None:
    """It is bound to objects of its own class only, not to one that would show its parameters."""

    @retry
    class Store(dict[str, int]):
        fetch = functools.partialmethod(dict.get, "one")

    assert (Store(one=1).fetch(), Store().fetch(2)) == (1, 2)


def test_interceptors_reach_them_too() -> None:
    """An interceptor of a class decorates its methods."""
    seen = []

    @around_invoke
    def audit(invocation: Any) -> Any:
        seen.append((invocation.method.__name__, invocation.args))
        return invocation.proceed()

    @audit
    class Audited:
        def _add(self, one: int, other: int) -> int:
            return one + other

        increment = functools.partialmethod(_add, 1)

    assert Audited().increment(2) == 3
    assert seen == [("increment", (2,))]


class Own:
    """A decorator of methods, as applications write them."""

    def __init__(self, function: Any, on_class: bool) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.on_class = on_class

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return functools.partial(self.function, owner) if self.on_class else self
        return functools.partial(self.function, owner if self.on_class else instance)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def test_an_attribute_that_binds_itself_as_functions_do_is_covered() -> None:
    """Its class does not matter."""

    @retry(max_retries=1, jitter=0)
    class Client:
        def _send(self) -> None:
            Failing.fail()

        send = Own(_send, on_class=False)

    assert attempts(Client().send) == 2


def test_an_attribute_that_binds_itself_otherwise_is_refused_by_name() -> None:
    """Otherwise it would silently lack the policies of its class."""
    with refused("Client.find", "is a method of a kind that a decorator of the class cannot guard", "@unguarded"):

        @timeout
        class Client:
            def _find(cls) -> None: ...

            find = Own(_find, on_class=True)

    @timeout
    class Exempting:
        def _find(cls) -> None:
            Failing.fail()

        find = unguarded(Own(_find, on_class=True))

    assert attempts(Exempting.find) == 1


def test_guards_in_a_class_that_no_class_statement_created_are_covered() -> None:
    """Nor does one run for a class that Cython or mypyc compiled: no body of it tells the guards their class."""

    def compiled(name: str) -> Any:
        def method(_: object) -> None:
            Failing.fail()

        method.__qualname__ = f"Client.{name}"
        return timeout(500)(method)

    send, find = compiled("send"), compiled("find")
    client = retry(max_retries=1, jitter=0)(type("Client", (), {"send": send, "find": classmethod(find)}))
    heir = type("Heir", (client,), {})

    assert [attempts(call) for call in (client().send, heir().send, client.find, heir.find)] == [2, 2, 2, 2]
    names = {one.name.removeprefix(f"{__name__}.") for one in guards() if one.method in (send, find)}
    assert names == {"Client.send", "Heir.send", "Client.find", "Heir.find"}


def test_a_guarded_function_that_is_also_an_attribute_of_a_class_stays_a_function() -> None:
    """It is no method without a class; as a method it would expect an object, and not be guarded without one."""

    @retry(max_retries=1, jitter=0)
    def ping(_: object = None) -> None:
        Failing.fail()

    timeout(500)(type("Client", (), {"ping": ping}))

    assert attempts(ping) == 2


def test_a_guarded_function_that_becomes_a_method_is_guarded_when_it_is_called_as_a_function() -> None:
    """A class body with guards makes methods of its attributes; its module calls the function as before."""

    @retry(max_retries=1, jitter=0)
    def ping(_: object = None) -> None:
        Failing.fail()

    class Client:
        send = ping

        @retry
        def find(self) -> None: ...

    assert (attempts(Client().send), attempts(ping)) == (2, 2)
