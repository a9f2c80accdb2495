"""The row of ``@fleet_wide``."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..._call.row import Binding, ProcessSetting, Row, StrategyFactory
from ..._policy import CircuitBreaker, Policy, RateLimit
from ..._strategy.condition import Condition
from ..._strategy.gate import Gate
from ...exceptions import Fault
from .metric import FLEET_UP
from .policy import FleetWide

if TYPE_CHECKING:
    from .fleet_link import FleetLink


def _link() -> FleetLink:
    from .fleet_link import fleet_link

    return fleet_link


def _is_busy() -> bool:
    module = sys.modules.get(f"{__package__}.fleet_link")  # is asked often; without the module nothing is pending
    link = getattr(module, "fleet_link", None)
    return link is not None and link.has_pending_requests


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
    from .limit import FleetRateLimit

    state = binding.strategies.get(FleetWide)
    return FleetRateLimit(limit, state.share, state.key, _link(), may_wait=may_wait), True  # calls wait for answers


def _condition(is_enforced: bool) -> Condition:
    return Condition(
        _link().description if is_enforced else "local: the policies that it would share are switched off or observed"
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
    open_elsewhere=lambda: _link().open_elsewhere(),
    problem=lambda: _link().problem,
    is_busy=_is_busy,
    reset=lambda: _link().reset(),
)
