"""The additions of ``@fleet_wide`` to a call: the fleet's circuit before the breaker, and names of shared state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from uuid import uuid4
from weakref import ref

from ..._config import settings
from ..._config.resolution import variable
from ..._log import WARNING, log
from ..._metrics.counters import ledger
from ..._strategy.circuit_breaker import CircuitBreaker
from ..._strategy.condition import Condition
from .circuit import FleetCircuit
from .fleet_link import fleet_link
from .metric import FLEET_UP
from .protocol import Fleet
from .server.environment import URL_VARIABLE, fleet_of_environment
from .share import LocalShare


def use_fleet(fleet: Fleet | None) -> None:
    """Share by *fleet* from now on, or with no other process for ``None``, and register the fleet's gauge."""

    def read() -> Iterable[tuple[tuple[str, ...], float]]:
        return fleet_link.read() if settings.switches_under(settings.state).metrics_enabled else ()

    if not any(metric is FLEET_UP for metric, _ in ledger.of_process):
        ledger.of_process.append((FLEET_UP, read))
    fleet_link.use(fleet)


def _use_default_fleet(name: str) -> None:
    """Use the fleet of the environment if the program has set none; log once if neither exists.

    Raises:
        FaultToleranceDefinitionException: If the environment's values are wrong.
    """
    if fleet_link.is_chosen:
        return
    fleet = fleet_of_environment(variable)
    if fleet is not None:
        use_fleet(fleet)
    elif not fleet_link.is_absence_logged:
        fleet_link.is_absence_logged = True
        words = "%s is fleet-wide, but local: no fleet is configured, so each process has the whole limit and its own"
        log(
            WARNING,
            f"{words} circuit; call configure(fleet=...), with None if that is meant, or set %s",
            name,
            URL_VARIABLE,
        )


class FleetState:
    """The shared state of one function, or of one of its keys, in this process.

    Args:
        key: The name of the state in the fleet.
    """

    __slots__ = ("_circuit", "key", "share")

    def __init__(self, key: str) -> None:
        _use_default_fleet(key)
        self.key = key
        self.share = LocalShare()
        self._circuit: Callable[[], FleetCircuit | None] = lambda: None  # without a circuit, nothing is shared

    def gate(self, breaker: CircuitBreaker, deliver: Callable[[CircuitBreaker], object]) -> FleetCircuit:
        """Return the gate that consults the fleet in front of *breaker*; *deliver* reports its transitions."""
        circuit = self._circuit()
        if circuit is None:
            circuit = FleetCircuit(
                self.key, breaker, fleet_link, _new_holder, lambda one: fleet_link.aside(partial(deliver, one))
            )
            self._circuit = ref(circuit)
            fleet_link.register(circuit)
        return circuit

    def condition(self, now: float) -> Condition:
        """Return whether the state is shared; trouble with a fleet does not count as trouble of the function."""
        return Condition(fleet_link.description, is_impaired=not fleet_link.is_chosen)

    def is_idle(self, now: float) -> bool:
        """Return whether the member can be removed without loss."""
        circuit = self._circuit()
        return circuit is None or circuit.is_idle(now)

    def reset_after_fork(self, ident: int) -> None:
        """Remove the state of the parent process, in the child of a fork."""
        if (circuit := self._circuit()) is not None:
            circuit.reset_after_fork()


def _new_holder() -> str:
    return uuid4().hex
