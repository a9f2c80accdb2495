"""Records: the promises of a frozen dataclass, without its price at import."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from faulttolerance import ChronoUnit
from faulttolerance.policies import Bulkhead, Retry, Timeout


def test_equal_values_are_equal_and_hash_alike() -> None:
    """A record equals another one of its kind with the same values."""
    one, same, other = Bulkhead(5), Bulkhead(value=5), Bulkhead(6)

    assert (one == same, hash(one) == hash(same), one == other, one == Timeout(5)) == (True, True, False, False)


def test_the_text_of_a_record_makes_it_again() -> None:
    """The text is the expression for the record."""
    policy = Bulkhead(5)

    assert repr(policy) == "Bulkhead(value=5)"
    assert eval(repr(policy)) == policy


@pytest.mark.parametrize("change", [lambda one: setattr(one, "value", 6), lambda one: delattr(one, "value")])
def test_a_record_does_not_change(change: Any) -> None:
    """Neither by assigning nor by deleting."""
    policy = Bulkhead(5)

    with pytest.raises(AttributeError, match="'value': a Bulkhead does not change"):
        change(policy)
    assert policy == Bulkhead(5)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_equal(again: Any) -> None:
    """A copied or pickled record has the same values."""
    policy = Timeout(2, ChronoUnit.SECONDS)

    assert again(policy) == policy


def test_a_record_can_be_made_from_another() -> None:
    """``copy.replace`` of Python 3.13 does the same; values are checked as always."""
    assert Retry(max_retries=5).__replace__(delay=7) == Retry(max_retries=5, delay=7)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Bulkhead(1, 2, 3), "Bulkhead: too many positional arguments"),
        (lambda: Bulkhead(1, value=2), "Bulkhead: multiple values for argument 'value'"),
        (lambda: Bulkhead(size=2), "@Bulkhead has no parameter 'size'"),
        (lambda: Retry(5), "Retry: too many positional arguments"),
    ],
)
def test_wrong_arguments_are_named(make: Any, problem: str) -> None:
    """A record refuses them as any function does."""
    with pytest.raises(TypeError, match=problem):
        make()


def test_its_signature_is_known_at_run_time() -> None:
    """Consoles and pages show names, defaults and keyword-only parameters."""
    assert str(inspect.signature(Timeout)).startswith("(value: 'Duration' = 1000, unit: 'Unit' = ")
    assert {one.kind for one in inspect.signature(Retry).parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_a_pattern_takes_a_record_apart() -> None:
    """The pattern matches by position, in the order of the fields."""
    match Bulkhead(3, 4):
        case Bulkhead(value, queue):
            found = (value, queue)

    assert found == (3, 4)
