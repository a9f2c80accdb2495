"""What a parameter of an annotation accepts, written once for decorators, values and configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias
from weakref import WeakValueDictionary

from .._record import Record
from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from .unit import ChronoUnit

__all__ = [
    "DEFAULT_PLACE",
    "Contradiction",
    "Kind",
    "Parameter",
    "Policy",
    "choice",
    "duration",
    "exceptions",
    "flag",
    "integer",
    "ratio",
    "reference",
    "shared",
    "unit",
]


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""The default of a parameter that must be given."""


class Kind(Record):
    """A sort of value: the check, the words for what passes it, and the form in which it is kept."""

    name: str
    allowed: str
    accepts: Callable[[object], bool]
    normalised: Callable[[Any], Any] = lambda value: value


Contradiction: TypeAlias = tuple[str, str, str, tuple[str, ...]]
"""A parameter, what is wrong with it, what is allowed, and the other parameters that are part of it."""

DEFAULT_PLACE: Final = "the default"
"""Where a value comes from that nobody set."""


class Parameter:
    """One parameter of one annotation."""

    __slots__ = ("default", "kind", "name")

    def __init__(self, kind: Kind, default: Any) -> None:
        self.kind = kind
        self.default = default

    def __set_name__(self, policy: type[Policy], name: str) -> None:
        self.name = name

    @property
    def key(self) -> str:
        """The specification's spelling, as in ``Retry/maxRetries``."""
        head, *rest = self.name.split("_")
        return head + "".join(word.title() for word in rest)


def integer(minimum: int, allowed: str = "") -> Kind:
    """An ``int`` that is at least *minimum*; a ``bool`` is not one."""
    return Kind(
        "integer",
        allowed or f"an integer >= {minimum}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= minimum,
    )


def ratio() -> Kind:
    """A number from 0 to 1, both included."""
    return Kind("ratio", "a number from 0.0 to 1.0", lambda value: _is_number(value) and 0 <= value <= 1)  # type: ignore[operator]


def duration(allowed: str = "a number >= 0 or a timedelta >= 0") -> Kind:
    """A number that counts some unit, or a ``timedelta``; finite, not negative."""

    def accepts(value: object) -> bool:
        if isinstance(value, timedelta):
            return value >= timedelta()
        return _is_number(value) and 0 <= value < math.inf  # type: ignore[operator]

    return Kind("duration", allowed, accepts)


def unit() -> Kind:
    """A member of ``ChronoUnit``."""
    return Kind("unit", "a ChronoUnit", lambda value: isinstance(value, ChronoUnit))


def flag() -> Kind:
    """A ``bool``."""
    return Kind("flag", "True or False", lambda value: isinstance(value, bool))


def exceptions() -> Kind:
    """One exception class or an iterable of them; kept as a tuple without repetition."""

    def accepts(value: object) -> bool:
        if isinstance(value, type):
            return issubclass(value, BaseException)
        if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple, set, frozenset)):
            return False
        return all(isinstance(one, type) and issubclass(one, BaseException) for one in value)

    def normalised(value: type[BaseException] | Iterable[type[BaseException]]) -> tuple[type[BaseException], ...]:
        return (value,) if isinstance(value, type) else tuple(dict.fromkeys(value))

    return Kind("exceptions", "an exception class or a list, tuple or set of exception classes", accepts, normalised)


def choice(among: type[Enum]) -> Kind:
    """A member of *among*, or its name in letters of any case, as in the configuration."""

    def member(value: object) -> Enum | None:
        if isinstance(value, among):
            return value
        return among.__members__.get(value.upper()) if isinstance(value, str) else None

    names = ", ".join(repr(name.lower()) for name in among.__members__)
    return Kind("choice", f"a {among.__name__}, or one of {names}", lambda value: member(value) is not None, member)


def reference(allowed: str, accepts: Callable[[object], bool]) -> Kind:
    """A name or a callable; *accepts* decides."""
    return Kind("reference", allowed, accepts)


def _is_number(value: object) -> bool:
    """Whether *value* is a number that a ``float`` can stand for."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
    except OverflowError:
        return False


def parameter(kind: Kind, default: Any = MISSING) -> Any:
    """A field of a policy."""
    return Parameter(kind, default)


class Policy(Record):
    """What was asked for by one annotation: frozen values, checked when they are made.

    The fields of a subclass are made by ``parameter``.
    """

    annotation: ClassVar[str]
    """The name in messages and configuration keys, as in ``Retry/maxRetries``."""

    _parameters: ClassVar[Mapping[str, Parameter]]

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        cls._parameters = {name: value for name, value in vars(cls).items() if isinstance(value, Parameter)}
        for name, one in cls._parameters.items():
            if one.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.kind.normalised(one.default))
        super().__init_subclass__(kw_only=kw_only)

    @classmethod
    def _kept(cls, values: dict[str, Any]) -> dict[str, Any]:
        if faults := check(cls, values, f"@{cls.annotation}"):
            raise FaultToleranceDefinitionException(*faults)
        kept = {name: one.kind.normalised(values[name]) for name, one in parameters(cls).items()}
        # There is one per guarded method, and most of it is as it is by default.
        return {name: value for name, value in kept.items() if not cls._is_default(name, value)}

    @classmethod
    def _is_default(cls, name: str, value: object) -> bool:
        default = cls._defaults.get(name, MISSING)
        return type(value) is type(default) and bool(value == default)

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Faults across parameters that are each fine."""
        return ()


def parameters(policy: type[Policy]) -> Mapping[str, Parameter]:
    """The parameters of *policy* by name, in the order in which they are declared."""
    return policy._parameters


_alike: WeakValueDictionary[tuple[object, ...], Policy] = WeakValueDictionary()


def shared(policy: Policy) -> Policy:
    """The one that stands for all policies with the values of *policy*: most methods are guarded as others are.

    Those that name something of the application are left alone: each method mostly has its own, and it would be kept.
    """
    if any(one.kind.name == "reference" for one in policy._parameters.values()):
        return policy
    values = policy._values()
    sets = (value for value in values if isinstance(value, tuple))
    if any(getattr(one, "__module__", "") != "builtins" for value in sets for one in value):
        return policy
    return _alike.setdefault((type(policy), *values, *map(type, values)), policy)  # 1 and 1.0 are shown as written


def check(
    policy: type[Policy],
    values: Mapping[str, Any],
    where: str,
    located: Callable[[str], tuple[str, str]] | None = None,
) -> list[Fault]:
    """Everything that is wrong with *values* for *policy*.

    *where* names the guarded function and the annotation, as in ``acme.Client.charge @Retry``. *located* gives, for a
    parameter, the place and the source to name instead: a value that came from the configuration is reported there,
    and where others are part of what is wrong, they are named with theirs.
    """

    def fault(name: str, problem: str, allowed: str, others: tuple[str, ...] = ()) -> Fault:
        place, source = located(name) if located else (f"{where}({name})", "set by the decorator")
        if located:
            parts = [(other, *located(other)) for other in others]
            source += "".join(f"; {other}: {at}, {by}" for other, at, by in parts if by != DEFAULT_PLACE)
        return Fault(place, problem, values[name], allowed, source)

    faults = [
        fault(name, f"is {shown(values[name])}", one.kind.allowed)
        for name, one in parameters(policy).items()
        if not one.kind.accepts(values[name])
    ]
    return faults or [fault(*contradiction) for contradiction in policy.contradictions(values)]
