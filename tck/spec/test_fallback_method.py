"""Specification, chapter "Fallback": the look-up of a fallback method, and the methods that fit."""

from __future__ import annotations

import asyncio
import types
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import pytest

from faulttolerance import fallback, timeout, unguarded
from kit.definition import refused

T = TypeVar("T")
R = TypeVar("R")


@pytest.mark.tck("FallbackMethodBasicTest.fallbackMethodBasic")
def test_method_of_the_same_class() -> None:
    """The plainest case."""

    class Client:
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

        def fallback(self, a: int, b: int) -> str:
            return "fallback"

    assert Client().method(1, 2) == "fallback"


@pytest.mark.tck("FallbackMethodAbstractTest.fallbackMethodAbstract")
def test_abstract_method_counts_and_the_implementation_is_called() -> None:
    """The subclass has the method that the base promised."""

    class Base(ABC):
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

        @abstractmethod
        def fallback(self, a: int, b: int) -> str: ...

    class Client(Base):
        def fallback(self, a: int, b: int) -> str:
            return "fallback"

    assert Client().method(1, 2) == "fallback"


@pytest.mark.tck("FallbackMethodDefaultMethodTest.fallbackMethodDefaultMethod")
@pytest.mark.parametrize("base", [object, ABC, Protocol], ids=["mixin", "abc", "protocol"])
def test_method_of_an_interface(base: Any) -> None:
    """A mixin, an abstract class, or a protocol that the class names as its base."""

    class Interface(base):  # type: ignore[misc]
        def fallback(self, a: int, b: int) -> str:
            return "fallback"

    class Client(Interface):
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

    assert Client().method(1, 2) == "fallback"


@pytest.mark.tck("FallbackMethodInterfaceTest.fallbackMethodInterface")
def test_abstract_method_of_an_interface_of_the_declaring_class() -> None:
    """It is declared in the interface, and called in the subclass."""

    class C(ABC):
        @abstractmethod
        def fallback(self, a: int, b: int) -> str: ...

    class B(C):
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

    class A(B):
        def fallback(self, a: int, b: int) -> str:
            return "fallback"

    assert A().method(1, 2) == "fallback"


@pytest.mark.tck("FallbackMethodSuperclassTest.fallbackMethodSuperclass")
def test_method_of_a_superclass() -> None:
    """Any class in the method resolution order."""

    class Base:
        def fallback(self, a: int, b: int) -> str:
            return "fallback"

    class Client(Base):
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

    assert Client().method(1, 2) == "fallback"


@pytest.mark.tck("FallbackMethodSubclassOverrideTest.fallbackMethodSubclassOverride")
def test_override_of_the_object_that_was_called() -> None:
    """It is looked up on the instance, at the call."""

    class Base:
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

        def fallback(self, a: int, b: int) -> str:
            return "of the base"

    class Client(Base):
        def fallback(self, a: int, b: int) -> str:
            return "fallback"

    assert Client().method(1, 2) == "fallback"
    assert Base().method(1, 2) == "of the base"


@pytest.mark.tck("FallbackMethodSubclassTest.fallbackMethodSubclass")
def test_method_that_only_a_subclass_has_does_not_count() -> None:
    """The base alone is wrong already."""
    with refused("names 'fallback', which", "Base does not define"):

        class Base:
            @fallback(fallback_method="fallback")
            def method(self, a: int, b: int) -> str:
                raise RuntimeError("fail")

        class Client(Base):
            def fallback(self, a: int, b: int) -> str:
                return "fallback"


# Private and not


@pytest.mark.tck("FallbackMethodPrivateTest.fallbackMethodPrivate")
def test_private_method_of_the_declaring_class() -> None:
    """One underscore or two: the string is mangled as Python mangles the name."""

    class Client:
        @fallback(fallback_method="_fallback")
        def protected(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

        @fallback(fallback_method="__fallback")
        def private(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

        def _fallback(self, a: int, b: int) -> str:
            return "fallback"

        def __fallback(self, a: int, b: int) -> str:
            return "fallback"

    class Subclass(Client):
        def __fallback(self, a: int, b: int) -> str:
            return "of the subclass"

    assert Client().protected(1, 2) == "fallback"
    assert Client().private(1, 2) == "fallback"
    assert Subclass().private(1, 2) == "fallback"


@pytest.mark.tck("FallbackMethodSuperclassPrivateTest.fallbackMethodSuperclassPrivate")
def test_private_method_of_a_superclass_is_out_of_reach() -> None:
    """The name that is mangled with the subclass's name does not exist."""

    class Base:
        def __fallback(self, a: int, b: int) -> str:
            return "fallback"

    with refused("names '__fallback', which", "Client does not define"):

        class Client(Base):
            @fallback(fallback_method="__fallback")
            def method(self, a: int, b: int) -> str:
                raise RuntimeError("fail")


@pytest.mark.tck("FallbackMethodInPackageTest.fallbackMethodInPackage")
def test_underscored_method_of_a_superclass_of_the_same_module() -> None:
    """A single underscore is a convention, no barrier."""

    class Base:
        def _fallback(self, a: int, b: int) -> str:
            return "fallback"

    class Client(Base):
        @fallback(fallback_method="_fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

    assert Client().method(1, 2) == "fallback"


def test_underscored_method_of_a_superclass_of_another_module() -> None:
    """Python has no private packages; Java refuses it."""
    other = types.ModuleType("other")
    exec("class Base:\n    def _fallback(self, a: int, b: int) -> str: return 'fallback'", vars(other))

    class Client(other.Base):  # type: ignore[name-defined, misc]
        @fallback(fallback_method="_fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

    assert Client().method(1, 2) == "fallback"


# Generic classes


class GenericBase(Generic[T]):
    def fallback(self, a: int, b: T) -> str:
        return "fallback"


@pytest.mark.tck("FallbackMethodGenericTest.fallbackMethodGeneric")
def test_type_variable_that_the_subclass_fills_in() -> None:
    """T is int where the guarded method is declared."""

    class Client(GenericBase[int]):
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

    assert Client().method(1, 2) == "fallback"


def test_type_variable_that_the_subclass_fills_in_otherwise() -> None:
    """T is str, and the guarded method takes an int."""
    with refused("parameter `b: 'T'`", "does not accept every value of `b: 'int'`"):

        class Client(GenericBase[str]):
            @fallback(fallback_method="fallback")
            def method(self, a: int, b: int) -> str:
                raise RuntimeError("fail")


@pytest.mark.tck("FallbackMethodGenericDeepTest.fallbackMethodGenericDeep")
def test_type_variable_that_is_filled_in_two_levels_below() -> None:
    """T = R = int."""

    class Middle(GenericBase[R], Generic[R]):
        pass

    class Client(Middle[int]):
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int) -> str:
            raise RuntimeError("fail")

    assert Client().method(1, 2) == "fallback"
    with refused("parameter `b: 'T'`"):

        class Wrong(Middle[str]):
            @fallback(fallback_method="fallback")
            def method(self, a: int, b: int) -> str:
                raise RuntimeError("fail")


@pytest.mark.tck("FallbackMethodGenericAbstractTest.fallbackMethodGenericAbstract")
def test_type_variable_of_an_abstract_base() -> None:
    """T on the guarded side, int on the overriding side."""

    class Base(ABC, Generic[T]):
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: T) -> str:
            raise RuntimeError("fail")

        @abstractmethod
        def fallback(self, a: int, b: T) -> str: ...

    class Client(Base[int]):
        def fallback(self, a: int, b: int) -> str:
            return "fallback"

    assert Client().method(1, 2) == "fallback"


@pytest.mark.tck("FallbackMethodGenericComplexTest.fallbackMethodGenericComplex")
def test_type_variable_inside_nested_generics() -> None:
    """list[set[T]] is list[set[str]]."""

    class Base(Generic[T]):
        def fallback(self, a: list[set[T]]) -> str:
            return "fallback"

    class Client(Base[str]):
        @fallback(fallback_method="fallback")
        def method(self, a: list[set[str]]) -> str:
            raise RuntimeError("fail")

    assert Client().method([{"test"}]) == "fallback"


@pytest.mark.tck("FallbackMethodGenericArrayTest.fallbackMethodGenericArray")
def test_type_variable_inside_lists_of_lists() -> None:
    """Java's T[][]."""

    class Base(Generic[T]):
        def fallback(self, arg: list[list[T]]) -> str:
            return "fallback"

    class Client(Base[str]):
        @fallback(fallback_method="fallback")
        def method(self, arg: list[list[str]]) -> str:
            raise RuntimeError("fail")

    assert Client().method([["test"] * 4] * 3) == "fallback"


@pytest.mark.tck("FallbackMethodGenericWildcardTest.fallbackMethodGenericWildcard")
def test_type_variable_inside_a_covariant_container() -> None:
    """The nearest to Java's List<? extends T>."""

    class Base(Generic[T]):
        def fallback(self, a: Sequence[T]) -> str:
            return "fallback"

    class Client(Base[str]):
        @fallback(fallback_method="fallback")
        def method(self, a: Sequence[str]) -> str:
            raise RuntimeError("fail")

    assert Client().method(["test"]) == "fallback"


@pytest.mark.tck("FallbackMethodWildcardTest.fallbackMethodWildcard")
def test_parameter_names_need_not_agree() -> None:
    """Arguments given by keyword are passed on by position."""

    class Client:
        @fallback(fallback_method="fallback")
        def method(self, a: list[Any] | None) -> str:
            raise RuntimeError("fail")

        def fallback(self, b: list[Any] | None) -> str:
            return "fallback"

    assert Client().method(None) == "fallback"
    assert Client().method(a=None) == "fallback"


@pytest.mark.tck("FallbackMethodWildcardNegativeTest.fallbackMethodWildcardNegative")
def test_type_arguments_must_be_the_same() -> None:
    """A method may take more than the guarded one, but a list of another type is not more."""
    with refused("parameter `b: 'list[int]'`", "does not accept every value of `a: 'list[float]'`"):

        class Client:
            @fallback(fallback_method="fallback")
            def method(self, a: list[float]) -> str:
                raise RuntimeError("fail")

            def fallback(self, b: list[int]) -> str:
                return "fallback"


@pytest.mark.tck("FallbackMethodVarargsTest.fallbackMethodVarargs")
def test_variable_arguments_are_handed_on() -> None:
    """They are handed on one by one, unchanged."""

    class Client:
        @fallback(fallback_method="fallback")
        def method(self, a: int, *b: int) -> str:
            raise RuntimeError("fail")

        def fallback(self, a: int, *b: int) -> str:
            return f"fallback {a} {b}"

    assert Client().method(1, 2) == "fallback 1 (2,)"
    assert Client().method(1) == "fallback 1 ()"


# The failure as one more parameter


def test_method_may_take_the_failure_as_its_last_parameter() -> None:
    """SmallRye has the same."""

    class Client:
        @fallback(fallback_method="fallback")
        def method(self, a: int, b: int = 2) -> str:
            raise RuntimeError("fail")

        def fallback(self, a: int, b: int, error: Exception) -> str:
            return f"{a} {b} {error}"

    assert Client().method(1) == "1 2 fail"
    assert Client().method(b=3, a=1) == "1 3 fail"


def test_failures_that_the_method_does_not_take_are_raised() -> None:
    """An annotated parameter takes only failures of its class."""

    class Client:
        @fallback(fallback_method="fallback")
        def method(self, failure: Exception) -> str:
            raise failure

        def fallback(self, failure: Exception, error: OSError) -> str:
            return type(error).__name__

    assert Client().method(ConnectionError()) == "ConnectionError"
    with pytest.raises(KeyError):
        Client().method(KeyError())


def test_a_further_parameter_that_is_no_exception_is_refused() -> None:
    """It would silently get an exception."""
    with refused("whose parameters (a: 'int', limit: 'int' = 3) are not those", "optionally a last parameter"):

        class Client:
            @fallback(fallback_method="fallback")
            def method(self, a: int) -> str:
                raise RuntimeError("fail")

            def fallback(self, a: int, limit: int = 3) -> str:
                return "fallback"


# Other kinds of methods


def test_class_and_static_methods_fall_back_to_one_another() -> None:
    """A class method falls back to one of the class on which it was called."""

    class Client:
        @classmethod
        @fallback(fallback_method="of_class")
        def inside(cls, a: int) -> str:
            raise RuntimeError("fail")

        @fallback(fallback_method="static")
        @classmethod
        def outside(cls, a: int) -> str:
            raise RuntimeError("fail")

        @staticmethod
        @fallback(fallback_method="of_class")
        def static_inside(a: int) -> str:
            raise RuntimeError("fail")

        @fallback(fallback_method="static")
        @staticmethod
        def static_outside(a: int) -> str:
            raise RuntimeError("fail")

        @classmethod
        def of_class(cls, a: int) -> str:
            return f"{cls.__name__} {a}"

        @staticmethod
        def static(a: int) -> str:
            return f"static {a}"

    class Subclass(Client):
        pass

    assert Subclass.inside(1) == "Subclass 1"
    assert Subclass().inside(a=1) == "Subclass 1"
    assert Subclass.outside(1) == "static 1"
    assert Client.static_inside(1) == "Client 1"
    assert Client.static_outside(a=1) == "static 1"


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
def test_class_and_static_methods_have_no_instance_to_fall_back_on(kind: Any) -> None:
    """A method of instances cannot be called without one."""
    with refused("names 'fallback', which needs an instance"):

        class Client:
            @kind
            @fallback(fallback_method="fallback")
            def method(*args: int) -> str:  # type: ignore[misc]
                raise RuntimeError("fail")

            def fallback(self, *args: int) -> str:
                return "fallback"


def test_coroutine_methods_fall_back() -> None:
    """The fallback may be a coroutine function or not."""

    class Client:
        @fallback(fallback_method="later")
        async def to_coroutine(self, a: int) -> str:
            raise RuntimeError("fail")

        @fallback(fallback_method="now")
        async def to_method(self, a: int) -> str:
            raise RuntimeError("fail")

        async def later(self, a: int) -> str:
            await asyncio.sleep(0)
            return f"later {a}"

        def now(self, a: int) -> str:
            return f"now {a}"

    async def main() -> list[str]:
        return [await Client().to_coroutine(1), await Client().to_method(a=2)]

    assert asyncio.run(main()) == ["later 1", "now 2"]


def test_class_level_fallback_covers_all_methods_but_those_that_are_exempt() -> None:
    """The fallback itself is a method of the class: it is exempt, or its name begins with an underscore."""

    @fallback(fallback_method="instead")
    class Client:
        def one(self, a: int) -> str:
            raise RuntimeError("fail")

        @timeout(1000)
        def two(self, a: int) -> str:
            raise RuntimeError("fail")

        @unguarded
        def instead(self, a: int) -> str:
            return f"fallback {a}"

    assert Client().one(1) == "fallback 1"
    assert Client().two(2) == "fallback 2"


def test_class_level_fallback_that_covers_itself_is_refused() -> None:
    """It would call itself for ever."""
    with refused("Client.instead @Fallback(fallback_method)", "the guarded function itself", "@unguarded"):

        @fallback(fallback_method="instead")
        class Client:
            def instead(self) -> str:
                return "fallback"


def test_class_level_fallback_of_a_subclass_covers_inherited_methods() -> None:
    """It is looked up on the class that declares it."""

    class Base:
        @timeout(1000)
        def guarded(self) -> str:
            raise RuntimeError("fail")

        def plain(self) -> str:
            raise RuntimeError("fail")

    @fallback(fallback_method="__instead")
    class Client(Base):
        def __instead(self) -> str:
            return "fallback"

    class Subclass(Client):
        pass

    assert Client().plain() == "fallback"
    assert Client().guarded() == "fallback"
    assert Subclass().plain() == "fallback"
    assert Subclass().guarded() == "fallback"
    with pytest.raises(RuntimeError, match="fail"):
        Base().guarded()


def test_a_call_with_wrong_arguments_is_no_failure_to_replace() -> None:
    """The fallback could not be called with them either."""

    class Client:
        @fallback(fallback_method="instead")
        def method(self, a: int) -> str:
            return "result"

        def instead(self, a: int) -> str:
            return "fallback"

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Client().method()  # type: ignore[call-arg]
