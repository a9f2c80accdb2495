"""The kinds of values that parameters accept, for code and for the configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import Enum
from typing import Any, TypeGuard

from .._record import Record
from .unit import ChronoUnit


class Kind(Record):
    """The values that a parameter accepts.

    Args:
        name: What a text in the configuration is taken for: ``integer``, ``number``, ``duration``, ``flag``,
            ``exceptions``, ``text``, ``callable`` or ``member``.
        allowed: What is accepted, in words.
        accepts: The check.
        normalised: The form in which a value that was accepted is kept.
        configurable: What is accepted in the configuration, in words; *allowed* where it is empty.
        members: What a ``member`` is one of.
    """

    name: str
    allowed: str
    accepts: Callable[[object], bool]
    normalised: Callable[[Any], Any] = lambda value: value
    configurable: str = ""
    members: type[Enum] | None = None


def integer(minimum: int, allowed: str = "") -> Kind:
    """Accept an ``int`` that is at least *minimum*; a ``bool`` is not one."""
    return Kind(
        "integer",
        allowed or f"an integer >= {minimum}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= minimum,
    )


def number(minimum: float, maximum: float = math.inf) -> Kind:
    """Accept a finite number from *minimum* to *maximum*, both included."""
    allowed = f"a number >= {minimum}" if maximum == math.inf else f"a number from {minimum} to {maximum}"
    return Kind("number", allowed, lambda value: _is_finite(value) and minimum <= value <= maximum)


def duration(limits: str = ">= 0", note: str = "") -> Kind:
    """Accept a finite number >= 0 that counts some unit, or a ``timedelta``; *limits* and *note* say so in words."""

    def accepts(value: object) -> bool:
        if isinstance(value, timedelta):
            return value >= timedelta()
        return _is_finite(value) and value >= 0

    return Kind(
        "duration",
        f"a number {limits} or a timedelta {limits}{note}",
        accepts,
        configurable=f"a number {limits}{note}, as in 400, 400ms, 2s or PT0.4S",
    )


def unit() -> Kind:
    """Accept a member of ``ChronoUnit``."""
    return _member(ChronoUnit, "a ChronoUnit", lambda value: value if isinstance(value, ChronoUnit) else None)


def flag() -> Kind:
    """Accept a ``bool``."""
    return Kind("flag", "True or False", lambda value: isinstance(value, bool), configurable="true or false")


def exceptions() -> Kind:
    """Accept one exception class or several, and keep a tuple without repetition."""

    def accepts(value: object) -> bool:
        if isinstance(value, type):
            return issubclass(value, BaseException)
        if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple, set, frozenset)):
            return False
        return all(isinstance(member, type) and issubclass(member, BaseException) for member in value)

    def normalised(value: type[BaseException] | Iterable[type[BaseException]]) -> tuple[type[BaseException], ...]:
        return (value,) if isinstance(value, type) else tuple(dict.fromkeys(value))

    return Kind(
        "exceptions",
        "an exception class or a list, tuple or set of exception classes",
        accepts,
        normalised,
        "qualified names of exception classes, separated by commas",
    )


def choice(among: type[Enum]) -> Kind:
    """Accept a member of *among*, or its name in letters of any case, as in the configuration."""

    def member(value: object) -> Enum | None:
        if isinstance(value, among):
            return value
        return among.__members__.get(value.upper()) if isinstance(value, str) else None

    names = ", ".join(repr(name.lower()) for name in among.__members__)
    return _member(among, f"a {among.__name__}, or one of {names}", member)


def _member(among: type[Enum], allowed: str, member: Callable[[object], Enum | None]) -> Kind:
    configurable = f"one of {', '.join(among.__members__)}"
    return Kind("member", allowed, lambda value: member(value) is not None, member, configurable, among)


def text(allowed: str, accepts: Callable[[str], bool]) -> Kind:
    """Accept a name of the application that *accepts* takes."""
    return Kind("text", allowed, lambda value: isinstance(value, str) and accepts(value))


def function(allowed: str, *, is_optional: bool = True) -> Kind:
    """Accept a callable of the application, or ``None`` where it *is_optional*."""
    return Kind(
        "callable",
        allowed,
        lambda value: callable(value) or (value is None and is_optional),
        configurable=f"the qualified name of {allowed}",
    )


def _is_finite(value: object) -> TypeGuard[float]:
    """Whether *value* is a number that a ``float`` can stand for."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
