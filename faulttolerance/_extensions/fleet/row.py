"""The row of ``@fleet_wide``."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from ..._call.row import Binding, ProcessSetting, Row, StrategyFactory
from ..._config import settings
from ..._metrics.catalogue import Metric
from ..._metrics.counters import ledger
from ..._policy import CircuitBreaker, Policy, RateLimit
from ..._strategy.condition import Condition
from ..._strategy.gate import Gate
from ...exceptions import Fault
from .policy import FleetWide

if TYPE_CHECKING:
    from .fleet_link import FleetLink
    from .protocol import Link

_UP = Metric(
    "ft.fleet.up",
    "gauge",
    "1 while the fleet answers this process; 0 while the process decides alone",
    ("namespace",),
    total="min",
)


def _link() -> FleetLink:
    from .fleet_link import fleet_link

    return fleet_link


def _link_in_use() -> Link | None:
    """Return the link, without an import only to learn that there is no fleet."""
    links: FleetLink | None = getattr(sys.modules.get(f"{__package__}.fleet_link"), "fleet_link", None)
    return None if links is None else links.current


def _is_busy() -> bool:
    link = _link_in_use()
    return link is not None and link.has_pending_requests


def _read_up() -> Iterable[tuple[tuple[str, ...], float]]:
    link = _link_in_use()
    if link is None or not settings.switches_under(settings.state).metrics_enabled:
        return ()
    return link.read()


ledger.of_process.append((_UP, _read_up))


def _fleet_state(name: str, *_: object) -> Any:
    from .layer import FleetState

    return FleetState(name)


def _name_of_key(name: str, key: Hashable) -> str:
    """Return the name of the state of *key* in the whole fleet: a digest, since the text may be secret, and long.

    A key whose text differs between processes has a state of its own in each.
    """
    from hashlib import sha256  # brings in OpenSSL

    return f"{name}#{sha256(repr(key).encode(errors='backslashreplace')).hexdigest()[:16]}"


def _shares(kind: type[Policy], binding: Binding) -> bool:
    return FleetWide in binding.policies and binding.is_enforced(kind)


def _gate(gate: Gate, policy: Policy, binding: Binding) -> Gate:
    if isinstance(policy, CircuitBreaker) and _shares(CircuitBreaker, binding):
        gate = binding.strategies.get(FleetWide).gate(gate, binding.deliver)
    return gate


def _limit(limit: Any, may_wait: bool, binding: Binding) -> tuple[Any, bool]:
    if not _shares(RateLimit, binding):
        return limit, may_wait
    from .limit import FleetRateLimit

    state = binding.strategies.get(FleetWide)
    return FleetRateLimit(limit, state.share, state.key, _link(), may_wait=may_wait), True  # calls wait for answers


def _condition(is_enforced: bool) -> Condition:
    if not is_enforced:
        return Condition("local: the policies that it would share are switched off or observed")
    return Condition(_link().current.description)


def _faults(chosen: Any) -> list[Fault]:
    needed = ("connect", "is_immediate", "namespace", "patience", "poll")
    if chosen is None or (not isinstance(chosen, type) and all(hasattr(chosen, name) for name in needed)):
        return []
    # The value is not shown: it may be an address with a password.
    kind = type(chosen).__name__
    allowed = "a fleet, such as RedisFleet(..., namespace=...), or None"
    return [Fault("configure(fleet)", f"is a {kind}", kind, allowed)]


FLEET_WIDE = Row(
    FleetWide,
    strategy_factory=StrategyFactory(_fleet_state, lambda state, _: state, is_last=True, name_of_key=_name_of_key),
    modifies=CircuitBreaker,
    or_else=RateLimit,
    gate=_gate,
    limit=_limit,
    metrics=(_UP,),
    condition=_condition,
    setting=ProcessSetting("fleet", _faults, lambda fleet: _link().use(fleet)),
    open_elsewhere=lambda: _link().current.open_elsewhere(),
    problem=lambda: _link().current.problem,
    is_busy=_is_busy,
    reset=lambda: _link().reset(),
)
