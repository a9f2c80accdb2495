"""Types that are the same, and types that fit where another is expected."""
# ruff: noqa: F401  # many names are used in the text of annotations only

from __future__ import annotations

import asyncio
import collections.abc
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import (  # noqa: UP035
    TYPE_CHECKING,
    Annotated,
    Any,
    List,
    Literal,
    NewType,
    NoReturn,
    Optional,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
)

import pytest
from hypothesis import given, strategies

from faulttolerance._execution.future import Future as OurFuture
from faulttolerance._signature.annotation import Scope, Type, is_assignable, is_equivalent, resolve

if TYPE_CHECKING:
    from decimal import Decimal


T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Q = ParamSpec("Q")

Ticket = NewType("Ticket", Future)
Alias: TypeAlias = Future[int]
AliasOf: TypeAlias = Awaitable[T]
TextAlias: TypeAlias = "Future[int]"


class MyFuture(Future[int]):
    pass


class Other(Protocol):
    def close(self) -> None: ...


def returning(annotation: object) -> Callable[..., Any]:
    def function() -> object:
        return None

    function.__annotations__["return"] = annotation
    return function


def meant(annotation: object, scope: Scope | None = None) -> Type:
    return resolve(annotation, scope or Scope.of(returning(None)))


@pytest.mark.parametrize("written", [str, lambda text: eval(text)], ids=["text", "object"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int", "int"),
        ("None", "None"),
        ("list[int]", "List[int]"),
        ("list", "list[int]"),
        ("List", "list[int]"),
        ("dict[str, list[int]]", "dict[str, list]"),
        ("int | None", "Optional[int]"),
        ("Union[int, str, None]", "str | None | int"),
        ("Annotated[int, 'count']", "int"),
        ("list[Annotated[int, 'count']]", "list[int]"),
        ("Any", "int"),
        ("list[Any]", "list[int]"),
        ("Any | None", "int"),
        ("Callable[[int], str]", "typing.Callable[[int], str]"),
        ("Callable[..., str]", "Callable[[int], str]"),
        ("collections.abc.Sequence[int]", "typing.Sequence[int]"),
        ("Literal['a', 'b']", "Literal['b', 'a']"),
        ("tuple[int, ...]", "tuple[int, ...]"),
        ("T", "int"),
        ("T", "R"),
        ("list[T]", "list[str]"),
        ("Alias", "Future[int]"),
        ("TextAlias", "Future[int]"),
        ("AliasOf[int]", "Awaitable[int]"),
        ("NoReturn", "int"),
        ("Ticket", "Future"),
        ("Literal['a']", "Literal['b']"),
        ("Literal['a']", "str"),
        ("Literal['a', 1]", "str | int"),
    ],
)
def test_types_that_are_the_same(one: str, other: str, written: Callable[[str], object]) -> None:
    """The spelling does not matter; an unknown type matches; `NewType` and `Literal` count as at run time."""
    assert is_equivalent(meant(written(one)), meant(written(other)))
    assert is_equivalent(meant(written(other)), meant(written(one)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int", "str"),
        ("int", "None"),
        ("int", "int | None"),
        ("int | str", "int | None"),
        ("bool", "int"),
        ("list[float]", "list[int]"),
        ("list[int]", "Sequence[int]"),
        ("dict[str, int]", "dict[str, str]"),
        ("tuple[int]", "tuple[int, int]"),
        ("Literal['a']", "Literal[1]"),
        ("Literal[1]", "Literal[True]"),
        ("Ticket", "int"),
        ("type[int]", "type[str]"),
    ],
)
def test_types_that_differ(one: str, other: str) -> None:
    """Type arguments have to be the same: a related or narrower one is another."""
    assert not is_equivalent(meant(one), meant(other))
    assert not is_equivalent(meant(other), meant(one))


# Types that fit


class Animal: ...


class Dog(Animal): ...


class Kennel(Sequence[T]): ...


class Strings(list[str]): ...


class Point(TypedDict):
    x: int


Weight = NewType("Weight", float)
Heavy = NewType("Heavy", Weight)


@pytest.mark.parametrize("written", [str, lambda text: eval(text)], ids=["text", "object"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Dog", "Animal"),
        ("Dog", "object"),
        ("None", "object"),
        ("bool", "int"),
        ("int", "float"),
        ("bool", "complex"),
        ("str", "str | None"),
        ("None", "Optional[str]"),
        ("Dog", "Animal | None"),
        ("str | None", "int | None | str"),
        ("Dog | bool", "Animal | int"),
        ("list[int]", "Sequence[int]"),
        ("list[int]", "Iterable"),
        ("list", "Sequence[int]"),
        ("Kennel[int]", "Sequence[int]"),
        ("list[int]", "Sequence[str]"),
        ("Callable[[int], str]", "Callable[[str], int]"),
        ("Strings", "list[str]"),
        ("dict[str, int]", "Mapping[str, int]"),
        ("dict[str, int]", "Iterable[str]"),
        ("tuple[int, ...]", "Sequence[int]"),
        ("tuple[int, int]", "Sequence[int]"),
        ("tuple[int, str]", "Sequence[int | str]"),
        ("typing.LiteralString", "object"),
        ("str", "Sequence[str]"),
        ("bytes", "Iterable[int]"),
        ("collections.abc.Generator[int, str, bytes]", "Iterator[int]"),
        ("Strings", "Sequence[str]"),
        ("list[Any]", "Sequence[int]"),
        ("Literal['a']", "str"),
        ("Literal['a']", "Literal['a', 'b']"),
        ("Literal['a', None]", "str | None"),
        ("Literal[True]", "int"),
        ("Weight", "float"),
        ("Heavy", "Weight"),
        ("Heavy", "float | None"),
        ("Coroutine[Any, Any, int]", "Awaitable[int]"),
        ("OurFuture[int]", "Future[int]"),
        ("asyncio.Task[int]", "Awaitable[int]"),
        ("MyFuture", "Future[int]"),
        ("Dog", "Other"),
        ("Point", "Point"),
        ("dict[str, int]", "Point"),
        ("Decimal", "int"),
        ("list[int]", "Sequence[Decimal]"),
        ("Any", "Dog"),
        ("NoReturn", "Dog"),
        ("T", "Dog"),
        ("typing.LiteralString", "str"),
        ("str", "typing.LiteralString"),
        ("typing.TypeGuard[int]", "bool"),
        ("int", "typing.Unpack[Point]"),
        ("P.args", "Q.args"),
        ("P.kwargs", "object"),
        ("Callable[P, int]", "Callable[Q, int]"),
    ],
)
def test_a_type_fits_where_a_wider_one_is_expected(one: str, other: str, written: Callable[[str], object]) -> None:
    """A subclass, a member of the union, an unknown type; the elements of built-in containers are unknown to bases."""
    try:
        assert is_assignable(meant(written(one)), meant(written(other)))
    except NameError:
        pytest.skip("known to type checkers only")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Animal", "Dog"),
        ("object", "Animal"),
        ("int", "bool"),
        ("float", "int"),
        ("str | None", "str"),
        ("Animal | None", "Dog | None"),
        ("int", "None"),
        ("None", "int"),
        ("Sequence[int]", "list[int]"),
        ("list[bool]", "list[int]"),
        ("Strings", "list[int]"),
        ("Literal['a', 1]", "Literal['a']"),
        ("Literal['a']", "int"),
        ("Weight", "int"),
        ("Awaitable[int]", "Coroutine[Any, Any, int]"),
        ("Future[int]", "asyncio.Future[int]"),
        ("type[bool]", "type[int]"),
        ("list[Decimal]", "set[int]"),
    ],
)
def test_a_type_does_not_fit_where_a_narrower_or_another_one_is_expected(one: str, other: str) -> None:
    """Type arguments have to be the same."""
    assert not is_assignable(meant(one), meant(other))


def test_a_dictionary_fits_where_one_of_typing_extensions_is_expected() -> None:
    """It derives from no class of ``typing`` before Python 3.12, for which pydantic requires it."""
    typing_extensions = pytest.importorskip("typing_extensions")
    spot = typing_extensions.TypedDict("spot", {"x": int})

    assert is_assignable(meant(Point), meant(spot))
    assert not is_assignable(meant(spot), meant(int))


SAMPLES: dict[str, set[object]] = {
    "object": {"1", "True", "1.5", "'a'", "None", "Animal()", "Dog()", "['a']", "[1]"},
    "float": {"1", "True", "1.5"},
    "int": {"1", "True"},
    "bool": {"True"},
    "str": {"'a'"},
    "Literal['a', 'b']": {"'a'"},
    "None": {"None"},
    "Animal": {"Animal()", "Dog()"},
    "Dog": {"Dog()"},
    "Weight": {"1", "True", "1.5"},
    "list[str]": {"['a']"},
    "list[int]": {"[1]"},
}
"""Types, and which of some values each of them has."""
unions = strategies.lists(strategies.sampled_from(sorted(SAMPLES)), min_size=1, max_size=3)


@given(unions, unions)
def test_a_union_fits_if_and_only_if_the_other_has_all_of_its_values(one: list[str], other: list[str]) -> None:
    """Of classes, literals, new types and lists of one element type."""
    mine, yours = (set[object]().union(*(SAMPLES[name] for name in union)) for union in (one, other))

    assert is_assignable(meant(f"Union[{', '.join(one)}]"), meant(f"Union[{', '.join(other)}]")) is (mine <= yours)


@given(unions, unions, strategies.sampled_from(["Any", "T", "Decimal", "NoReturn"]))
def test_an_unknown_type_fits_every_type_and_every_type_fits_it(one: list[str], other: list[str], open_: str) -> None:
    """Alone, in a union, and inside of a generic."""
    mine, yours = (f"Union[{', '.join(union)}]" for union in (one, other))

    assert is_assignable(meant(mine), meant(open_))
    assert is_assignable(meant(open_), meant(mine))
    assert is_assignable(meant(mine), meant(f"Union[{', '.join(other)}, {open_}]"))
    assert is_assignable(meant(f"list[{mine}]"), meant(f"list[{open_}]"))
    assert is_assignable(meant(f"list[{mine}]"), meant(f"list[{yours}]")) is is_equivalent(meant(mine), meant(yours))


@pytest.mark.parametrize("annotation", ["Decimal", "list[Decimal]", "Decimal | None", "Mapping[str, Decimal]"])
def test_unresolved_names_match_within_known_types(annotation: str) -> None:
    """`Decimal` is imported for type checkers only: it may be anything, a list of it is still a list."""
    assert is_equivalent(meant(annotation), meant(annotation.replace("Decimal", "int")))
    assert not is_equivalent(meant("list[Decimal]"), meant("set[int]"))
    assert not is_equivalent(meant("dict[int, Decimal]"), meant("dict[str, Decimal]"))
