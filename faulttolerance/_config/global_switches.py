"""Switches of the whole application, read without pydantic: a service mesh can switch everything off."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import os
from typing import Any, NamedTuple

from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from .key import SWITCHES, TRACING_VARIABLE, switch_key
from .snapshot import Snapshot
from .source import flag, integer, parsed


class Switches(NamedTuple):
    """The specification's switches, which are set once, in the order of ``SWITCHES``."""

    non_fallback_enabled: bool = True
    metrics_enabled: bool = True
    interceptor_priority: int = 4010


def read_switches(snapshot: Snapshot) -> tuple[Switches, list[Fault]]:
    """Read the global switches; those that are wrong, which the faults tell, have their defaults."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, field, default in zip(SWITCHES, Switches._fields, Switches(), strict=True):
        if setting := snapshot.find([switch_key(name)]):
            try:
                values[field] = parsed(*setting, flag if isinstance(default, bool) else integer)
            except FaultToleranceDefinitionException as error:
                faults += error.faults
    return Switches(**values), faults


# The switch for span events, which is ours and not the specification's


def is_tracing_enabled() -> bool:
    """Whether the environment lets span events be; only ``false`` does not."""
    return _tracing().strip().lower() != "false"


def tracing_faults() -> list[Fault]:
    """Tell what is wrong with the switch: who writes ``off`` does not mean what is not understood."""
    if _tracing().strip().lower() in ("", "true", "false"):
        return []
    place = f"environment variable {TRACING_VARIABLE}"
    return [Fault(TRACING_VARIABLE, f"is {shown(_tracing())}", _tracing(), "true or false", place)]


def _tracing() -> str:
    return os.environ.get(TRACING_VARIABLE, "")
