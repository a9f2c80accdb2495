"""Definition errors about the kind of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import FaultToleranceDefinitionException, asynchronous
from faulttolerance.exceptions import Fault


def returning(annotation: str) -> Callable[..., Any]:
    def function(self: object = None) -> Any: ...

    function.__annotations__["return"] = annotation
    return function


def fault_of(decorated: Callable[[], object]) -> Fault:
    with pytest.raises(FaultToleranceDefinitionException) as raised:
        decorated()
    [fault] = raised.value.faults
    return fault


def test_a_result_that_does_not_come_later_is_refused_with_the_remedy() -> None:
    """Rule R7: the definition error names the annotations to write."""

    def name() -> str:
        return ""

    fault = fault_of(lambda: asynchronous(name))

    assert f"{name.__qualname__} @Asynchronous is on a function that returns str; allowed: `async def`" in str(fault)
    assert "`-> Future[str]`" in fault.allowed
    assert "`-> Awaitable[str]`" in fault.allowed
    assert "@unguarded" not in fault.allowed


def test_a_class_level_fault_says_how_to_exempt_the_method() -> None:
    """Rule L7: the error names the decorator."""
    fault = fault_of(lambda: asynchronous(type("Cart", (), {"total": returning("int | None")})))

    assert "@unguarded" in fault.allowed
    assert "returns int | None" in fault.problem


@pytest.mark.parametrize("annotation", ["Future[int]", "Awaitable[int]", "Any", "Reply", "T"])
def test_an_annotation_that_may_be_asynchronous_is_not_refused(annotation: str) -> None:
    """Only an annotation of another type is wrong."""
    asynchronous(returning(annotation))
