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
from .circuit import SharedCircuit
from .link import lane
from .metric import FLEET_UP
from .protocol import Fleet
from .server.environment import URL_VARIABLE, fleet_of_environment
from .share import Part

__all__ = ["Member", "use_fleet"]


def use_fleet(fleet: Fleet | None) -> None:
    """Share by *fleet* from now on, or with no other process for ``None``, and register the fleet's gauge."""

    def read() -> Iterable[tuple[tuple[str, ...], float]]:
        return lane.read() if settings.switches_under(settings.state).metrics_enabled else ()

    if not any(metric is FLEET_UP for metric, _ in ledger.of_process):
        ledger.of_process.append((FLEET_UP, read))
    lane.use(fleet)


def _join(name: str) -> None:
    """Use the fleet of the environment if the program has set none; log once if neither exists.

    Raises:
        FaultToleranceDefinitionException: If the environment's values are wrong.
    """
    if lane.is_chosen:
        return
    fleet = fleet_of_environment(variable)
    if fleet is not None:
        use_fleet(fleet)
    elif not lane.is_missed:
        lane.is_missed = True
        words = "%s is fleet-wide, but local: no fleet is configured, so each process has the whole limit and its own"
        log(
            WARNING,
            f"{words} circuit; call configure(fleet=...), with None if that is meant, or set %s",
            name,
            URL_VARIABLE,
        )


class Member:
    """The shared state of one function, or of one of its keys, in this process.

    Args:
        key: The name of the state in the fleet.
    """

    __slots__ = ("_circuit", "key", "part")

    def __init__(self, key: str) -> None:
        _join(key)
        self.key = key
        self.part = Part()
        self._circuit: Callable[[], SharedCircuit | None] = lambda: None  # without a circuit, nothing is shared

    def gate(self, breaker: CircuitBreaker, deliver: Callable[[CircuitBreaker], object]) -> SharedCircuit:
        """Return the gate that consults the fleet in front of *breaker*; *deliver* reports its transitions."""
        circuit = self._circuit()
        if circuit is None:
            circuit = SharedCircuit(self.key, breaker, lane, _new_holder, lambda one: lane.aside(partial(deliver, one)))
            self._circuit = ref(circuit)
            lane.enroll(circuit)
        return circuit

    def condition(self, now: float) -> Condition:
        """Return whether the state is shared; trouble with a fleet does not count as trouble of the function."""
        return Condition(lane.words, is_impaired=not lane.is_chosen)

    def is_idle(self, now: float) -> bool:
        """Return whether the member can be removed without loss."""
        circuit = self._circuit()
        return circuit is None or circuit.is_idle(now)

    def keep_only(self, ident: int) -> None:
        """Remove the state of the parent process, in the child of a fork."""
        if (circuit := self._circuit()) is not None:
            circuit.keep_only()


def _new_holder() -> str:
    return uuid4().hex
