"""What a policy brings to a call: a row of the order, and what its functions are given to bind it by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from .._execution.caller_thread import GuardedCall
from .._execution.environment import Environment
from .._extensions.observe.strategy import Tell
from .._metrics.counters import Counters
from .._policy import Policy
from .._strategy import back_off, circuit_breaker

Policies = Mapping[type[Policy], Policy]


class StrategyLookup(Protocol):
    """The strategies of one guarded function that remember something between calls."""

    def get(self, policy: type[Policy]) -> Any:
        """Return the strategy of *policy*; ``None`` where there is none."""
        ...


class Binding(NamedTuple):
    """The name, the state and the surroundings to which the policies of one guarded function are bound."""

    name: str
    policies: Policies
    strategies: StrategyLookup
    asynchronous: bool
    detached: bool
    """Whether attempts run detached from the call (``@asynchronous``), and their deadlines with them."""
    deliver: Callable[[circuit_breaker.CircuitBreaker], None]
    """Tells listeners and sinks of the transitions of a circuit breaker."""
    template: Callable[..., Any] | None = None
    """The function whose parameters a call has; ``None`` where each call is given one."""
    takes_itself: bool = False
    """Whether the first argument of a call is its instance or class."""
    counters_of: Callable[..., Counters | None] = lambda *kinds, counts_calls=False: None
    """Gives what counts policies of some kinds, beside what counts the calls; ``None``: nothing is counted."""
    is_block: bool = False
    """Whether a call is a block of code, which has no layer."""
    tell_of: Callable[[type[Policy]], Tell | None] = lambda kind: None
    """Gives what is told of attempts that a policy would have refused, where that is observed; ``None``: it is not."""
    is_hedge: bool = False
    """Whether what is bound is the way of hedges, which never wait."""


Layer: TypeAlias = Callable[[GuardedCall, Environment | None], GuardedCall]
"""Makes what stands around a call of what the arguments are given to: for an asynchronous call, which waits in the
environment, a coroutine function around one; else, without an environment, a function around one."""


class Memory(NamedTuple):
    """Makes the strategy of a policy that remembers something between calls, and gives it new values."""

    make: Callable[[str, Any, StrategyLookup], Any]
    """Makes the strategy, given a name, the policy and the strategies of the rows above."""
    renew: Callable[[Any, Any], object]
    """Gives the strategy the values of the policy."""
    is_needed: Callable[[Any, bool], bool] | None = None
    """Tells whether it is made under the policy, given whether attempts may run detached; ``None``: always."""


class Row(NamedTuple):
    """One policy at its place in the order."""

    policy: type[Policy]
    bind: Callable[[Any, Binding], Mapping[str, Any]] | None = None
    """Gives what ``BoundPolicies`` holds of the policy, by parameter; ``None``: it holds nothing."""
    memory: Memory | None = None
    modifies: type[Policy] | None = None
    """The policy without which this one does nothing."""
    or_else: type[Policy] | None = None
    """Another one that this one may modify."""
    excludes: type[Policy] | None = None
    """The policy beside which this one may not stand."""
    layer: Callable[[Any, Binding], Layer | None] | None = None
    """Gives what stands around all policies below, inside what this one binds; ``None``: nothing does."""
    is_for_classes: bool = True
    """Whether it may stand on a class."""
    back_off: Callable[[Any, float, str, back_off.Mistakes], back_off.BackOff | back_off.CustomBackOff] | None = None
    """Gives the growth of the delays of ``Retry``; a function has one at most."""


def key_of(key: Any, binding: Binding, identity: Callable[[Any], Hashable] = id) -> Callable[..., Hashable]:
    """Give what makes the *key* of a call from its arguments; see ``key_function``."""
    from .._signature.call_key import given_key_function, key_function  # which needs ``inspect``

    if binding.template is None:
        return given_key_function(key, binding.name, identity)
    return key_function(key, binding.template, takes_itself=binding.takes_itself, identity=identity)
