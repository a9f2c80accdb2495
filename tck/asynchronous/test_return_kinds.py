"""The kind of object that calling a function returns: a future, an awaitable, or neither."""
# ruff: noqa: F401  # many names are used in the text of annotations only

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial, wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    NoReturn,
    Optional,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    Union,
)

import pytest

from faulttolerance._execution.future import Future as OurFuture
from faulttolerance._signature.annotation import ANYTHING, Scope, Type, is_equivalent, resolve
from faulttolerance._signature.return_kind import ReturnKind, awaited_type, return_kind
from kit.program import python

if TYPE_CHECKING:
    from decimal import Decimal

    from elsewhere import Future as Promise, Reply, Task

T = TypeVar("T")
Pending = TypeVar("Pending", bound="Future[str]")

Ticket = NewType("Ticket", Future)
Alias: TypeAlias = Future[int]
AliasOf: TypeAlias = Awaitable[T]
TextAlias: TypeAlias = "Future[int]"


class MyFuture(Future[int]):
    pass


class DuckFuture:
    def result(self) -> int:
        return 1

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        callback(self)


class CanBeAwaited(Protocol):
    def __await__(self) -> Iterator[Any]: ...


class Other(Protocol):
    def close(self) -> None: ...


def returning(annotation: object) -> Callable[..., Any]:
    def function() -> object:
        return None

    function.__annotations__["return"] = annotation
    return function


@pytest.mark.parametrize("written", [str, lambda text: eval(text)], ids=["text", "object"])
@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("Future", ReturnKind.FUTURE),
        ("Future[int]", ReturnKind.FUTURE),
        ("concurrent.futures.Future[int]", ReturnKind.FUTURE),
        ("OurFuture[int]", ReturnKind.FUTURE),
        ("MyFuture", ReturnKind.FUTURE),
        ("DuckFuture", ReturnKind.FUTURE),
        ("Annotated[Future[int], 'soon']", ReturnKind.FUTURE),
        ("Alias", ReturnKind.FUTURE),
        ("TextAlias", ReturnKind.FUTURE),
        ("Ticket", ReturnKind.FUTURE),
        ("Pending", ReturnKind.UNKNOWN),
        ("Union[Future[int], OurFuture[str]]", ReturnKind.FUTURE),
        ("asyncio.Future", ReturnKind.AWAITABLE),
        ("asyncio.Task[int]", ReturnKind.AWAITABLE),
        ("Awaitable[int]", ReturnKind.AWAITABLE),
        ("AliasOf[int]", ReturnKind.AWAITABLE),
        ("Coroutine[Any, Any, int]", ReturnKind.AWAITABLE),
        ("typing.Awaitable[int]", ReturnKind.AWAITABLE),
        ("CanBeAwaited", ReturnKind.AWAITABLE),
        ("Any", ReturnKind.UNKNOWN),
        ("object", ReturnKind.UNKNOWN),
        ("T", ReturnKind.UNKNOWN),
        ("NoReturn", ReturnKind.UNKNOWN),
        ("Union[Future[int], int]", ReturnKind.UNKNOWN),
        ("Optional[Awaitable[int]]", ReturnKind.UNKNOWN),
        ("None", ReturnKind.PLAIN),
        ("str", ReturnKind.PLAIN),
        ("list[Future[int]]", ReturnKind.PLAIN),
        ("Optional[int]", ReturnKind.PLAIN),
        ("int | None", ReturnKind.PLAIN),
        ("Literal['a']", ReturnKind.PLAIN),
        ("Callable[[], Awaitable[int]]", ReturnKind.PLAIN),
        ("Iterator[Awaitable[int]]", ReturnKind.PLAIN),
        ("Other", ReturnKind.PLAIN),
        ("type[Future[int]]", ReturnKind.PLAIN),
    ],
)
def test_the_return_annotation_tells_the_kind_of_the_result(
    annotation: str, expected: ReturnKind, written: Callable[[str], object]
) -> None:
    """Rule R7, whether annotations are text (`from __future__ import annotations`) or objects."""
    assert return_kind(returning(written(annotation))) is expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("Promise", ReturnKind.UNKNOWN),
        ("Reply", ReturnKind.UNKNOWN),
        ("elsewhere.Future[int]", ReturnKind.FUTURE),
        ("elsewhere.aio.Task", ReturnKind.AWAITABLE),
        ("Task[Decimal]", ReturnKind.AWAITABLE),
        ("Future[Decimal]", ReturnKind.FUTURE),
        ("Awaitable[Decimal | None]", ReturnKind.AWAITABLE),
        ("Annotated[Future[Decimal], 'soon']", ReturnKind.FUTURE),
        ("Optional[Decimal]", ReturnKind.UNKNOWN),
        ("int[str]", ReturnKind.UNKNOWN),
        ("the future", ReturnKind.UNKNOWN),
        ("", ReturnKind.UNKNOWN),
        ("42", ReturnKind.UNKNOWN),
        ("1 / 0", ReturnKind.UNKNOWN),
        ("'Future[int]'", ReturnKind.FUTURE),
    ],
)
def test_the_head_name_decides_where_an_annotation_cannot_be_resolved(annotation: str, expected: ReturnKind) -> None:
    """Names for type checkers only, and text that is no type at all, are no errors."""
    assert return_kind(returning(annotation)) is expected


def test_a_missing_annotation_tells_nothing() -> None:
    """The object that is returned decides."""

    def bare():  # type: ignore[no-untyped-def]
        return None

    assert return_kind(bare) is ReturnKind.UNKNOWN
    assert return_kind(partial(bare)) is ReturnKind.UNKNOWN
    assert return_kind(print) is ReturnKind.UNKNOWN


def test_a_coroutine_function_is_awaitable_whatever_its_annotation() -> None:
    """`async def f() -> int` gives a coroutine."""

    async def fetch() -> int:
        return 1

    assert return_kind(fetch) is ReturnKind.AWAITABLE
    assert return_kind(partial(fetch)) is ReturnKind.AWAITABLE


class Client(Generic[T]):
    def method(self) -> T:
        raise AssertionError

    def itself(self) -> Self:
        return self

    def named(self) -> Client[int]:
        raise AssertionError


class AwaitableClient(Client[T]):
    def __await__(self) -> Iterator[Any]:
        yield


def test_annotations_behind_partials_wrappers_and_methods_are_found() -> None:
    """The annotation of the innermost function counts."""

    def submit(number: int) -> Future[int]:
        raise AssertionError

    @wraps(submit)
    def wrapper(*args: Any) -> Any:
        return submit(*args)

    class Callable_:
        def __call__(self) -> Future[int]:
            raise AssertionError

    assert return_kind(partial(submit, 1)) is ReturnKind.FUTURE
    assert return_kind(wrapper) is ReturnKind.FUTURE
    assert return_kind(Callable_()) is ReturnKind.FUTURE
    assert return_kind(Client().named) is ReturnKind.PLAIN


def test_a_name_of_an_enclosing_function_is_known_by_its_text() -> None:
    """Python keeps such a name only for functions that use it."""

    class Local:
        pass

    class Future:
        pass

    def later() -> Future:
        raise AssertionError

    def names_only() -> Local:
        raise AssertionError

    assert return_kind(later) is ReturnKind.FUTURE
    assert return_kind(names_only) is ReturnKind.UNKNOWN


def test_self_is_the_class_that_declares() -> None:
    """`-> Self` of a class that can be awaited is awaitable."""
    assert return_kind(Client.itself, Client) is ReturnKind.PLAIN
    assert return_kind(Client.itself, AwaitableClient) is ReturnKind.AWAITABLE
    assert return_kind(Client.itself) is ReturnKind.UNKNOWN


def test_a_class_is_known_by_name_while_it_is_being_created() -> None:
    """Fallbacks and futures are checked before the class is bound to its name."""

    class Link:
        def follow(self) -> Link:
            return self

        def __await__(self) -> Iterator[Any]:
            yield

    assert return_kind(Link.follow) is ReturnKind.UNKNOWN
    assert return_kind(Link.follow, Link) is ReturnKind.AWAITABLE


def test_looking_at_annotations_imports_nothing() -> None:
    """A program without asyncio and futures stays without them."""
    program = (
        "import sys\n"
        "from faulttolerance._signature.return_kind import return_kind\n"
        "def f() -> 'Future[int]': ...\n"
        "def g() -> int: ...\n"
        "print(return_kind(f).name, return_kind(g).name, 'asyncio' in sys.modules, 'concurrent.futures' in sys.modules)"
    )

    done = python(program)

    assert done.stdout.split() == ["FUTURE", "PLAIN", "False", "False"]


def meant(annotation: object, scope: Scope | None = None) -> Type:
    return resolve(annotation, scope or Scope.of(returning(None)))


# Types of awaited results


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("Future[int]", "int"),
        ("OurFuture[int]", "int"),
        ("asyncio.Future[int]", "int"),
        ("asyncio.Task[int]", "int"),
        ("Awaitable[list[int]]", "list[int]"),
        ("Coroutine[Any, None, int]", "int"),
        ("MyFuture", "int"),
        ("Annotated[Future[int], 'soon']", "int"),
        ("Union[Future[int], Awaitable[int]]", "int"),
    ],
)
def test_the_type_of_an_awaited_result_is_compared(annotation: str, expected: str) -> None:
    """Rule R6: `async def -> T`, `Awaitable[T]`, `Future[T]` compare by T."""
    assert is_equivalent(awaited_type(meant(annotation)), meant(expected))
    assert not is_equivalent(awaited_type(meant(annotation)), meant("bytes"))


@pytest.mark.parametrize("annotation", ["Future", "Awaitable", "elsewhere.Future", "Ticket", "DuckFuture"])
def test_a_bare_future_is_compared_as_any_future(annotation: str) -> None:
    """A bare generic matches any of its parametrisations."""
    assert awaited_type(meant(annotation)) == ANYTHING
