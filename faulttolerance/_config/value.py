"""The parsing of configured values by the kinds of the parameters."""

from __future__ import annotations

import builtins
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from .._cause import caused_by
from .._policy import DEFAULT_PLACE, Kind, Policy, check, parameters
from .._shown import brief, did_you_mean, ends_the_caller, error_text
from ..exceptions import Fault
from .source import FLAG, Entry

_CAUSED_BY = re.compile(r"(?:faulttolerance\.)?caused_by\s*\(([^()]*)\)")
_BETWEEN_MEMBERS = re.compile(r",(?![^()]*\))")


class _UnknownNameError(ValueError):
    """A value names an object that does not exist; the text is the problem."""


def validated(
    policy: Policy, where: str, settings: Mapping[str, tuple[str, Entry]], origins: Mapping[str, str]
) -> tuple[dict[str, Any], list[Fault]]:
    """Parse *settings*, the key and entry of some parameters of *policy*; return the values of all, and the faults.

    *where* names the guard, and *origins* the sources of the values in *policy*.
    """
    values = {name: getattr(policy, name) for name in parameters(policy)}
    faults: list[Fault] = []
    for name, (key, entry) in settings.items():
        parameter = parameters(policy)[name]
        try:
            values[name] = _parsed(parameter.kind, entry.value)
        except (ValueError, OverflowError) as error:
            problem = str(error) if isinstance(error, _UnknownNameError) else parameter.kind.problem(entry.value)
            faults.append(Fault(key, problem, entry.value, parameter.configurable, entry.place))

    def located(name: str) -> tuple[str, str]:
        if name in settings:
            key, entry = settings[name]
            return key, entry.place
        origin = DEFAULT_PLACE if origins[name] == "default" else "set by the decorator"
        return f"{where} @{policy.annotation}({name})", origin

    return values, faults or check(type(policy), values, where, located)


def _parsed(kind: Kind, value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        value = tuple(value)  # libraries of configuration have list types of their own
    if kind.name in _PARSERS:
        value = _PARSERS[kind.name](value)
    if not kind.accepts(value):
        raise ValueError
    return kind.normalised(value)


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, str) or (isinstance(value, float) and value.is_integer()) else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else value


def _flag(value: Any) -> Any:
    return FLAG.get(value.strip().lower()) if isinstance(value, str) else value


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _exceptions(value: Any) -> Any:
    if isinstance(value, str):
        value = tuple(name.strip() for name in _BETWEEN_MEMBERS.split(value)) if value.strip() else ()
    if isinstance(value, (tuple, set, frozenset)):
        return tuple(_set_member(member) if isinstance(member, str) else member for member in value)
    return value


def _set_member(text: str) -> Any:
    """Return the meaning of a member of an exception set: a class by its name, or ``caused_by`` of several."""
    if match := _CAUSED_BY.fullmatch(text.strip()):
        return caused_by(*(_named(name.strip()) for name in match[1].split(",")))
    return _named(text)


def _key(value: Any) -> Any:
    """Return a callable for a name with a dot or colon, else the names of parameters."""
    if not isinstance(value, str) or "." in value or ":" in value:
        return _callable(value)
    names = tuple(name.strip() for name in value.split(",")) if value.strip() else ()
    return names[0] if len(names) == 1 else names or None


def _handlers(value: Any) -> Any:
    """Return a callable for one name; of several names, identifiers that are no built-ins stay names of methods."""
    if isinstance(value, str) and "," in value:
        value = tuple(map(str.strip, value.split(",")))
    if not isinstance(value, tuple):
        return _callable(value)
    return tuple(one if not isinstance(one, str) or _is_of_method(one) else _named(one) for one in value)


def _is_of_method(name: str) -> bool:
    return name.isidentifier() and not hasattr(builtins, name)


def _callable(value: Any) -> Any:
    if isinstance(value, str):
        return _named(value.strip()) if value.strip() else None
    return value


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "integer": _integer,
    "number": _number,
    "flag": _flag,
    "text": _stripped,
    "word": _stripped,
    "member": _stripped,
    "exceptions": _exceptions,
    "callable": _callable,
    "handlers": _handlers,
    "key": _key,
}
"""The functions that parse values, by the names of their kinds; a duration parses its own text."""


def _named(name: str) -> Any:
    """Return the object of a qualified name, after importing its module; a built-in needs no module."""
    if name.isidentifier():
        if hasattr(builtins, name):
            return getattr(builtins, name)
        near = did_you_mean(name, (one for one in dir(builtins) if callable(getattr(builtins, one))))
        raise _UnknownNameError(f"names {brief(name)}, which is not a built-in{near}")
    if not name:
        raise _UnknownNameError("has an empty name")
    path = name.replace(":", ".").rpartition(".")[0]
    try:
        try:
            return pkgutil.resolve_name(name)
        except AttributeError:
            import_module(path)  # a module that fails with an ImportError seems absent to resolve_name()
    except BaseException as error:
        # An imported module may raise anything, even SystemExit, as a script does with sys.exit().
        if ends_the_caller(error):
            raise
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent in (None, path.partition(".")[0]) or not f"{path}.".startswith(f"{absent}."):
            problem = f"names {brief(name)}, which cannot be imported ({error_text(error)})"
            raise _UnknownNameError(problem) from None
    raise _UnknownNameError(f"names {brief(name)}, which does not exist")
