"""Lists of every key that can be set, and template files to fill in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .._policy import parameters
from .formatting import formatted
from .key import ENABLED, MODE, SWITCHES, Declared, Key, parameter_keys, switch_key
from .resolution import Effective, Switches
from .settings import settings

_SEVERAL = "(several)"


class KeyLine(NamedTuple):
    """One key, and the values of all guards that it reaches.

    Args:
        key: The key.
        allowed: The allowed values, in words.
        example: A valid text, for use if the guards differ.
        value: The value in force.
        default: The declared value.
    """

    key: Key
    allowed: str
    example: str
    value: str
    default: str


def key_lines(resolved: Iterable[tuple[Declared, Effective]]) -> list[KeyLine]:
    """Return a line for every key, the global keys last."""
    found: dict[str, KeyLine] = {}

    def add(key: Key, allowed: str, value: object, default: object, example: object) -> None:
        line = KeyLine(key, allowed, formatted(example), formatted(value), formatted(default))
        known = found.setdefault(key.name, line)
        if known.value != line.value:
            known = known._replace(value=_SEVERAL)
        found[key.name] = known if known.default == line.default else known._replace(default=_SEVERAL)

    for declared, effective in resolved:
        for name, one in parameters(declared.policy).items():
            for key in parameter_keys(declared, name):
                value, default = getattr(effective.policy, name), getattr(declared.policy, name)
                add(key, one.configurable, value, default, one.default if one.has_default else default)
        for key in parameter_keys(declared, ENABLED):
            add(key, "true or false", effective.enabled, True, True)
        for key in parameter_keys(declared, MODE):
            add(key, "enforce or observe", effective.mode, "enforce", "enforce")
    # Another check reports at the end what cannot be read, with all other faults.
    switches = settings.switches_under(settings.basis())
    for name, value, default in zip(SWITCHES, switches, Switches(), strict=True):
        allowed = "true or false" if isinstance(default, bool) else "an integer"
        add(switch_key(name), allowed, value, default, default)
    return sorted(found.values(), key=lambda line: not line.key.has_class or line.key.name in SWITCHES)


def template(of: Iterable[KeyLine], how: str) -> Iterator[str]:
    """Yield the lines of a file in the format *how*, one of ``FORMATS``: as it stands, the file changes nothing.

    Each key is commented out, with the value in force; it is valid after the comment sign is removed.
    """
    format_line = FORMATS[how]
    for line in of:
        value = line.example if line.value == _SEVERAL else line.value
        comment = f"{line.allowed}; declared: {line.default or 'nothing'}"
        yield f"# {comment}" if how == "env" else f"# {comment}; variable: {line.key.variable}"
        yield f"#{format_line(line.key, value)}"
        yield ""


def _quoted(key: Key, value: str) -> tuple[str, str]:
    """Return both as quoted in TOML and YAML, which share the strings of JSON."""
    is_plain = re.fullmatch(r"true|false|-?(0|[1-9]\d*)(\.\d+)?", value)
    return json.dumps(key.name, ensure_ascii=False), value if is_plain else json.dumps(value, ensure_ascii=False)


def _in_properties(key: Key, value: str) -> str:
    """Escape both as java.util.Properties does: as in JSON, and signs that end a key or start a comment."""
    return "=".join(re.sub("[ :=#!]", r"\\\g<0>", json.dumps(text)[1:-1]) for text in (key.name, value))


def _in_environment(key: Key, value: str) -> str:
    if not re.fullmatch(r"[\w./:,+-]*", value, re.ASCII):
        value = "'" + value.replace("\\", r"\\").replace("'", r"\'") + "'"
    return f"{key.variable}={value}"


FORMATS: Mapping[str, Callable[[Key, Any], str]] = {
    "env": _in_environment,
    "toml": lambda key, value: " = ".join(_quoted(key, value)),
    "yaml": lambda key, value: ": ".join(_quoted(key, value)),
    "properties": _in_properties,
}
"""The functions that format a key and its value, by the name of the format."""
