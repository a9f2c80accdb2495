"""The parameters of annotations, written once for decorators, values and configuration."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeAlias

from .._record import Record
from .._shown import class_name_for_code, shown
from ..exceptions import Fault, MillisecondsWarning, raise_faults
from .kind import KINDS_BY_ANNOTATION, Kind
from .unit import ChronoUnit, format_duration


class MISSING:
    """The default of a parameter that must be passed."""


Contradiction: TypeAlias = tuple[str, str, str, tuple[str, ...]]
"""A parameter, the problem with it, the allowed values, and the other parameters that are part of the problem."""

DEFAULT_PLACE: Final = "the default"
"""The source of a value that was never set."""


class Parameter:
    """One parameter of one annotation."""

    def __init__(self, name: str, kind: Kind, default: Any) -> None:
        self.name = name
        self.kind = kind
        self.default = default

    @property
    def key(self) -> str:
        """The specification's spelling, as in ``Retry/maxRetries``."""
        head, *rest = self.name.split("_")
        return head + "".join(word.title() for word in rest)

    def formatted_value(self, policy: Policy) -> Any:
        """Return the value in *policy*, a duration as text with its unit."""
        value = getattr(policy, self.name)
        if self.kind.name != "duration":
            return value
        return format_duration(value, getattr(policy, self.kind.unit) if self.kind.unit else ChronoUnit.MILLIS)

    @property
    def has_default(self) -> bool:
        """Whether the parameter may be omitted."""
        return self.default is not MISSING

    @property
    def configurable(self) -> str:
        """The words for the values that the configuration accepts."""
        return self.kind.configurable or self.kind.allowed


class Values(Record):
    """The values that configuration keys can reach, frozen, and checked at their creation."""

    annotation: ClassVar[str]
    """The name in messages and configuration keys, as in ``Retry/maxRetries``: the name of the class."""

    where: ClassVar[str]
    """The name in messages about values, as in ``@Retry``."""

    is_configurable: ClassVar[bool]
    """Whether configuration keys reach it."""

    is_observable: ClassVar[bool]
    """Whether it can be observed before it is enforced (rule X7)."""

    permission: ClassVar[str] = ""
    """The environment variable that must be ``true`` if keys declare the policy; empty if there is none."""

    is_active: ClassVar[bool] = True
    """Whether the policy has an effect with these values."""

    _kinds: ClassVar[Mapping[str, Kind]] = {}
    """The values that a field accepts, unless its annotation says it all; see ``KINDS_BY_ANNOTATION``.

    They are not part of the fields, whose defaults editors show.
    """

    _parameters: ClassVar[dict[str, Parameter]]

    def __init_subclass__(
        cls, *, kw_only: bool = False, is_configurable: bool = True, is_observable: bool = False
    ) -> None:
        cls.annotation = cls.__name__
        cls.where = f"@{cls.annotation}"
        cls.is_configurable = is_configurable
        cls.is_observable = is_observable
        super().__init_subclass__(kw_only=kw_only)
        cls._parameters = {}
        for name, annotation in cls._fields.items():
            kind = cls._kinds.get(name) or KINDS_BY_ANNOTATION[annotation]
            if name in cls._defaults:
                cls._defaults[name] = kind.normalised(cls._defaults[name])
                setattr(cls, name, cls._defaults[name])
            cls._parameters[name] = Parameter(name, kind, cls._defaults.get(name, MISSING))

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        warn_of_bare_numbers(type(self), args, named)

    @classmethod
    def _kept(cls, values: dict[str, Any]) -> dict[str, Any]:
        raise_faults(check(cls, values, cls.where))
        kept = {name: parameter.kind.normalised(values[name]) for name, parameter in parameters(cls).items()}
        # There is one object per guarded method, and most of its values are defaults.
        return {name: value for name, value in kept.items() if not cls._is_default(name, value)}

    @classmethod
    def _refuse(cls, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        from .foreign_names import refuse_unknown

        refuse_unknown(cls, named)
        super()._refuse(args, named)

    @classmethod
    def _is_default(cls, name: str, value: object) -> bool:
        default = cls._defaults.get(name, MISSING)
        return type(value) is type(default) and bool(value == default)

    def __repr__(self) -> str:
        return call_source(self.annotation, type(self), {name: getattr(self, name) for name in self._parameters})

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Yield the contradictions between parameters that are each valid."""
        return ()


class Policy(Values):
    """The values of one annotation, which can be declared."""


def warn_of_bare_numbers(policy: type[Values], args: Iterable[Any], named: Mapping[str, Any]) -> None:
    """Warn, at the application's line, of durations of *policy* that are bare numbers and look like seconds."""
    given = {**dict(zip(policy.__match_args__, args, strict=False)), **named}
    for name, value in given.items():
        parameter = policy._parameters.get(name)
        if parameter is None or not parameter.kind.plausible or parameter.kind.unit in given:
            continue
        if parameter.kind.looks_like_seconds(value, policy._defaults.get(parameter.kind.unit, ChronoUnit.MILLIS)):
            level, frame = 1, sys._getframe()
            while (
                frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "faulttolerance"
            ):
                level, frame = level + 1, frame.f_back
            warnings.warn(f"{policy.where}({name}) {in_milliseconds(value)}", MillisecondsWarning, level)


def in_milliseconds(value: object) -> str:
    """Return the words of a warning that *value*, a bare number, counts milliseconds."""
    return (
        f"is {value}: a bare number counts milliseconds; write '{value}s' if seconds are meant, or '{value}ms' if"
        " milliseconds are"
    )


def parameters(policy: Values | type[Values]) -> Mapping[str, Parameter]:
    """Return the parameters of *policy* by name, in the order of their declaration."""
    return policy._parameters


def call_source(name: str, kind: type[Values], values: Mapping[str, Any]) -> str:
    """Return the text of a call of *name* with *values*, some of which may be wrong, without the defaults."""
    arguments = []
    for one in kind._parameters.values():
        value = one.kind.normalised(values[one.name]) if one.kind.accepts(values[one.name]) else values[one.name]
        if not kind._is_default(one.name, value):
            arguments.append(f"{one.name}={_source_of(value)}")
    return f"{name}({', '.join(arguments)})"


def _source_of(value: Any) -> str:
    """Return *value* as source text, with the names that an application has for it."""
    if isinstance(value, timedelta):
        return repr(format_duration(value)) if value >= timedelta() else repr(value)
    if isinstance(value, tuple):
        return _source_of(value[0]) if len(value) == 1 else f"({', '.join(map(_source_of, value))})"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return shown(value)
    return class_name_for_code(value)


def check(
    policy: type[Values],
    values: Mapping[str, Any],
    where: str,
    located: Callable[[str], tuple[str, str]] | None = None,
) -> list[Fault]:
    """Return all faults of *values* for *policy*.

    Args:
        policy: The kind of the policy.
        values: The values of its parameters.
        where: The names of the guarded function and the annotation, as in ``acme.Client.charge @Retry``.
        located: Returns the place and the source of a parameter for the message: a value from the configuration is
            reported there. If other parameters are part of the fault, they are named with theirs.
    """

    def fault(name: str, problem: str, allowed: str, others: tuple[str, ...] = ()) -> Fault:
        place, source = located(name) if located else (f"{where}({name})", "set by the decorator")
        if located:
            parts = [(other, *located(other)) for other in others]
            source += "".join(f"; {other}: {at}, {by}" for other, at, by in parts if by != DEFAULT_PLACE)
        return Fault(place, problem, values[name], allowed, source)

    faults = [
        fault(name, parameter.kind.problem(values[name]), parameter.kind.allowed)
        for name, parameter in parameters(policy).items()
        if not parameter.kind.accepts(values[name])
    ]
    return faults or [fault(*contradiction) for contradiction in policy.contradictions(values)]
