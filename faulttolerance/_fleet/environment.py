"""The fleet that the environment names, for processes whose program names none."""

from __future__ import annotations

import os
from typing import Final

from .._strategy.fleet import Fleet
from ..exceptions import Fault, FaultToleranceDefinitionException

__all__ = ["NAMESPACE_VARIABLE", "URL_VARIABLE", "fleet_of_environment"]

URL_VARIABLE: Final = "FAULTTOLERANCE_FLEET_URL"
NAMESPACE_VARIABLE: Final = "FAULTTOLERANCE_FLEET_NAMESPACE"


def fleet_of_environment() -> Fleet | None:
    """Make the fleet whose server and namespace are given as variables; ``None``: there is no address.

    Raises:
        FaultToleranceDefinitionException: One of them is wrong or missing; it shows no password.
    """
    url, namespace = os.environ.get(URL_VARIABLE, "").strip(), os.environ.get(NAMESPACE_VARIABLE, "").strip()
    if not url:
        return None
    from .redis import RedisFleet

    try:
        return RedisFleet(url, namespace=namespace)
    except FaultToleranceDefinitionException as error:
        place = f"environment variables {URL_VARIABLE} and {NAMESPACE_VARIABLE}"
        faults = [Fault(fault.where, fault.problem, fault.got, fault.allowed, place) for fault in error.faults]
        raise FaultToleranceDefinitionException(*faults) from None
