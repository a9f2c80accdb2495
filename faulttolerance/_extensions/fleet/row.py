"""The row of ``@fleet_wide``."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from ..._call.row import Binding, ProcessSetting, Row, StrategyFactory
from ..._policy import CircuitBreaker, Policy, RateLimit
from ..._strategy.condition import Condition
from ..._strategy.gate import Gate
from ...exceptions import Fault
from .metric import FLEET_UP
from .policy import FleetWide


def _fleet_state(name: str, *_: object) -> Any:
    from .layer import FleetState

    return FleetState(name)


def _name_of_key(name: str, key: Hashable) -> str:
    """Return the name of the state of *key* in the whole fleet: a digest, since the text may be secret, and long.

    A key whose text differs between processes has a state of its own in each.
    """
    from hashlib import sha256  # brings in OpenSSL

    return f"{name}#{sha256(repr(key).encode(errors='backslashreplace')).hexdigest()[:16]}"


def _gate(gate: Gate, policy: Policy, binding: Binding) -> Gate:
    if (
        FleetWide not in binding.policies
        or not isinstance(policy, CircuitBreaker)
        or not binding.is_enforced(type(policy))
    ):
        return gate
    shared: Gate = binding.strategies.get(FleetWide).gate(gate, binding.deliver)
    return shared


def _limit(limit: Any, may_wait: bool, binding: Binding) -> tuple[Any, bool]:
    if FleetWide not in binding.policies or not binding.is_enforced(RateLimit):
        return limit, may_wait
    from .fleet_link import fleet_link
    from .limit import FleetRateLimit

    state = binding.strategies.get(FleetWide)
    return FleetRateLimit(limit, state.share, state.key, fleet_link, may_wait=may_wait), True  # calls wait for answers


def _condition(is_enforced: bool) -> Condition:
    from .fleet_link import fleet_link

    return Condition(
        fleet_link.description
        if is_enforced
        else "local: the policies that it would share are switched off or observed"
    )


def _faults(chosen: Any) -> list[Fault]:
    needed = ("connect", "is_immediate", "namespace", "patience", "poll")
    if chosen is None or (not isinstance(chosen, type) and all(hasattr(chosen, name) for name in needed)):
        return []
    # The value is not shown: it may be an address with a password.
    kind = type(chosen).__name__
    allowed = "a fleet, such as RedisFleet(..., namespace=...), or None"
    return [Fault("configure(fleet)", f"is a {kind}", kind, allowed)]


def _use(chosen: Any) -> None:
    from .layer import use_fleet

    use_fleet(chosen)


def _open_elsewhere() -> Iterable[str]:
    from .fleet_link import fleet_link

    return fleet_link.open_elsewhere()


def _problem() -> str:
    from .fleet_link import fleet_link

    return fleet_link.problem


def _is_at_work() -> bool:
    from .fleet_link import fleet_link

    return fleet_link.has_pending_requests


def _reset() -> None:
    from .fleet_link import fleet_link

    fleet_link.reset()


FLEET_WIDE = Row(
    FleetWide,
    strategy_factory=StrategyFactory(_fleet_state, lambda state, _: state, is_last=True, name_of_key=_name_of_key),
    modifies=CircuitBreaker,
    or_else=RateLimit,
    gate=_gate,
    limit=_limit,
    metrics=(FLEET_UP,),
    condition=_condition,
    setting=ProcessSetting("fleet", _faults, _use),
    open_elsewhere=_open_elsewhere,
    problem=_problem,
    is_busy=_is_at_work,
    reset=_reset,
)
