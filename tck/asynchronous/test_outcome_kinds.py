"""What calling a function gives: a future, something to await, or neither."""
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
from faulttolerance._signature.annotation import ANYTHING, Scope, Type, resolve
from faulttolerance._signature.assignability import is_equivalent
from faulttolerance._signature.outcome import Outcome, awaited_type, outcome
from kit.program import python

if TYPE_CHECKING:
    from decimal import Decimal

    from elsewhere import Future as Promise, Reply, Task

T = TypeVar("T")
Pending = TypeVar("Pending", bound="Future[str]")
Plain = TypeVar("Plain", bound=int)
Either = TypeVar("Either", Awaitable[int], Coroutine[Any, Any, int])

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
        ("Future", Outcome.FUTURE),
        ("Future[int]", Outcome.FUTURE),
        ("concurrent.futures.Future[int]", Outcome.FUTURE),
        ("OurFuture[int]", Outcome.FUTURE),
        ("MyFuture", Outcome.FUTURE),
        ("DuckFuture", Outcome.FUTURE),
        ("Annotated[Future[int], 'soon']", Outcome.FUTURE),
        ("Alias", Outcome.FUTURE),
        ("TextAlias", Outcome.FUTURE),
        ("Ticket", Outcome.FUTURE),
        ("Pending", Outcome.FUTURE),
        ("Union[Future[int], OurFuture[str]]", Outcome.FUTURE),
        ("asyncio.Future", Outcome.AWAITABLE),
        ("asyncio.Task[int]", Outcome.AWAITABLE),
        ("Awaitable[int]", Outcome.AWAITABLE),
        ("AliasOf[int]", Outcome.AWAITABLE),
        ("Coroutine[Any, Any, int]", Outcome.AWAITABLE),
        ("typing.Awaitable[int]", Outcome.AWAITABLE),
        ("CanBeAwaited", Outcome.AWAITABLE),
        ("Either", Outcome.AWAITABLE),
        ("Any", Outcome.OBJECT),
        ("object", Outcome.OBJECT),
        ("T", Outcome.OBJECT),
        ("NoReturn", Outcome.OBJECT),
        ("Union[Future[int], int]", Outcome.OBJECT),
        ("Optional[Awaitable[int]]", Outcome.OBJECT),
        ("None", Outcome.FOREIGN),
        ("str", Outcome.FOREIGN),
        ("list[Future[int]]", Outcome.FOREIGN),
        ("Optional[int]", Outcome.FOREIGN),
        ("int | None", Outcome.FOREIGN),
        ("Plain", Outcome.FOREIGN),
        ("Literal['a']", Outcome.FOREIGN),
        ("Callable[[], Awaitable[int]]", Outcome.FOREIGN),
        ("Iterator[Awaitable[int]]", Outcome.FOREIGN),
        ("Other", Outcome.FOREIGN),
        ("type[Future[int]]", Outcome.FOREIGN),
    ],
)
def test_the_return_annotation_tells_what_comes_of_a_call(
    annotation: str, expected: Outcome, written: Callable[[str], object]
) -> None:
    """Rule R7, whether annotations are text (`from __future__ import annotations`) or objects."""
    assert outcome(returning(written(annotation))) is expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("Promise", Outcome.OBJECT),
        ("Reply", Outcome.OBJECT),
        ("elsewhere.Future[int]", Outcome.FUTURE),
        ("elsewhere.aio.Task", Outcome.AWAITABLE),
        ("Task[Decimal]", Outcome.AWAITABLE),
        ("Future[Decimal]", Outcome.FUTURE),
        ("Awaitable[Decimal | None]", Outcome.AWAITABLE),
        ("Annotated[Future[Decimal], 'soon']", Outcome.FUTURE),
        ("Optional[Decimal]", Outcome.OBJECT),
        ("int[str]", Outcome.OBJECT),
        ("Future(", Outcome.FUTURE),
        ("the future", Outcome.OBJECT),
        ("", Outcome.OBJECT),
        ("42", Outcome.OBJECT),
        ("1 / 0", Outcome.OBJECT),
        ("'Future[int]'", Outcome.FUTURE),
    ],
)
def test_the_head_name_decides_where_an_annotation_cannot_be_resolved(annotation: str, expected: Outcome) -> None:
    """Names for type checkers only, and text that is no type at all, are no errors."""
    assert outcome(returning(annotation)) is expected


def test_a_missing_annotation_tells_nothing() -> None:
    """The object that is returned decides."""

    def bare():  # type: ignore[no-untyped-def]
        return None

    assert outcome(bare) is Outcome.OBJECT
    assert outcome(partial(bare)) is Outcome.OBJECT
    assert outcome(print) is Outcome.OBJECT


def test_a_coroutine_function_is_awaitable_whatever_its_annotation() -> None:
    """`async def f() -> int` gives a coroutine."""

    async def fetch() -> int:
        return 1

    assert outcome(fetch) is Outcome.AWAITABLE
    assert outcome(partial(fetch)) is Outcome.AWAITABLE


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
    """The function that runs in the end is the one whose annotation counts."""

    def submit(number: int) -> Future[int]:
        raise AssertionError

    @wraps(submit)
    def wrapper(*args: Any) -> Any:
        return submit(*args)

    class Callable_:
        def __call__(self) -> Future[int]:
            raise AssertionError

    assert outcome(partial(submit, 1)) is Outcome.FUTURE
    assert outcome(wrapper) is Outcome.FUTURE
    assert outcome(Callable_()) is Outcome.FUTURE
    assert outcome(Client().named) is Outcome.FOREIGN


def test_a_name_of_an_enclosing_function_is_seen_where_the_function_uses_it() -> None:
    """Python keeps such names only for functions that use them; for others the head name decides."""
    kept = Future

    class Local:
        pass

    def uses() -> kept[int]:  # type: ignore[valid-type]
        return kept()

    def names_only() -> Local:
        raise AssertionError

    assert outcome(uses) is Outcome.FUTURE
    assert outcome(names_only) is Outcome.OBJECT


def test_self_is_the_class_that_declares() -> None:
    """`-> Self` of a class that can be awaited is awaitable."""
    assert outcome(Client.itself, Client) is Outcome.FOREIGN
    assert outcome(Client.itself, AwaitableClient) is Outcome.AWAITABLE
    assert outcome(Client.itself) is Outcome.OBJECT


def test_a_class_is_known_by_name_while_it_is_being_created() -> None:
    """Fallbacks and futures are checked before the class is bound to its name."""

    class Link:
        def follow(self) -> Link:
            return self

        def __await__(self) -> Iterator[Any]:
            yield

    assert outcome(Link.follow) is Outcome.OBJECT
    assert outcome(Link.follow, Link) is Outcome.AWAITABLE


def test_looking_at_annotations_imports_nothing() -> None:
    """A program without asyncio and futures stays without them."""
    program = (
        "import sys\n"
        "from faulttolerance._signature.outcome import outcome\n"
        "def f() -> 'Future[int]': ...\n"
        "def g() -> int: ...\n"
        "print(outcome(f).name, outcome(g).name, 'asyncio' in sys.modules, 'concurrent.futures' in sys.modules)"
    )

    done = python(program)

    assert done.stdout.split() == ["FUTURE", "FOREIGN", "False", "False"]


def meant(annotation: object, scope: Scope | None = None) -> Type:
    return resolve(annotation, scope or Scope.of(returning(None)))


# What comes of a future


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
        ("elsewhere.Future[int]", "int"),
        ("Union[Future[int], Awaitable[int]]", "int"),
    ],
)
def test_what_comes_of_waiting_for_a_result(annotation: str, expected: str) -> None:
    """Rule R6: `async def -> T`, `Awaitable[T]`, `Future[T]` compare by T."""
    assert is_equivalent(awaited_type(meant(annotation)), meant(expected))
    assert not is_equivalent(awaited_type(meant(annotation)), meant("bytes"))


@pytest.mark.parametrize("annotation", ["Future", "Awaitable", "elsewhere.Future", "Ticket", "DuckFuture"])
def test_a_bare_future_comes_to_anything(annotation: str) -> None:
    """A bare generic matches any of its parametrisations."""
    assert awaited_type(meant(annotation)) == ANYTHING
