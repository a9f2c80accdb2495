"""Lists of every key that can be set, and template files to fill in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .._policy import parameters
from .formatting import formatted
from .key import ENABLED, MODE, SWITCHES, Declared, Key, parameter_keys, switch_key
from .resolution import Effective, Switches
from .settings import settings


class KeyLine:
    """One key, and the values of all guards that it reaches.

    Args:
        key: The key.
        allowed: The allowed values, in words.
        example: A valid text, for use if the guards differ.
    """

    def __init__(self, key: Key, allowed: str, example: str) -> None:
        self.key = key
        self.allowed = allowed
        self.example = example
        self.values: set[str] = set()
        self.defaults: set[str] = set()

    @property
    def value(self) -> str:
        """The value in force."""
        return _common(self.values)

    @property
    def default(self) -> str:
        """The declared value."""
        return _common(self.defaults)


def _common(values: set[str]) -> str:
    return next(iter(values)) if len(values) == 1 else "(several)"


def key_lines(resolved: Iterable[tuple[Declared, Effective]]) -> list[KeyLine]:
    """Return a line for every key, the global keys last."""
    found: dict[str, KeyLine] = {}

    def add(key: Key, allowed: str, value: object, default: object, example: object) -> None:
        line = found.setdefault(key.name, KeyLine(key, allowed, formatted(example)))
        line.values.add(formatted(value))
        line.defaults.add(formatted(default))

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
        value = line.example if line.value == "(several)" else line.value
        comment = f"{line.allowed}; declared: {line.default or 'nothing'}"
        yield f"# {comment}" if how == "env" else f"# {comment}; variable: {line.key.variable}"
        yield f"#{format_line(line.key, value)}"
        yield ""


def _quoted(key: Key, value: str) -> tuple[str, str]:
    """Return both as quoted in TOML and YAML, which share the strings of JSON."""
    is_plain = re.fullmatch(r"true|false|-?(0|[1-9]\d*)(\.\d+)?", value)
    return json.dumps(key.name, ensure_ascii=False), value if is_plain else json.dumps(value, ensure_ascii=False)


def _escaped(text: str, signs: str) -> str:
    """Escape as java.util.Properties does: signs that end a key or start a comment, and all signs outside ASCII."""

    def one(sign: str, is_first: bool) -> str:
        if sign in "\\" + signs or (is_first and sign in " #!"):
            return f"\\{sign}"
        if " " <= sign <= "~":
            return sign
        units = sign.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    return "".join(one(sign, index == 0) for index, sign in enumerate(text))


def _in_environment(key: Key, value: str) -> str:
    if not re.fullmatch(r"[\w./:,+-]*", value, re.ASCII):
        value = "'" + value.replace("\\", r"\\").replace("'", r"\'") + "'"
    return f"{key.variable}={value}"


FORMATS: Mapping[str, Callable[[Key, Any], str]] = {
    "env": _in_environment,
    "toml": lambda key, value: " = ".join(_quoted(key, value)),
    "yaml": lambda key, value: ": ".join(_quoted(key, value)),
    "properties": lambda key, value: f"{_escaped(key.name, ' :=#!')}={_escaped(value, '')}",
}
"""The functions that format a key and its value, by the name of the format."""
