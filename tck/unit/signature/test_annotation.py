"""Annotations as they are written: which function returns a future, and which types are the same."""
# ruff: noqa: F401  # many names are used in the text of annotations only

from __future__ import annotations

import asyncio
import collections.abc
import concurrent.futures
import subprocess
import sys
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial, wraps
from typing import (  # noqa: UP035
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    List,
    Literal,
    NewType,
    NoReturn,
    Optional,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
)

import pytest
from hypothesis import given, strategies

from faulttolerance._runtime.future import Future as OurFuture
from faulttolerance._signature.annotation import ANYTHING, Scope, Type, accepts, ancestry, members, resolve
from faulttolerance._signature.assignability import is_assignable, is_equivalent
from faulttolerance._signature.outcome import Outcome, awaited, outcome
from kit.program import python

if TYPE_CHECKING:
    from decimal import Decimal

    from elsewhere import Awaitable as Later, Future as Promise, Reply, Task

T = TypeVar("T")
R = TypeVar("R")
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


class FutureClient(Client[Future[int]]):
    pass


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


# Types that are the same


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
        ("Ticket", "Ticket"),
    ],
)
def test_types_that_are_the_same(one: str, other: str, written: Callable[[str], object]) -> None:
    """However they are spelled; what is not known matches."""
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
        ("tuple[int, ...]", "tuple[int, int]"),
        ("tuple[int]", "tuple[int, int]"),
        ("Callable[[int], str]", "Callable[[str], str]"),
        ("Callable[[int], str]", "Callable[[int, int], str]"),
        ("Callable[..., str]", "Callable[..., int]"),
        ("Literal['a']", "Literal['b']"),
        ("Literal[1]", "Literal[True]"),
        ("Literal['a']", "str"),
        ("Ticket", "Future"),
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
    ],
)
def test_a_type_fits_where_a_wider_one_is_expected(one: str, other: str, written: Callable[[str], object]) -> None:
    """A subclass, a member of the union, what is not known."""
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
        ("list[int]", "Sequence[str]"),
        ("list[bool]", "list[int]"),
        ("list[bool]", "Sequence[int]"),
        ("Strings", "list[int]"),
        ("dict[str, int]", "Mapping[str, str]"),
        ("dict[str, int]", "Iterable[int]"),
        ("tuple[int, ...]", "Sequence[str]"),
        ("tuple[int, str]", "Sequence[int]"),
        ("str", "Sequence[int]"),
        ("bytes", "Iterable[str]"),
        ("str", "Literal['a']"),
        ("Literal['a', 'b']", "Literal['a']"),
        ("Literal['a']", "int"),
        ("float", "Weight"),
        ("Weight", "Heavy"),
        ("Awaitable[int]", "Coroutine[Any, Any, int]"),
        ("Coroutine[Any, Any, str]", "Awaitable[int]"),
        ("Future[int]", "asyncio.Future[int]"),
        ("Callable[[int], str]", "Callable[[str], str]"),
        ("type[bool]", "type[int]"),
        ("list[Decimal]", "set[int]"),
    ],
)
def test_a_type_does_not_fit_where_a_narrower_or_another_one_is_expected(one: str, other: str) -> None:
    """Type arguments have to be the same."""
    assert not is_assignable(meant(one), meant(other))


SAMPLES: dict[str, set[object]] = {
    "object": {"1", "True", "1.5", "'a'", "'b'", "'c'", "None", "Animal()", "Dog()", "Weight(2)"}
    | {"['a']", "[1]", "(1,)"},
    "float": {"1", "True", "1.5", "Weight(2)"},
    "int": {"1", "True"},
    "bool": {"True"},
    "str": {"'a'", "'b'", "'c'"},
    "Literal['a']": {"'a'"},
    "Literal['b', 'a']": {"'a'", "'b'"},
    "None": {"None"},
    "Animal": {"Animal()", "Dog()"},
    "Dog": {"Dog()"},
    "Weight": {"Weight(2)"},
    "Sequence[int]": {"[1]", "(1,)"},
    "list[int]": {"[1]"},
    "Sequence[str]": {"['a']", "'a'", "'b'", "'c'"},
}
"""Types, and which of some values each of them has."""
unions = strategies.lists(strategies.sampled_from(sorted(SAMPLES)), min_size=1, max_size=3)


@given(unions, unions)
def test_a_union_fits_if_and_only_if_the_other_has_all_of_its_values(one: list[str], other: list[str]) -> None:
    """Of classes, literals, new types and sequences of one element type."""
    mine, yours = (set[object]().union(*(SAMPLES[name] for name in union)) for union in (one, other))

    assert is_assignable(meant(f"Union[{', '.join(one)}]"), meant(f"Union[{', '.join(other)}]")) is (mine <= yours)


@given(unions, unions, strategies.sampled_from(["Any", "T", "Decimal", "NoReturn"]))
def test_what_is_not_known_fits_everything_and_everything_fits_it(one: list[str], other: list[str], open_: str) -> None:
    """Alone, in a union, and inside of a generic."""
    mine, yours = (f"Union[{', '.join(union)}]" for union in (one, other))

    assert is_assignable(meant(mine), meant(open_))
    assert is_assignable(meant(open_), meant(mine))
    assert is_assignable(meant(mine), meant(f"Union[{', '.join(other)}, {open_}]"))
    assert is_assignable(meant(f"list[{mine}]"), meant(f"list[{open_}]"))
    assert is_assignable(meant(f"list[{mine}]"), meant(f"list[{yours}]")) is is_equivalent(meant(mine), meant(yours))


@pytest.mark.parametrize("annotation", ["Decimal", "list[Decimal]", "Decimal | None", "Mapping[str, Decimal]"])
def test_unresolved_names_match_within_what_is_known(annotation: str) -> None:
    """`Decimal` is imported for type checkers only: it may be anything, a list of it is still a list."""
    assert is_equivalent(meant(annotation), meant(annotation.replace("Decimal", "int")))
    assert not is_equivalent(meant("list[Decimal]"), meant("set[int]"))
    assert not is_equivalent(meant("dict[int, Decimal]"), meant("dict[str, Decimal]"))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is new in Python 3.12")
def test_type_statements_are_resolved() -> None:
    """Generic and recursive ones too."""
    names: dict[str, Any] = {"Future": Future}
    exec(
        "type Reply[T] = Future[list[T]]\n"
        "type Tree = dict[str, Tree] | list[Tree] | int\n"
        "type Missing = Unknown[int]\n"
        "def reply() -> Reply[int]: ...\n"
        "def tree() -> Tree: ...\n"
        "def generic[T](value: T) -> T: ...\n"
        "def missing() -> Missing: ...\n"
        "class Comparable[T: Comparable[T]]: ...\n"
        "def least[T: Comparable[T]](value: T) -> T: ...\n",
        names,
    )

    assert outcome(names["reply"]) is Outcome.FUTURE
    assert outcome(names["tree"]) is Outcome.FOREIGN
    assert outcome(names["generic"]) is Outcome.OBJECT
    assert outcome(names["missing"]) is Outcome.OBJECT
    assert outcome(names["least"]) is Outcome.FOREIGN
    assert is_equivalent(awaited(meant(names["Reply"][int])), meant("list[int]"))
    assert not is_equivalent(awaited(meant(names["Reply"][int])), meant("list[str]"))


@pytest.mark.parametrize("text", ["int", "None", "list[int]", "int | None", "dict[str, list[T]]", "Decimal", "Any"])
def test_a_type_is_written_as_in_a_program(text: str) -> None:
    """Messages show it."""
    assert str(meant(text)) == text


Json: TypeAlias = Union[str, "list[Json]"]
One: TypeAlias = "Other_"
Other_: TypeAlias = "One"
Ordered = TypeVar("Ordered", bound="Comparable[Ordered]")


class Comparable(Generic[Ordered]):
    pass


@pytest.mark.parametrize("text", ["Json", "One", "Ordered", "Comparable[Ordered]", "list[Json]"])
def test_what_refers_to_itself_is_resolved_once(text: str) -> None:
    """Recursive aliases, and type variables whose bound names them."""
    assert is_equivalent(meant(text), meant(text))
    assert outcome(returning(text)) in (Outcome.FOREIGN, Outcome.OBJECT)


@pytest.mark.parametrize("annotation", [[1], {"a": 1}, 42, object(), Literal[[]]])  # type: ignore[valid-type]
def test_what_is_no_type_is_no_error(annotation: object) -> None:
    """Annotations may be used for anything."""
    assert is_equivalent(meant(annotation), meant(annotation))
    assert outcome(returning(annotation)) in (Outcome.FOREIGN, Outcome.OBJECT)


# Type variables of generic classes


class Base(Generic[T]):
    pass


class Middle(Base[R], Generic[R]):
    pass


class Leaf(Middle[int]):
    pass


class Late(Base["Leaf"]):
    pass


class Swapped(Mapping[R, T]):
    pass


class Both(Swapped[int, str], Base[bytes]):
    pass


def test_type_variables_are_followed_through_generic_bases() -> None:
    """Catalogue: T is resolved through two levels."""
    assert ancestry(Type(Leaf))[Base] == (Type(int),)
    assert ancestry(Type(Late))[Base] == (Type(Leaf),)
    assert ancestry(Type(Both))[Base] == (Type(bytes),)
    assert ancestry(Type(Both))[collections.abc.Mapping] == (Type(int), Type(str))
    assert ancestry(meant("Middle[str]"))[Base] == (Type(str),)
    assert is_equivalent(ancestry(Type(Middle))[Base][0], Type(str))  # type: ignore[index]


class Service(Base[str]):
    def method(self, names: list[set[str]]) -> str:
        return ""


def test_a_scope_fills_in_type_variables_as_seen_from_the_subclass() -> None:
    """What `T` of the base class is depends on who looks."""

    def fallback(self: Any, names: list[set[T]]) -> str:
        return ""

    annotation = fallback.__annotations__["names"]

    assert is_equivalent(meant(annotation, Scope.of(fallback, Service, Base)), meant("list[set[str]]"))
    assert not is_equivalent(meant(annotation, Scope.of(fallback, Service, Base)), meant("list[set[int]]"))
    assert is_equivalent(meant(annotation, Scope.of(fallback, Base, Base)), meant("list[set[int]]"))


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
    assert is_equivalent(awaited(meant(annotation)), meant(expected))
    assert not is_equivalent(awaited(meant(annotation)), meant("bytes"))


@pytest.mark.parametrize("annotation", ["Future", "Awaitable", "elsewhere.Future", "Ticket", "DuckFuture"])
def test_a_bare_future_comes_to_anything(annotation: str) -> None:
    """A bare generic matches any of its parametrisations."""
    assert awaited(meant(annotation)) == ANYTHING


# Which exceptions a parameter takes


class Timeout(Exception):
    pass


Refusal = TypeVar("Refusal", bound=OSError)


@pytest.mark.parametrize(
    ("annotation", "failure", "expected"),
    [
        ("OSError", ConnectionError(), True),
        ("OSError", ValueError(), False),
        ("OSError | KeyError", KeyError(), True),
        ("OSError | None", ValueError(), False),
        ("Refusal", ConnectionError(), True),
        ("Refusal", ValueError(), False),
        ("Any", ValueError(), True),
        ("object", ValueError(), True),
        ("elsewhere.Timeout", Timeout(), True),
        ("elsewhere.Timeout", ValueError(), False),
    ],
)
def test_an_annotated_parameter_takes_exceptions_of_its_class(
    annotation: str, failure: Exception, expected: bool
) -> None:
    """A class that is imported for type checkers only is known by its name."""
    assert accepts(meant(annotation), failure) is expected


def test_members_of_a_union_are_told_apart() -> None:
    """A type that is no union has one member, itself."""
    assert members(meant("OSError | KeyError")) == (Type(OSError), Type(KeyError))
    assert members(meant("OSError")) == (Type(OSError),)
