"""The environment variables that could be keys, read without pydantic-settings.

That would have to be imported to find that there is nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

from .key import ANNOTATIONS, CONFIG_VARIABLE, ENABLED, ORDINAL, PREFIX, TRACING_VARIABLE, folded, looks_like_a_switch
from .snapshot import parameters_named
from .source import Entry, Source, source_of

_ANNOTATION = "|".join([*ANNOTATIONS, *(name.upper() for name in ANNOTATIONS)])
_OWNED = re.compile(rf"(?<![^_/])(?:{_ANNOTATION})[_/](?=\w)", re.ASCII)
_OTHER = re.compile(r"\W", re.ASCII)


def environment() -> Source | None:
    """Read the environment; ``None`` where nothing in it could be a key."""
    entries = [Entry(name, value, f"environment variable {name}") for name, value in variables().items()]
    return source_of("environment", 300, entries, is_environment=True, is_shared=True) if entries else None


def variables() -> dict[str, str]:
    """Give the variables that could be keys; an empty one counts as absent, as MicroProfile Config has it."""
    # Another thread may delete a variable meanwhile: os.environ.items() would raise KeyError.
    values = {name: os.environ.get(name) for name in list(os.environ) if _could_be_a_key(name)}
    return {name: value for name, value in values.items() if value}


def sets_values(names: Iterable[str]) -> bool:
    """Whether one of the variables *names* most likely sets a parameter of something that is declared.

    ``APP_RETRY_DELAY`` may well be somebody else's, unless there is a module ``app``.
    """
    modules = tuple(f"{_in_upper_case(name)}_" for name in list(sys.modules) if "." not in name)
    likely = [
        name for name in names if name.startswith(PREFIX) or "/" in name or _in_upper_case(name).startswith(modules)
    ]
    return any(parameter != ENABLED for _, parameter in parameters_named(map(folded, likely)))


def _in_upper_case(name: str) -> str:
    return _OTHER.sub("_", name).upper()


def _could_be_a_key(name: str) -> bool:
    if name in (CONFIG_VARIABLE, TRACING_VARIABLE):
        return False
    if name.startswith(PREFIX) or name == ORDINAL or looks_like_a_switch(name):
        return True
    # An annotation, behind which only letters, digits and underscores follow. Written so that it takes linear time.
    end = max((match.end() for match in _OWNED.finditer(name)), default=0)
    return end > 0 and not _OTHER.search(name, end)
