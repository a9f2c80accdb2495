"""The additions of ``@fleet_wide`` to a call: the fleet's circuit before the breaker, and names of shared state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import uuid4
from weakref import ref

from ..._config.resolution import variable
from ..._log import WARNING, log
from ..._strategy.circuit_breaker import CircuitBreaker
from ..._strategy.condition import Condition
from ...exceptions import FaultToleranceDefinitionException
from .circuit import FleetCircuit
from .fleet_link import fleet_link
from .server_link import react
from .share import LocalShare

_URL_VARIABLE: Final = "FAULTTOLERANCE_FLEET_URL"
_NAMESPACE_VARIABLE: Final = "FAULTTOLERANCE_FLEET_NAMESPACE"


def _use_default_fleet(name: str) -> None:
    """Use the fleet of the environment if the program has set none; log once if neither exists.

    Raises:
        FaultToleranceDefinitionException: If a value of the environment is wrong or missing; it shows no password.
    """
    if fleet_link.is_chosen:
        return
    if url := variable(_URL_VARIABLE):
        from .server.redis import RedisFleet

        try:
            fleet_link.use(RedisFleet(url, namespace=variable(_NAMESPACE_VARIABLE)), is_default=True)
        except FaultToleranceDefinitionException as error:
            place = f"environment variables {_URL_VARIABLE} and {_NAMESPACE_VARIABLE}"
            faults = [fault._replace(source=place) for fault in error.faults]
            raise FaultToleranceDefinitionException(*faults) from None
    elif not fleet_link.is_absence_logged:
        fleet_link.is_absence_logged = True
        words = (
            "%s is fleet-wide, but local: no fleet is configured, so each process has the whole limit and its own"
            " circuit; call configure(fleet=...), with None if that is meant, or set %s"
        )
        log(WARNING, words, name, _URL_VARIABLE)


class FleetState:
    """The shared state of one function, or of one of its keys, in this process.

    Args:
        key: The name of the state in the fleet.
    """

    def __init__(self, key: str) -> None:
        _use_default_fleet(key)
        self.key = key
        self.share = LocalShare()
        self._circuit: Callable[[], FleetCircuit | None] = lambda: None  # without a circuit, nothing is shared

    def gate(self, breaker: CircuitBreaker, deliver: Callable[[CircuitBreaker], object]) -> FleetCircuit:
        """Return the gate that consults the fleet in front of *breaker*; *deliver* reports its transitions."""
        circuit = self._circuit()
        if circuit is None:
            deliver_aside = partial(_deliver_aside, deliver)
            circuit = FleetCircuit(self.key, breaker, fleet_link, lambda: uuid4().hex, deliver_aside)
            self._circuit = ref(circuit)
            fleet_link.register(circuit)
        return circuit

    def condition(self, now: float) -> Condition:
        """Return whether the state is shared; trouble with a fleet does not count as trouble of the function."""
        return Condition(fleet_link.current.description, is_impaired=not fleet_link.is_chosen)

    def is_idle(self, now: float) -> bool:
        """Return whether the member can be removed without loss."""
        circuit = self._circuit()
        return circuit is None or circuit.is_idle(now)

    def reset_after_fork(self, ident: int) -> None:
        """Remove the state of the parent process, in the child of a fork."""
        if (circuit := self._circuit()) is not None:
            circuit.reset_after_fork()


def _deliver_aside(deliver: Callable[[CircuitBreaker], object], breaker: CircuitBreaker) -> None:
    react(fleet_link.current.fleet, partial(deliver, breaker))
