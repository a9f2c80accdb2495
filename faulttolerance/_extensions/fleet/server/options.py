"""The options of a fleet: its name, and the durations of waiting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...._policy.kind import BRIEF, Kind, duration
from ...._policy.parameter import warn_of_bare_number
from ...._policy.unit import ChronoUnit, seconds
from ....exceptions import Fault, raise_faults

_LONGEST_NAMESPACE: Final = 200
_KINDS: Final = {
    # The name is placed between the braces of a hash tag.
    "namespace": Kind(
        "text",
        f"printable text of up to {_LONGEST_NAMESPACE} characters, without braces",
        lambda value: (
            isinstance(value, str)
            and value.isprintable()
            and 0 < len(value.strip()) == len(value) <= _LONGEST_NAMESPACE
            and not {*"{}"} & {*value}
        ),
    ),
    "poll": duration("> 0", plausible=BRIEF),
    "patience": duration("> 0"),
}


def check_options(fleet: str, faults: Iterable[Fault] = (), **values: object) -> dict[str, Any]:
    """Return *values* in the form in which they are used, durations in seconds.

    Args:
        fleet: The class of the fleet, for messages.
        faults: Further faults to report.
        values: The values of ``namespace``, ``poll`` and ``patience``.

    Raises:
        FaultToleranceDefinitionException: If anything is wrong; it contains all faults.
    """
    faults_found, used = [*faults], dict[str, Any]()
    for name, value in values.items():
        kind, where = _KINDS[name], f"{fleet}({name})"
        if not kind.accepts(value):
            faults_found.append(Fault(where, kind.problem(value), value, kind.allowed))
            continue
        used[name] = value
        if kind.name == "duration":
            warn_of_bare_number(where, kind, value)
            used[name] = seconds(kind.normalised(value), ChronoUnit.MILLIS)
    raise_faults(faults_found)
    return used
