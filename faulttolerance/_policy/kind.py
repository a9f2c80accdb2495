"""The kinds of values that parameters accept, for code and for the configuration."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from functools import partial
from operator import le, lt
from typing import Any, Final, TypeGuard

from .._cause import CausedBy
from .._parameters import accepts_arguments, signature_of
from .._record import Record
from .._shown import shown
from ..typing import ExceptionSet
from .unit import ChronoUnit, member, parse_duration


class Kind(Record):
    """The values that a parameter accepts.

    Args:
        name: The type of a text in the configuration: ``integer``, ``number``, ``duration``, ``flag``, ``exceptions``,
            ``text``, ``word``, ``callable``, ``key`` or ``member``.
        allowed: The accepted values, in words.
        accepts: The check.
        normalised: Converts an accepted value to the form in which it is stored: a member of an enumeration that is a
            text or a number to that, because messages and keys would contain its name.
        configurable: The values that the configuration accepts, in words; *allowed* if it is empty.
        reason: Returns the reason for a rejection, if it says more than *allowed*.
        unit: The parameter with the unit of a duration that is a number; milliseconds if it is empty.
        plausible: The shortest duration, in seconds, that is plausible as a bare number of milliseconds.
        is_configurable: Whether configuration keys reach the parameter.
    """

    name: str
    allowed: str
    accepts: Callable[[object], bool]
    normalised: Callable[[Any], Any] = lambda value: value
    configurable: str = ""
    reason: Callable[[object], str] = lambda value: ""
    unit: str = ""
    plausible: float = 0.0
    is_configurable: bool = True

    def looks_like_seconds(self, value: Any, unit: ChronoUnit = ChronoUnit.MILLIS) -> bool:
        """Return whether *value* is a bare number of milliseconds that is so small that seconds were probably meant."""
        if not self.plausible or unit is not ChronoUnit.MILLIS or type(value) not in (int, float, str):
            return False
        try:  # only text of numbers is parsed: each call creates a block with a deadline
            return 0 < float(value) < self.plausible * 1000 and self.accepts(value)
        except (ValueError, OverflowError):
            return False

    def problem(self, value: object) -> str:
        """Return the words of a message that *value* is not accepted."""
        return ", ".join(filter(None, (f"is {shown(value)}", self.reason(value))))


def integer(minimum: int, allowed: str = "", *, maximum: float = math.inf) -> Kind:
    """Accept an ``int`` from *minimum* to *maximum*, both included; a ``bool`` is no ``int``."""
    limits = f">= {minimum}" if maximum == math.inf else f"from {minimum} to {maximum}"
    return Kind(
        "integer",
        allowed or f"an integer {limits}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum,
        int,
    )


def rate() -> Kind:
    """Accept the number of calls that are admitted in a window, without the window."""

    def reason(value: object) -> str:
        rates = r"(\d+) ?(?:/|per) ?([smhd]|second|minute|hour|day)"
        parts = re.fullmatch(rates, value) if isinstance(value, str) else None
        return f"perhaps {parts[1]}, '1{parts[2][0]}' is meant" if parts else ""

    return integer(1).__replace__(reason=reason)


def number(minimum: float, maximum: float = math.inf, *, or_zero: bool = False) -> Kind:
    """Accept a finite number from *minimum* to *maximum*, both included, and, with *or_zero*, 0."""
    allowed = f"a number >= {minimum}" if maximum == math.inf else f"a number from {minimum} to {maximum}"
    return Kind(
        "number",
        f"{allowed}, or 0" if or_zero else allowed,
        lambda value: _is_finite(value) and (minimum <= value <= maximum or (or_zero and value == 0)),
        lambda value: int(value) if isinstance(value, int) else float(value),
    )


def kinds(**of_fields: Kind) -> Mapping[str, Kind]:
    """Return the table of the accepted values of each field."""
    return of_fields


SHORT: Final = 0.01
BRIEF: Final = 0.1
"""The shortest durations, in seconds, that are plausible as bare milliseconds: of one wait, and of a longer time."""


def duration(limits: str = ">= 0", note: str = "", unit: str = "", plausible: float = 0.001) -> Kind:
    """Accept a finite number of some unit, a ``timedelta``, or text (rule M1), within *limits*, in milliseconds.

    *limits* are a sign and a number, which is 0 if a number counts another unit, and *note* more words about the
    accepted values. *unit* is the parameter with the unit of a number; without one, numbers count milliseconds. A bare
    number of milliseconds below *plausible* seconds causes a warning.
    """
    sign, least = limits.split()
    is_above = partial({">": lt, ">=": le}[sign], float(least))

    def accepts(value: object) -> bool:
        try:
            value = read(value)
        except ValueError:
            return False
        if isinstance(value, timedelta):
            value /= timedelta(milliseconds=1)
        return _is_finite(value) and is_above(value)

    def read(value: Any) -> Any:
        return parse_duration(str.__str__(value)) if isinstance(value, str) else value

    def reason(value: object) -> str:
        try:
            read(value)
        except ValueError as error:
            return str(error)
        return ""

    return Kind(
        "duration",
        f"a duration {limits}{note}, as in 1500, '1500ms', '1.5s', 'PT1.5S' or a timedelta",
        accepts,
        read,
        f"a duration {limits}{note}, as in 1500, 1500ms, 1.5s or PT1.5S",
        reason=reason,
        unit=unit,
        plausible=plausible,
    )


def exceptions() -> Kind:
    """Accept one exception class, or ``caused_by``, or several, and store a tuple without repetition."""

    def is_member(value: object) -> bool:
        return isinstance(value, CausedBy) or (isinstance(value, type) and issubclass(value, BaseException))

    def accepts(value: object) -> bool:
        return is_member(value) or (isinstance(value, (list, tuple, set, frozenset)) and all(map(is_member, value)))

    def normalised(value: ExceptionSet) -> tuple[type[BaseException] | CausedBy, ...]:
        return (value,) if isinstance(value, (type, CausedBy)) else tuple(dict.fromkeys(value))

    return Kind(
        "exceptions",
        "an exception class, caused_by(...), or a list, tuple or set of these",
        accepts,
        normalised,
        "qualified names of exception classes, or caused_by(name), separated by commas",
    )


def word(*words: str) -> Kind:
    """Accept one of *words*, in upper or lower case."""
    return Kind(
        "word",
        f"one of {', '.join(map(repr, words))}",
        lambda value: isinstance(value, str) and value.lower() in words,
        str.lower,
        f"one of {', '.join(words)}",
    )


def choice(among: type[Enum]) -> Kind:
    """Accept a member of *among*, or its name in upper or lower case, as in the configuration."""
    names = ", ".join(repr(name.lower()) for name in among.__members__)
    return Kind(
        "member",
        f"a {among.__name__}, or one of {names}",
        lambda value: member(among, value) is not None,
        partial(member, among),
        f"one of {', '.join(among.__members__)}",
    )


def text(allowed: str, accepts: Callable[[str], bool], *, is_configurable: bool = True) -> Kind:
    """Accept a name of the application for which *accepts* is true."""
    return Kind(
        "text",
        allowed,
        lambda value: isinstance(value, str) and accepts(value),
        str.__str__,
        is_configurable=is_configurable,
    )


def function(allowed: str, *, is_optional: bool = True, arguments: int = 1) -> Kind:
    """Accept a callable of the application for so many *arguments*, or ``None`` if it *is_optional*.

    An exception class is none: it can be called, and its answer is always true.
    """
    is_exception_set = exceptions().accepts

    def accepts(value: object) -> bool:
        fits = callable(value) and not is_exception_set(value) and accepts_arguments(value, arguments)
        return fits or (value is None and is_optional)

    def reason(value: object) -> str:
        if is_exception_set(value):
            return "but exception classes belong to retry_on and fail_on"
        return f"whose parameters are {signature_of(value)}" if callable(value) else ""

    return Kind("callable", allowed, accepts, configurable=f"the qualified name of {allowed}", reason=reason)


def handlers(allowed: str) -> Kind:
    """Accept a callable in place of the function, a method's name, several of these, or ``None``."""

    def is_one(value: object) -> bool:
        is_function = callable(value) and getattr(value, "makes_handlers", False) is not True
        return is_function or (isinstance(value, str) and value.isidentifier())

    def accepts(value: object) -> bool:
        return value is None or is_one(value) or (isinstance(value, (list, tuple)) and all(map(is_one, value)))

    return Kind("handlers", allowed, accepts, _with_plain_texts, f"the qualified name of {allowed}; several by commas")


def key(*, is_optional: bool = True) -> Kind:
    """Accept the key of calls: a callable, names of parameters, or ``None`` if it *is_optional*."""

    def accepts(value: object) -> bool:
        if value is None:
            return is_optional
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)):
            return callable(value)
        return bool(names) and all(isinstance(name, str) and name.isidentifier() for name in names)

    return Kind(
        "key",
        f"a callable, the name of a parameter or several names{' or None' if is_optional else ''}",
        accepts,
        _with_plain_texts,
        "names of parameters, separated by commas, or the qualified name of a callable",
    )


def _with_plain_texts(value: Any) -> Any:
    """Return *value*, or a tuple of several, with the texts in place of the members of enumerations."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_with_plain_texts, value))
    return str.__str__(value) if isinstance(value, str) else value


def _is_finite(value: object) -> TypeGuard[float]:
    """Return whether *value* is a number that a ``float`` can represent."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


KINDS_BY_ANNOTATION: Final[Mapping[str, Kind]] = {
    "Duration": duration(),
    "ExceptionSet": exceptions(),
    "Predicate[Any] | None": function("a predicate or None"),
    "Predicate[BaseException] | None": function("a predicate or None"),
    "Unit": choice(ChronoUnit),
    "bool": Kind("flag", "True or False", lambda value: isinstance(value, bool), configurable="true or false"),
    "int": integer(1),
}
"""The kinds of fields for which the annotation says it all; a whole number is a count, of at least 1."""
