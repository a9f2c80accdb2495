"""The fleet that the environment names, for processes whose program names none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....exceptions import Fault, FaultToleranceDefinitionException
from ..protocol import Fleet

URL_VARIABLE: Final = "FAULTTOLERANCE_FLEET_URL"
NAMESPACE_VARIABLE: Final = "FAULTTOLERANCE_FLEET_NAMESPACE"


def fleet_of_environment(variable: Callable[[str], str]) -> Fleet | None:
    """Return the fleet at the server and namespace that *variable* finds by their names; ``None`` without an address.

    Raises:
        FaultToleranceDefinitionException: If a value is wrong or missing; it shows no password.
    """
    url, namespace = variable(URL_VARIABLE), variable(NAMESPACE_VARIABLE)
    if not url:
        return None
    from .redis import RedisFleet

    try:
        return RedisFleet(url, namespace=namespace)
    except FaultToleranceDefinitionException as error:
        place = f"environment variables {URL_VARIABLE} and {NAMESPACE_VARIABLE}"
        faults = [Fault(fault.where, fault.problem, fault.got, fault.allowed, place) for fault in error.faults]
        raise FaultToleranceDefinitionException(*faults) from None
