"""L3: a guarded method runs plainly while another attribute of its name comes first."""

from __future__ import annotations

import gc
import traceback
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from faulttolerance import FaultToleranceDefinitionException, around_invoke, retry
from kit.interpreter import drops_classes


class Client:
    """A client that counts the attempts of its methods."""

    attempts = 0

    @retry(max_retries=2, delay=0, jitter=0)
    def charge(self) -> None:
        Client.attempts += 1
        raise OSError

    @classmethod
    @retry(max_retries=2, delay=0, jitter=0)
    def refund(cls) -> None:
        Client.attempts += 1
        raise OSError


class Account:
    @property
    @retry(max_retries=2, delay=0, jitter=0)
    def balance(self) -> int:
        Client.attempts += 1
        raise OSError


hidden_getter: Callable[[Any], int] = vars(Account)["balance"].fget


def attempts(call: Callable[[], object]) -> int:
    Client.attempts = 0
    with pytest.raises(OSError):
        call()
    return Client.attempts


class Descriptor:
    """A descriptor that hides a method, and counts its look-ups on the class."""

    looks = 0

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            Descriptor.looks += 1
            return self
        return lambda: Client.charge(instance)


HIDING: dict[str, tuple[str, Any]] = {
    "function": ("charge", lambda self: Client.charge(self)),
    "mock": ("charge", mock.Mock()),
    "descriptor": ("charge", Descriptor()),
    "class method": ("refund", classmethod(lambda cls: Client.refund.__func__(cls))),  # type: ignore[attr-defined]
    "static method": ("charge", staticmethod(lambda: None)),
}


@pytest.mark.parametrize("kind", HIDING)
def test_a_method_is_guarded_again_once_a_patch_is_taken_back(kind: str) -> None:
    """A test that patches leaves the service guarded."""

    class Sub(Client):
        pass

    name, value = HIDING[kind]
    call: Callable[[], object] = Sub().charge if name == "charge" else Sub.refund
    hidden: Any = Client.__dict__[name]
    plain = (lambda: hidden(Sub())) if name == "charge" else lambda: hidden.__func__(Sub)

    with mock.patch.object(Sub, name, value):
        during = attempts(plain)
    after = attempts(call), attempts(Sub().charge), attempts(Sub.refund)

    assert during == 1
    assert after == (3, 3, 3)


@pytest.mark.parametrize("patched", [property(lambda self: hidden_getter(self)), mock.Mock(), lambda self: None])
def test_a_property_is_guarded_again_once_a_patch_is_taken_back(patched: Any) -> None:
    """The guard is in the property, and not itself an attribute of the class."""

    class Sub(Account):
        pass

    with mock.patch.object(Sub, "balance", patched):
        during = attempts(lambda: hidden_getter(Sub()))
    after = attempts(lambda: Sub().balance)

    assert (during, after) == (1, 3)


def test_looking_whether_a_method_is_hidden_runs_no_descriptor() -> None:
    """A look-up of a class attribute on the class may run code of the application."""

    class Sub(Client):
        charge = Descriptor()  # type: ignore[assignment]

    Descriptor.looks = 0

    assert [attempts(Sub().charge) for _ in range(3)] == [1, 1, 1]
    assert Descriptor.looks == 0


def test_a_method_is_guarded_once_its_override_is_deleted() -> None:
    """A patch that is taken back by hand deletes it."""

    class Sub(Client):
        def charge(self) -> None:
            super().charge()

    before = attempts(Sub().charge)
    del Sub.charge

    assert (before, attempts(Sub().charge)) == (1, 3)


def test_a_method_is_guarded_once_the_bases_are_others() -> None:
    """The class that hid it is no base any more."""

    class Hiding(Client):
        def charge(self) -> None:
            Client.charge(self)

    class Sub(Hiding):
        pass

    before = attempts(Sub().charge)
    Sub.__bases__ = (Client,)

    assert (before, attempts(Sub().charge)) == (1, 3)


def test_interceptors_stand_around_a_method_again_too() -> None:
    """They are part of its guard."""
    seen = []

    @around_invoke(priority=100)
    def audit(invocation: Any) -> Any:
        seen.append(invocation.method.__name__)
        return invocation.proceed()

    class Base:
        @audit
        def charge(self) -> str:
            return "charged"

    class Sub(Base):
        def charge(self) -> str:
            return super().charge()

    Sub().charge()
    del Sub.charge
    Sub().charge()

    assert seen == ["charge"]


@drops_classes
def test_a_class_that_hides_a_method_leaves_nothing_behind() -> None:
    """L4: the path that a call takes to the method refers neither to the class nor to the method."""

    class Sub(Client):
        def charge(self) -> None:
            super().charge()

    attempts(Sub().charge)
    gone = weakref.ref(Sub)
    del Sub
    gc.collect()

    assert gone() is None


# The errors of a first use


@pytest.mark.parametrize("name", ["charge", "refund"])
def test_a_first_use_reports_wrong_configuration_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error does not show how the library looks up its unresolved values."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_DELAY", "soon")

    with pytest.raises(FaultToleranceDefinitionException) as refused:
        getattr(Client(), name)()

    assert refused.value.__context__ is None
    assert "During handling" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("name", ["charge", "refund"])
def test_a_failure_of_a_first_call_has_no_context_of_ours(name: str) -> None:
    """Also a failure of the method itself, and that of a method that lacks its object."""

    class Sub(Client):
        pass

    with pytest.raises(OSError) as failed:
        getattr(Sub(), name)()
    with pytest.raises(TypeError) as refused:
        Sub.__dict__.get(name, vars(Client)[name]).__get__(None, Sub)() if name == "charge" else Sub.refund(1)

    assert failed.value.__context__ is None
    assert refused.value.__context__ is None
