"""The parsing of configured values: pydantic models built from the parameters of the policies."""

from __future__ import annotations

import builtins
import difflib
import pkgutil
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError, create_model
from pydantic_core import PydanticCustomError

from .._cause import caused_by
from .._policy import Kind, Policy, parameters
from .._shown import brief, ends_the_caller, error_text, escaped
from ..exceptions import Fault
from .source import Entry, flag

_PROBLEM = "faulttolerance"
_CAUSED_BY = re.compile(r"(?:faulttolerance\.)?caused_by\s*\(([^()]*)\)")
_BETWEEN_MEMBERS = re.compile(r",(?![^()]*\))")


def validated(policy: type[Policy], settings: Mapping[str, tuple[str, Entry]]) -> tuple[dict[str, Any], list[Fault]]:
    """Parse the values of some parameters, each with its key and entry; return the values, or the faults."""
    try:
        model = _model(policy).model_validate(  # type: ignore[arg-type]  # mypy hashes a class as its instance
            {name: entry.value for name, (_, entry) in settings.items()}
        )
    except ValidationError as error:
        faults = {}
        for problem in error.errors():
            name = str(problem["loc"][0])
            key, entry = settings[name]
            parameter = parameters(policy)[name]
            words = problem["msg"] if problem["type"] == _PROBLEM else parameter.kind.problem(entry.value)
            faults[name] = Fault(key, words, entry.value, parameter.configurable, entry.place)
        return {}, list(faults.values())
    return {name: getattr(model, name) for name in settings}, []


@cache
def _model(policy: type[Policy]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        name: (Annotated[_type_of(parameter.kind), AfterValidator(_within(parameter.kind))], None)
        for name, parameter in parameters(policy).items()
    }
    return create_model(policy.__name__, **fields)


def _type_of(kind: Kind) -> Any:
    return _TYPES.get(kind.name) or Annotated[Any, BeforeValidator(partial(_member, kind.members))]


def _within(kind: Kind) -> Callable[[Any], Any]:
    def within(value: Any) -> Any:
        if not kind.accepts(value):
            raise ValueError(kind.allowed)
        return kind.normalised(value)

    return within


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError
    return _stripped(value)


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _member(kind: Any, value: Any) -> Any:
    return kind.__members__.get(value.strip().upper(), value) if isinstance(value, str) else value


def _exceptions(value: Any) -> Any:
    if isinstance(value, str):
        value = [name.strip() for name in _BETWEEN_MEMBERS.split(value)] if value.strip() else []
    if isinstance(value, (list, tuple, set, frozenset)):
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
    if not isinstance(value, str) or "," not in value:
        return _callable(value)
    names = [name.strip() for name in value.split(",")]
    return tuple(name if name.isidentifier() and not hasattr(builtins, name) else _named(name) for name in names)


def _callable(value: Any) -> Any:
    if isinstance(value, str):
        return _named(value.strip()) if value.strip() else None
    return value


_TYPES: Mapping[str, Any] = {
    "integer": Annotated[int, BeforeValidator(_no_bool)],
    "number": Annotated[float, BeforeValidator(_no_bool)],
    "flag": Annotated[bool, BeforeValidator(flag)],
    "text": Annotated[str, BeforeValidator(_stripped)],
    "duration": Any,
    "word": Annotated[str, BeforeValidator(_stripped)],
    "exceptions": Annotated[Any, BeforeValidator(_exceptions)],
    "callable": Annotated[Any, BeforeValidator(_callable)],
    "handlers": Annotated[Any, BeforeValidator(_handlers)],
    "key": Annotated[Any, BeforeValidator(_key)],
}
"""The types of values for pydantic, by the names of their kinds; that of a ``member`` depends on its enumeration."""


def _named(name: str) -> Any:
    """Return the object of a qualified name, after importing its module; a built-in needs no module."""
    if name.isidentifier():
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise _unknown(name, "is not a built-in", difflib.get_close_matches(name, dir(builtins), 1))
    try:
        return pkgutil.resolve_name(name)
    except AttributeError:
        raise _unknown(name, "does not exist", _neighbours(name)) from None
    except BaseException as error:
        # An imported module may raise anything, even SystemExit, as a script does with sys.exit().
        if ends_the_caller(error):
            raise
        raise _unknown(name, f"cannot be imported ({error_text(error)})", []) from None


def _neighbours(name: str) -> list[str]:
    path, _, last = name.replace(":", ".").rpartition(".")
    try:
        siblings = dir(pkgutil.resolve_name(path))
    except Exception:  # noqa: BLE001 - a suggestion is a courtesy
        return []
    return [f"{path}.{sibling}" for sibling in difflib.get_close_matches(last, siblings, 1)]


def _unknown(name: str, problem: str, nearest: list[str]) -> PydanticCustomError:
    hint = f"; did you mean {escaped(nearest[0])}?" if nearest else ""
    name = brief(escaped(name))  # pydantic rejects surrogates, which stand for undecodable bytes
    return PydanticCustomError(
        _PROBLEM, "names {name}, which {problem}{hint}", {"name": name, "problem": problem, "hint": hint}
    )
