"""The callbacks that fit a function: by type, by kind, and by the time at which they exist (rule R6)."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

import pytest

from faulttolerance import FaultToleranceDefinitionException, fallback as guard_by_fallback
from faulttolerance._guard.declare.checks.definition import callback_faults
from faulttolerance._guard.declare.declaration import CLASS, FUNCTION, INSTANCE, Declaration, unbound
from faulttolerance._guard.resolve.callback import ExecutionContext
from faulttolerance._guard.resolve.resolver import MethodResolver
from faulttolerance._policy import Fallback
from faulttolerance.typing import FallbackHandler

if TYPE_CHECKING:
    from elsewhere import Refusal

T = TypeVar("T")


def declared(cls: type, name: str = "method") -> Declaration:
    """Return the declaration of a method, as it is once its class is created."""
    value = next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
    binding = CLASS if isinstance(value, classmethod) else FUNCTION if isinstance(value, staticmethod) else INSTANCE
    declaration = Declaration(unbound(value), {}, binding)
    declaration.owner = cls
    declaration.mark(unbound(value), MethodResolver(declaration))
    return declaration


def faults_of(cls: type, name: str = "substitute", *, asynchronous: bool | None = None) -> list[str]:
    declaration = declared(cls)
    is_asynchronous = declaration.is_coroutine if asynchronous is None else asynchronous
    final = asynchronous is not None
    found = callback_faults(
        Fallback(fallback_method=name), declaration, "shop.Cart.method", is_asynchronous, final=final
    )
    return [str(fault) for fault in found]


def faults_of_handler(value: Any, cls: type, *, asynchronous: bool | None = None) -> list[str]:
    declaration = declared(cls)
    is_asynchronous = declaration.is_coroutine if asynchronous is None else asynchronous
    found = callback_faults(Fallback(value), declaration, "shop.Cart.method", is_asynchronous)
    return [str(fault) for fault in found]


def function_of(function: Callable[..., Any]) -> Declaration:
    declaration = Declaration(function, {}, FUNCTION)
    declaration.mark(function, MethodResolver(declaration))
    return declaration


class Cart:
    def method(self, a: int) -> str:
        raise ValueError

    def substitute(self, a: int) -> str:
        return f"{type(self).__name__} {a}"


# Annotated types


class Typed:
    def method(self, a: list[float], *b: int, k: str = "", **more: bytes) -> str | None:
        raise ValueError

    def same(self, x: list[float], *y: int, k: str, **z: bytes) -> str | None: ...

    def bare(self, x, *y, k, **z): ...  # type: ignore[no-untyped-def]

    def unresolved(self, x: Refusal, *y: Refusal, k: Refusal, **z: Refusal) -> Refusal: ...

    def generic(self, x: list, *y: int, k: str, **z: bytes) -> str | None: ...  # type: ignore[type-arg]

    def raises(self, x: list[float], *y: int, k: str, **z: bytes) -> NoReturn:
        raise ValueError

    def other_element(self, x: list[int], *y: int, k: str, **z: bytes) -> str | None: ...

    def other_rest(self, x: list[float], *y: str, k: str, **z: bytes) -> str | None: ...

    def other_keyword(self, x: list[float], *y: int, k: int, **z: bytes) -> str | None: ...

    def other_more(self, x: list[float], *y: int, k: str, **z: str) -> str | None: ...

    def other_result(self, x: list[float], *y: int, k: str, **z: bytes) -> int: ...  # type: ignore[empty-body]

    def narrower(self, x: list[float], *y: bool, k: str, **z: bytes) -> str | None: ...

    def wider_result(self, x: list[float], *y: int, k: str, **z: bytes) -> str | int | None: ...

    def less(self, x: list[float], *y: int, k: str, **z: bytes) -> str: ...  # type: ignore[empty-body]

    def more(self, x: Sequence[float] | None, *y: float, k: object, **z: bytes | str) -> None: ...


@pytest.mark.parametrize("name", ["same", "bare", "unresolved", "generic", "raises", "less", "more"])
def test_types_that_are_compatible_or_not_known_fit(name: str) -> None:
    """A substitute may take more and return less; types are compared where both sides are annotated."""
    assert faults_of(Typed, name) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "other_element",
            "whose parameter `x: 'list[int]'` does not accept every value of `a: 'list[float]'`; allowed: the same",
        ),
        ("other_rest", "`*y: 'str'`"),
        ("other_keyword", "`k: 'int'`"),
        ("other_more", "`**z: 'str'`"),
        ("other_result", "which returns int; allowed: str | None, as the guarded function returns"),
        ("narrower", "whose parameter `*y: 'bool'` does not accept every value of `*b: 'int'`"),
        ("wider_result", "which returns str | int | None; allowed: str | None, as the guarded function returns"),
    ],
)
def test_types_that_are_not_compatible_are_refused(name: str, words: str) -> None:
    """A narrower parameter could not take the call's argument, and a wider result would surprise the caller."""
    [fault] = faults_of(Typed, name)

    assert words in fault.replace('"', "'")


# Generic bases


class Store(Generic[T]):
    def substitute(self, a: int, b: T) -> list[T]: ...  # type: ignore[empty-body]


class IntStore(Store[int]):
    def method(self, a: int, b: int) -> list[int]: ...  # type: ignore[empty-body]


class StrStore(Store[str]):
    def method(self, a: int, b: int) -> list[int]: ...  # type: ignore[empty-body]


def test_type_variables_are_resolved_through_generic_bases() -> None:
    """`T` means what it means where the guarded method is declared."""
    assert faults_of(IntStore) == []
    assert len(faults_of(StrStore)) == 2


# Asynchronous or not


class Remote:
    async def method(self) -> int:
        raise ValueError

    async def as_coroutine(self) -> int: ...  # type: ignore[empty-body]

    def plain(self) -> int: ...  # type: ignore[empty-body]

    def as_awaitable(self) -> Awaitable[int]: ...  # type: ignore[empty-body]

    def as_future(self) -> Future[int]: ...  # type: ignore[empty-body]

    async def other(self) -> str: ...  # type: ignore[empty-body]

    def other_plain(self) -> str: ...  # type: ignore[empty-body]

    def other_future(self) -> Future[str]: ...  # type: ignore[empty-body]

    async def less_coroutine(self) -> bool: ...  # type: ignore[empty-body]

    def less(self) -> bool: ...  # type: ignore[empty-body]

    def less_awaitable(self) -> Coroutine[Any, Any, bool]: ...  # type: ignore[empty-body]

    def more_future(self) -> Future[int | None]: ...  # type: ignore[empty-body]


class Submitting(Remote):
    def method(self) -> Future[int]:  # type: ignore[override]
        raise ValueError


class Awaiting(Remote):
    def method(self) -> Awaitable[int]:  # type: ignore[override]
        raise ValueError


class Plain(Remote):
    def method(self) -> int:  # type: ignore[override]
        raise ValueError


@pytest.mark.parametrize("cls", [Remote, Submitting, Awaiting])
def test_the_results_of_asynchronous_functions_are_compared_as_awaited(cls: type) -> None:
    """Rule R6: a fallback of an asynchronous method may be asynchronous or not."""
    for name in ("as_coroutine", "plain", "as_awaitable", "as_future", "less_coroutine", "less", "less_awaitable"):
        assert faults_of(cls, name, asynchronous=True) == []
    for name in ("other", "other_plain", "other_future", "more_future"):
        assert len(faults_of(cls, name, asynchronous=True)) == 1


def test_a_synchronous_function_cannot_wait_for_its_fallback() -> None:
    """It would return a coroutine that nothing awaits."""
    [fault] = faults_of(Plain, "as_coroutine")

    assert "names 'as_coroutine', which is a coroutine function" in fault
    assert faults_of(Plain, "plain") == []
    assert "returns Future[int]" in faults_of(Plain, "as_future")[0]


def test_a_synchronous_function_that_returns_an_awaitable_may_have_a_coroutine_function() -> None:
    """Both give the caller something to await."""
    assert faults_of(Awaiting, "as_coroutine", asynchronous=False) == []
    assert len(faults_of(Awaiting, "other", asynchronous=False)) == 1
    assert len(faults_of(Awaiting, "plain", asynchronous=False)) == 1


@pytest.mark.parametrize("name", ["plain", "as_coroutine", "as_future", "as_awaitable"])
def test_a_function_that_a_further_decorator_may_make_asynchronous_is_not_refused_yet(name: str) -> None:
    """`@asynchronous` may stand above `@fallback`, or on the class."""
    assert faults_of(Submitting, name) == []
    assert faults_of(Awaiting, name) == []
    assert len(faults_of(Submitting, "other")) == 1


def test_a_method_without_annotations_is_taken_for_synchronous() -> None:
    """This holds once its class is there; a function may still become asynchronous."""

    class Bare:
        def method(self): ...  # type: ignore[no-untyped-def]

        async def substitute(self): ...  # type: ignore[no-untyped-def]

    async def handler(context: ExecutionContext) -> None: ...

    def bare(): ...  # type: ignore[no-untyped-def]

    assert "which is a coroutine function" in faults_of(Bare)[0]
    assert "which is a coroutine function" in faults_of_handler(handler, Bare)[0]
    assert callback_faults(Fallback(handler), function_of(bare), "bare", False) == []
    assert len(callback_faults(Fallback(handler), function_of(bare), "bare", False, final=True)) == 1


def test_a_generator_function_is_no_fallback() -> None:
    """Its caller would get a generator."""

    class Streaming(Cart):
        def substitute(self, a: int):  # type: ignore[no-untyped-def, override]
            yield a

    assert "is a generator function" in faults_of(Streaming)[0]


# Handlers


class StringHandler(FallbackHandler[str]):
    def handle(self, context: ExecutionContext) -> str:
        return f"for {context.method.__name__}"


class BareHandler(FallbackHandler[int]):
    def handle(self, context):  # type: ignore[no-untyped-def]
        return 1


class DuckHandler:
    def handle(self, context: ExecutionContext) -> str:
        return "duck"


class GenericHandler(FallbackHandler[list[T]], Generic[T]):
    def handle(self, context: ExecutionContext) -> list[T]:
        return []


class IntsHandler(GenericHandler[int]):
    pass


class StaticHandler:
    @staticmethod
    def handle(context: ExecutionContext) -> str:
        return "static"


class Forgetful(FallbackHandler[str]):
    pass


class StillAbstract(ABC):
    @abstractmethod
    def handle(self, context: ExecutionContext) -> str: ...


class ProtocolHandler(FallbackHandler[T], Protocol[T]):
    def handle(self, context: ExecutionContext) -> T: ...


class Demanding:
    def __init__(self, text: str) -> None:
        self.text = text

    def handle(self, context: ExecutionContext) -> str:
        return self.text


class Deaf:
    def handle(self) -> str:
        return ""


class Slow:
    async def handle(self, context: ExecutionContext) -> str:
        return "slow"


class Streamed:
    def handle(self, context: ExecutionContext) -> Iterator[str]:
        yield ""


@pytest.mark.parametrize(
    "value", [StringHandler, DuckHandler, StaticHandler, lambda context: "", Demanding("a").handle, print]
)
def test_handlers_and_callables_that_fit(value: Any) -> None:
    """A class with `handle`, or a callable that takes one argument."""
    assert faults_of_handler(value, Cart) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (BareHandler, "is BareHandler.handle, which returns int; allowed: str, as"),
        (IntsHandler, "which returns list[T]; allowed: str"),
        (Forgetful, "is the class Forgetful, which is abstract or does not define handle"),
        (StillAbstract, "which is abstract or does not define handle"),
        (ProtocolHandler, "which is abstract or does not define handle"),
        (Demanding, "whose constructor needs arguments: (text"),
        (Deaf, "is Deaf.handle, which does not take one argument: (self)"),
        (lambda: "", "<lambda>, which does not take one argument: ()"),
        (lambda context, more: "", "which does not take one argument"),
        (Slow, "which is a coroutine function"),
        (Streamed, "which is a generator function"),
    ],
)
def test_handlers_that_do_not_fit_are_refused(value: Any, words: str) -> None:
    """Each error says what is wrong and what would be right."""
    faults = faults_of_handler(value, Cart)

    assert words in faults[0]
    assert faults[0].startswith("shop.Cart.method @Fallback(value) is ")


def test_a_handler_with_other_parameters_is_referred_to_fallback_method() -> None:
    """There it would get the arguments of the guarded function."""

    def guarded(article: str, amount: int) -> str:
        return article

    words = "which does not take one argument: .* passed as fallback_method, by its name"
    with pytest.raises(FaultToleranceDefinitionException, match=words):
        guard_by_fallback(lambda article, amount: "")(guarded)


class Inspected:
    """A handler that counts how often it is looked at."""

    looks = 0

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    @property
    def __signature__(self) -> Signature:
        Inspected.looks += 1
        return Signature([Parameter("context", Parameter.POSITIONAL_ONLY)], return_annotation=self.annotation)

    def __call__(self, context: ExecutionContext) -> str:
        return "handled"


def guarded_by(value: Any) -> Any:
    """Return an object whose method ``read`` always fails."""

    class Reader:
        @guard_by_fallback(value)
        def read(self) -> str:
            raise ValueError("down")

    return Reader()


def test_a_handler_that_fits_is_not_looked_at_again_at_the_first_call() -> None:
    """The comparison at the creation of the class still holds, and the first call is not to pay for another one."""
    reader = guarded_by(Inspected(str))
    looks = Inspected.looks

    assert reader.read() == "handled"
    assert Inspected.looks == looks > 0


def test_a_handler_whose_type_has_no_meaning_yet_is_looked_at_again_at_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name may be defined further down, and the annotation may then mean another type."""
    reader = guarded_by(Inspected("DefinedFurtherDown"))
    monkeypatch.setattr(builtins, "DefinedFurtherDown", int, raising=False)

    with pytest.raises(FaultToleranceDefinitionException, match="which returns DefinedFurtherDown; allowed: str"):
        reader.read()


def test_the_handler_of_an_asynchronous_function_is_typed_by_the_awaited_result() -> None:
    """Rule R6: the awaited result of a coroutine function, the content of the future of a future method."""

    def as_future(context: ExecutionContext) -> Future[int]: ...  # type: ignore[empty-body]

    async def as_coroutine(context: ExecutionContext) -> int: ...  # type: ignore[empty-body]

    for cls in (Remote, Submitting, Awaiting):
        for fits in (BareHandler, as_future, as_coroutine):
            assert faults_of_handler(fits, cls, asynchronous=True) == []
        assert len(faults_of_handler(StringHandler, cls, asynchronous=True)) == 1
