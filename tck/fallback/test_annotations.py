"""Annotations as they are written: names, aliases, type variables, and the values that they accept."""
# ruff: noqa: F401  # many names are used in the text of annotations only

from __future__ import annotations

import collections.abc
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, Union

import pytest

from faulttolerance._signature.annotation import Scope, Type, accepts, ancestry, is_equivalent, members, resolve
from faulttolerance._signature.return_kind import ReturnKind, awaited_type, return_kind

if TYPE_CHECKING:
    from decimal import Decimal


T = TypeVar("T")
R = TypeVar("R")


def returning(annotation: object) -> Callable[..., Any]:
    def function() -> object:
        return None

    function.__annotations__["return"] = annotation
    return function


def meant(annotation: object, scope: Scope | None = None) -> Type:
    return resolve(annotation, scope or Scope.of(returning(None)))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is new in Python 3.12")
def test_type_statements_are_resolved() -> None:
    """Also generic and recursive ones."""
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
        "def least[T: Comparable[T]](value: T) -> T: ...\n"
        "def first[T: Unknown](value: T) -> T: ...\n",
        names,
    )

    assert return_kind(names["reply"]) is ReturnKind.FUTURE
    assert return_kind(names["tree"]) is ReturnKind.PLAIN
    assert return_kind(names["generic"]) is ReturnKind.UNKNOWN
    assert return_kind(names["missing"]) is ReturnKind.UNKNOWN
    assert return_kind(names["least"]) is ReturnKind.UNKNOWN
    assert return_kind(names["first"]) is ReturnKind.UNKNOWN
    assert is_equivalent(awaited_type(meant(names["Reply"][int])), meant("list[int]"))
    assert not is_equivalent(awaited_type(meant(names["Reply"][int])), meant("list[str]"))


Json: TypeAlias = Union[str, "list[Json]"]
One: TypeAlias = "Other_"
Other_: TypeAlias = "One"
Ordered = TypeVar("Ordered", bound="Comparable[Ordered]")


class Comparable(Generic[Ordered]):
    pass


@pytest.mark.parametrize("text", ["Json", "One", "Ordered", "Comparable[Ordered]", "list[Json]"])
def test_a_type_that_refers_to_itself_is_resolved_once(text: str) -> None:
    """Recursive aliases, and type variables whose bound names them."""
    assert is_equivalent(meant(text), meant(text))
    assert return_kind(returning(text)) in (ReturnKind.PLAIN, ReturnKind.UNKNOWN)


@pytest.mark.parametrize(
    "annotation",
    [[1], {"a": 1}, 42, object(), Literal[[]]],  # type: ignore[valid-type]
)
def test_an_annotation_that_is_no_type_is_no_error(annotation: object) -> None:
    """Annotations may be used for anything."""
    assert is_equivalent(meant(annotation), meant(annotation))
    assert return_kind(returning(annotation)) in (ReturnKind.PLAIN, ReturnKind.UNKNOWN)


# Type variables of generic classes


class Base(Generic[T]):
    pass


class Middle(Base[R], Generic[R]):
    pass


class Leaf(Middle[int]):
    pass


class Swapped(Mapping[R, T]):
    pass


class Both(Swapped[int, str], Base[bytes]):
    pass


def test_type_variables_are_followed_through_generic_bases() -> None:
    """Catalogue: T is resolved through two levels."""
    assert ancestry(Type(Leaf))[Base] == (Type(int),)
    assert ancestry(Type(Both))[Base] == (Type(bytes),)
    assert ancestry(meant("Middle[str]"))[Base] == (Type(str),)
    assert is_equivalent(ancestry(Type(Middle))[Base][0], Type(str))  # type: ignore[index]


class Service(Base[str]):
    def method(self, names: list[set[str]]) -> str:
        return ""


def test_a_scope_fills_in_type_variables_as_seen_from_the_subclass() -> None:
    """The meaning of `T` of the base class depends on the subclass."""

    def fallback(self: Any, names: list[set[T]]) -> str:
        return ""

    annotation = fallback.__annotations__["names"]

    assert is_equivalent(meant(annotation, Scope.of(fallback, Service, Base)), meant("list[set[str]]"))
    assert not is_equivalent(meant(annotation, Scope.of(fallback, Service, Base)), meant("list[set[int]]"))
    assert is_equivalent(meant(annotation, Scope.of(fallback, Base, Base)), meant("list[set[int]]"))


# Which exceptions a parameter takes


class Timeout(Exception):
    pass


@pytest.mark.parametrize(
    ("annotation", "failure", "expected"),
    [
        ("OSError", ConnectionError(), True),
        ("OSError", ValueError(), False),
        ("OSError | KeyError", KeyError(), True),
        ("OSError | None", ValueError(), False),
        ("T", ValueError(), True),
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
