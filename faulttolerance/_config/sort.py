"""What sort of text stands for a parameter, and how that is told to users. Needs no pydantic."""

from __future__ import annotations

import re
from enum import Enum
from typing import get_type_hints

from .._policy import ChronoUnit, Parameter, Policy

__all__ = ["allowed", "sort_of"]

_TIMEDELTA = re.compile(r" or a timedelta [<>=]+ 0")


def sort_of(policy: type[Policy], parameter: Parameter) -> str | type[Enum]:
    """``integer``, ``ratio``, ``duration``, ``flag``, ``exceptions``, ``text``, ``callable``, or an enumeration."""
    if parameter.kind.name == "unit":
        return ChronoUnit
    if parameter.kind.name == "choice":
        return type(parameter.default)
    if parameter.kind.name != "reference":
        return parameter.kind.name
    return "text" if get_type_hints(policy)[parameter.name] is str else "callable"


def allowed(policy: type[Policy], parameter: Parameter) -> str:
    """What may be configured, in words."""
    match sort_of(policy, parameter):
        case "duration":
            return f"{_TIMEDELTA.sub('', parameter.kind.allowed)}, as in 400, 400ms, 2s or PT0.4S"
        case "flag":
            return "true or false"
        case "exceptions":
            return "qualified names of exception classes, separated by commas"
        case "callable":
            return f"the qualified name of {parameter.kind.allowed}"
        case kind if isinstance(kind, type):
            return f"one of {', '.join(kind.__members__)}"
        case _:
            return parameter.kind.allowed
