"""The errors that a set of classes means, and the verdict on an attempt that raised one."""

from __future__ import annotations

import asyncio

import pytest

from faulttolerance._strategy import verdict
from faulttolerance._strategy.verdict import (
    FAILURE,
    NEUTRAL,
    SUCCESS,
    Verdict,
    contains,
    matches,
    never_match,
    verdict_on,
)


class Halt(BaseException):
    """Control flow of another library."""


class HardHalt(Halt):
    """A subclass of that control flow."""


class Mixed(Halt, Exception):
    """Control flow and an ``Exception`` at once."""


CONTROL_FLOW = [KeyboardInterrupt(), SystemExit(1), GeneratorExit(), asyncio.CancelledError()]


@pytest.mark.parametrize("error", [*CONTROL_FLOW, Halt()], ids=repr)
@pytest.mark.parametrize("classes", [(Exception,), (BaseException,), (BaseException, Exception)])
def test_no_wide_set_contains_control_flow(error: BaseException, classes: tuple[type[BaseException], ...]) -> None:
    """Neither ``Exception`` nor ``BaseException`` names a particular error outside ``Exception`` (rule R0)."""
    assert not contains(classes, error)


@pytest.mark.parametrize("error", CONTROL_FLOW, ids=repr)
def test_control_flow_is_not_contained_even_where_it_is_named(error: BaseException) -> None:
    """``retry_on=KeyboardInterrupt`` makes Ctrl-C no failure, nor ``CancelledError`` a cancellation (rule R0)."""
    assert not contains((type(error),), error)


def test_a_named_error_outside_exception_is_contained() -> None:
    """A set that names the error's class or a particular base of it means the error (rule R0)."""
    assert contains((Halt,), Halt())
    assert contains((Halt,), HardHalt())
    assert not contains((HardHalt,), Halt())


def test_an_error_that_is_an_exception_too_is_an_ordinary_one() -> None:
    """An error that derives from ``Exception`` in any way is matched as ``isinstance`` does."""
    assert contains((Exception,), Mixed())
    assert contains((BaseException,), Mixed())


def test_a_class_declared_as_control_flow_is_never_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own interruption is declared as control flow."""
    monkeypatch.setattr(verdict, "_control_flow", verdict._control_flow)

    never_match(Halt)

    assert not contains((Halt, HardHalt), HardHalt())


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((Exception,), (), True),
        ((OSError,), (), True),
        ((OSError,), (ConnectionError,), False),
        ((ConnectionError,), (OSError,), False),
        ((ValueError,), (), False),
        ((), (), False),
    ],
)
def test_exclusion_goes_before_inclusion(
    include: tuple[type[BaseException], ...], exclude: tuple[type[BaseException], ...], expected: bool
) -> None:
    """abort_on goes before retry_on, skip_on before apply_on, however special the classes are."""
    assert matches(ConnectionResetError(), include, exclude) is expected


def test_an_exclusion_counts_outside_exception_too() -> None:
    """For control flow, too, a base class may be one to retry and a subclass one to abort on."""
    assert matches(Halt(), (Halt,), (HardHalt,))
    assert not matches(HardHalt(), (Halt,), (HardHalt,))
    assert not matches(HardHalt(), (HardHalt,), (Halt,))


@pytest.mark.parametrize(
    ("error", "fail_on", "skip_on", "expected"),
    [
        (OSError(), (Exception,), (), FAILURE),
        (OSError(), (Exception,), (OSError,), SUCCESS),
        (OSError(), (OSError,), (Exception,), SUCCESS),
        (OSError(), (ValueError,), (), SUCCESS),
        (OSError(), (), (), SUCCESS),
        (KeyboardInterrupt(), (BaseException,), (), NEUTRAL),
        (KeyboardInterrupt(), (), (BaseException,), NEUTRAL),
        (asyncio.CancelledError(), (Exception,), (), NEUTRAL),
        (Halt(), (Halt,), (), FAILURE),
        (HardHalt(), (Halt,), (HardHalt,), SUCCESS),
        (Halt(), (BaseException,), (), NEUTRAL),
        (ExceptionGroup("many", [OSError()]), (Exception,), (), FAILURE),
        (BaseExceptionGroup("many", [KeyboardInterrupt()]), (Exception,), (), NEUTRAL),
    ],
    ids=repr,
)
def test_the_verdict_follows_the_specification(
    error: BaseException,
    fail_on: tuple[type[BaseException], ...],
    skip_on: tuple[type[BaseException], ...],
    expected: Verdict,
) -> None:
    """skip_on, then fail_on, then success; control flow says nothing about the callee."""
    assert verdict_on(error, fail_on, skip_on) is expected
