"""The state of a guarded method between calls; it outlives changes of the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from operator import is_
from typing import Any

from .._config import Effective
from .._deadline.clock import clock
from .._log import log_guard_error
from .._metrics.catalogue import Meter, Schema, Series
from .._metrics.counters import Counters, Ledger, ledger
from .._platform.swap import Swap
from .._policy import CircuitBreaker, CircuitBreakerName, Policy, RetryBudget
from .._strategy import circuit_breaker as circuits
from .._strategy.condition import Condition
from .order import ORDER, STRATEGY_FACTORIES, Strategies
from .row import Policies

_NO_STRATEGIES = Strategies()
_shared_kinds = lru_cache(tuple)  # most guards have policies of the same kinds
_UNKNOWN = Condition("unknown, because reading it failed", is_impaired=True)


class State:
    """The circuit breaker, the permits, the rate window and the counts of one (class, method), or of one ``Guard``.

    Each is created when a policy first needs it, and kept when the policy changes or is switched off.
    """

    __slots__ = ("_counters", "_meter", "_updated_for", "alias", "name", "observed", "policies", "strategies")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alias = ""
        """A further name of the circuit breaker, from ``@circuit_breaker_name``."""
        self.strategies: Strategies = _NO_STRATEGIES
        """The circuit breaker, the permits, the rate window; replaced as a whole."""
        self.policies: tuple[Policy, ...] = ()
        """The policies in force whose values the strategies have, or are about to receive."""
        self.observed: tuple[type[Policy], ...] = ()
        """The policies in force that are only observed."""
        self._updated_for: tuple[Policy, ...] | None = ()
        # One per set of policies: calls in flight during a change of the configuration end under the policies with
        # which they started. Their counts stay in the ledger after the state is gone.
        self._counters: tuple[Counters, ...] = ()
        self._meter: Meter | None = None

    @property
    def circuit_breaker(self) -> circuits.CircuitBreaker | None:
        """The circuit breaker, or ``None``."""
        return self.strategies.get(CircuitBreaker)  # type: ignore[no-any-return]

    @property
    def partitions(self) -> Any:
        """The state of each key, if calls are divided by keys."""
        return self.strategies.partitions

    def every_breaker(self) -> list[circuits.CircuitBreaker]:
        """Return the circuit breakers of all keys that have their own, and behind them the guard's, if it exists."""
        owners = (*self.strategies.nested(), self.strategies)
        return [breaker for strategies in owners if (breaker := strategies.get(CircuitBreaker)) is not None]

    def breakers_in_use(self) -> list[circuits.CircuitBreaker]:
        """Return the circuit breakers through which calls pass, or would if the policy were not switched off."""
        return self._breakers_of(dict.fromkeys((*map(type, self.policies), CircuitBreaker)))

    def _breakers_of(self, in_force: Iterable[type[Policy]]) -> list[circuits.CircuitBreaker]:
        return [strategy for kind, strategy in self.strategies.in_use(in_force) if kind is CircuitBreaker]

    @property
    def breaker_names(self) -> tuple[str, ...]:
        """The names of the circuit breaker, if it exists."""
        if self.circuit_breaker is None:
            return ()
        return (self.name, self.alias) if self.alias else (self.name,)

    def update_strategies(self) -> None:
        """Pass the values of ``policies`` to every strategy, and stop the clocks of circuits that no call asks.

        A signal handler or another thread may change these meanwhile, and call this method itself. Each caller checks
        again afterwards, so the last pass happens after the last change.
        """
        while (policies := self.policies) is not self._updated_for:
            self._updated_for = None
            for policy in policies:
                kind = type(policy)
                for strategies in (self.strategies, *self.strategies.nested()):
                    if (strategy := strategies.get(kind)) is not None:
                        STRATEGY_FACTORIES[kind].renew(strategy, policy)
            self._count_time(policies)
            self._updated_for = policies

    def _count_time(self, policies: tuple[Policy, ...]) -> None:
        if (own := self.circuit_breaker) is None:
            return
        now, in_force = clock.monotonic(), [*map(type, policies)]
        asked = {*self._breakers_of(in_force)}
        if CircuitBreaker in in_force:
            asked.add(own)  # a key may be without a place at any time
        for breaker in self.every_breaker():
            breaker.count_time(breaker in asked, now)

    def conditions(self) -> dict[type[Policy], Condition]:
        """Return the current condition of each strategy whose policy is in force; for several keys, the worst.

        An observed policy impairs no call.
        """
        try:
            return self._conditions()
        except Exception as error:  # noqa: BLE001  # other strategies must still be asked
            log_guard_error(self.name, "its condition is unknown, because reading it failed", error)
            return {type(policy): _UNKNOWN for policy in self.policies}

    def _conditions(self) -> dict[type[Policy], Condition]:
        now = clock.monotonic()
        worst: dict[type[Policy], Condition] = {}
        for kind, strategy in self.strategies.in_use(map(type, self.policies)):
            if hasattr(strategy, "condition"):
                condition = strategy.condition(now)
                if condition is not None and kind in self.observed:
                    condition = condition._replace(is_impaired=False, is_down=False)
                if condition is not None and (kind not in worst or condition[1:3] > worst[kind][1:3]):
                    worst[kind] = condition
        return worst

    def counts(self) -> dict[Series, float]:
        """Return the value of every series of the method, without histograms."""
        total: dict[Series, float] = {}
        for counters in self._counters:
            counters.account.read(total, {})
        return total

    def reset_after_fork(self, ident: int) -> None:
        """Release the resources of all threads except *ident*, and measure time from 0, in the child of a fork."""
        for strategy in self.strategies.by_policy().values():
            strategy.reset_after_fork(ident)
        for breaker in self.every_breaker():
            breaker.start_counting(clock.monotonic())
        self.update_strategies()  # a thread that does not exist here may have been about to


def conditions_of(state: State | None, values: Iterable[Effective]) -> dict[type[Policy], Condition]:
    """Return the condition of each strategy, and of some policies before the first call, when there is no *state*."""
    found = state.conditions() if state is not None else {}
    modes = {type(value.policy): value.observed for value in values if value.enabled}
    for row in ORDER:
        if row.condition is not None and row.policy in modes:
            is_enforced = any(modes.get(kind) is False for kind in (row.modifies, row.or_else) if kind is not None)
            found[row.policy] = row.condition(is_enforced)
    return found


class StateDraft:
    """A draft of a state under *policies*: it has no effect before ``stage``.

    Args:
        state: The state, which may be new.
        policies: The policies in force.
        entered: The ledger that provides the counts to readers.
        detached: Whether attempts may run detached.
        observed: The policies that are only observed.
        wrappers: The overrides of tests, which may replace strategies.
    """

    __slots__ = (
        "_before",
        "_counters",
        "_ledger",
        "_meter",
        "_policies",
        "_stateful",
        "observed",
        "state",
        "strategies",
    )

    def __init__(
        self,
        state: State,
        policies: Policies,
        entered: Ledger = ledger,
        *,
        detached: bool = False,
        observed: Iterable[type[Policy]] = (),
        wrappers: Iterable[Any] = (),
    ) -> None:
        self.state = state
        self._policies = policies
        self.observed = tuple(observed)
        self._before = _parts(state)
        self._ledger = entered
        self.strategies, self._counters, self._meter = self._before
        self.strategies = self.strategies.own
        made = self.strategies.by_policy()
        known = len(made)
        self._stateful = tuple(policies[kind] for kind in STRATEGY_FACTORIES if kind in policies)
        for policy in self._stateful:
            kind, factory = type(policy), STRATEGY_FACTORIES[type(policy)]
            if kind not in made and (factory.is_needed is None or factory.is_needed(policy, detached)):
                made[kind] = factory.make(state.name, policy, made)
        if len(made) > known:
            self.strategies = Strategies.of(made)
        for wrapper in wrappers:
            self.strategies = wrapper.around_strategies(state, self.strategies, policies)
        if self._meter is not None:
            self._renew_meter(self._meter.queues)

    def counters_under(self, name: str, schema: Schema, *, queue: bool) -> Counters:
        """Return the counters of the series of *schema* under *name*."""
        counters = next((known for known in self._counters if known.account.schema is schema), None)
        if counters is None:
            counters = self._ledger.new(name, schema)
            self._counters = (*self._counters, counters)
        if self.strategies is not _NO_STRATEGIES:
            self._renew_meter(queue or (self._meter is not None and self._meter.queues))
        return counters

    def _renew_meter(self, queues: bool) -> None:
        # The meter must not refer to the state, which would then live as long as its counts.
        meter = Meter(self.strategies.to_read(), _shared_kinds(tuple(map(type, self._stateful))), queues)
        if meter != self._meter:
            self._meter = meter

    @property
    def is_current(self) -> bool:
        """Whether the state has not changed since this draft was created."""
        return all(map(is_, self._before, _parts(self.state)))

    def stage(self, swap: Swap) -> None:
        """Replace the state by this draft, together with the other stores of *swap*."""
        state, policies = self.state, self._policies
        for name in ("strategies", "_counters", "_meter"):
            swap.attribute(state, name, getattr(self, name))
        swap.attribute(state, "alias", alias_in(policies) or state.alias)
        # New strategies have their values already, unless others share them.
        if state.strategies is _NO_STRATEGIES and RetryBudget not in policies:
            swap.attribute(state, "_updated_for", self._stateful)
        swap.attribute(state, "policies", self._stateful)
        swap.attribute(state, "observed", self.observed)
        for counters in self._counters:
            if counters not in state._counters:
                self._ledger.enter(counters, swap)
        if self._meter is not None:
            swap.attribute(self._counters[0].account, "meter", self._meter)


def state_before_calls(name: str, policies: Policies) -> State:
    """Return a state with the circuit breaker of *policies* as it is before the first call; nothing counts it."""
    state = State(name)
    asked = (kind for kind, factory in STRATEGY_FACTORIES.items() if kind is CircuitBreaker or factory.nested)
    state.strategies = StateDraft(state, {kind: policies[kind] for kind in asked if kind in policies}).strategies
    state.alias = alias_in(policies)
    return state


def alias_in(policies: Policies) -> str:
    """Return the further name of a circuit breaker with *policies*."""
    breaker, name = policies.get(CircuitBreaker), policies.get(CircuitBreakerName)
    if not isinstance(breaker, CircuitBreaker):
        return ""
    return name.value if isinstance(name, CircuitBreakerName) else breaker.name


def _parts(state: State) -> tuple[Strategies, tuple[Counters, ...], Meter | None]:
    return state.strategies, state._counters, state._meter
