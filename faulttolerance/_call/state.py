"""What a guarded method remembers between calls; it outlives changes of the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any

from .._config import Effective
from .._deadline.clock import clock
from .._log import tell_of_trouble
from .._metrics.catalogue import Meter, Schema, Series, schema_of
from .._metrics.counters import Counters, Ledger, ledger
from .._platform.swap import Swap
from .._policy import CircuitBreaker, CircuitBreakerName, Policy, RetryBudget
from .._strategy import circuit_breaker as circuits
from .._strategy.condition import Condition, in_use
from .order import MEMORIES, ORDER, Strategies
from .row import Policies

_NO_STRATEGIES = Strategies()
_UNKNOWN = Condition("unknown, for asking it failed", is_impaired=True)


class State:
    """The breaker, the permits, the rate window and the counts of one (class, method), or of one ``Guard``.

    Each is made when a policy first asks for it, and kept when the policy changes or is switched off.
    """

    __slots__ = ("_counters", "_followed", "_meter", "alias", "name", "policies", "strategies")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alias = ""
        """A further name of the breaker, that of ``@circuit_breaker_name``."""
        self.strategies: Strategies = _NO_STRATEGIES
        """The breaker, the permits, the rate window; replaced as a whole."""
        self.policies: tuple[Policy, ...] = ()
        """Those in force whose values the strategies have, or are about to take."""
        self._followed: tuple[Policy, ...] | None = ()
        # One per set of policies: calls in flight while the configuration changes end under what they began with.
        # What they counted stays in the ledger when the state goes.
        self._counters: tuple[Counters, ...] = ()
        self._meter: Meter | None = None

    @property
    def circuit_breaker(self) -> circuits.CircuitBreaker | None:
        """The breaker, if there is one."""
        return self.strategies.get(CircuitBreaker)  # type: ignore[no-any-return]

    @property
    def partitions(self) -> Any:
        """The state of each key, if calls are divided by keys."""
        return self.strategies.partitions

    def every_breaker(self) -> list[circuits.CircuitBreaker]:
        """Give the breaker, if there is one, behind those of the keys that have one of their own."""
        owners = (*self.strategies.nested(), self.strategies)
        return [breaker for strategies in owners if (breaker := strategies.get(CircuitBreaker)) is not None]

    @property
    def breaker_names(self) -> tuple[str, ...]:
        """The names of the breaker, if there is one."""
        if self.circuit_breaker is None:
            return ()
        return (self.name, self.alias) if self.alias else (self.name,)

    def follow(self) -> None:
        """Let every strategy take the values of ``policies``.

        A signal handler or another thread may change these meanwhile, and follow them itself. Each looks again after it
        has followed, so the last one does so after the last change.
        """
        while (policies := self.policies) is not self._followed:
            self._followed = None
            for policy in policies:
                kind = type(policy)
                for strategies in (self.strategies, *self.strategies.nested()):
                    if (strategy := strategies.get(kind)) is not None:
                        MEMORIES[kind].renew(strategy, policy)
            self._followed = policies

    def conditions(self) -> dict[type[Policy], Condition]:
        """Say how each strategy stands now whose policy is in force; of those for several keys, the worst."""
        try:
            return self._conditions()
        except Exception as error:  # noqa: BLE001  # others are to be asked
            tell_of_trouble(self.name, "nobody knows how it stands, for asking it failed", error)
            return {type(policy): _UNKNOWN for policy in self.policies}

    def _conditions(self) -> dict[type[Policy], Condition]:
        now, in_force = clock.monotonic(), {type(policy) for policy in self.policies}
        worst: dict[type[Policy], Condition] = {}
        for kind, strategy in in_use(self.strategies.items(), now):
            if kind in in_force and hasattr(strategy, "condition"):
                condition = strategy.condition(now)
                if condition is not None and (kind not in worst or condition[1:3] > worst[kind][1:3]):
                    worst[kind] = condition
        return worst

    def counts(self) -> dict[Series, float]:
        """Read every series of the method, histograms aside."""
        total: dict[Series, float] = {}
        for counters in self._counters:
            counters.account.read(total, {})
        return total

    def reset_after_fork(self, ident: int) -> None:
        """Give back what threads other than *ident* held, and measure time from 0, in the child of a fork."""
        for strategy in filter(None, self.strategies):
            strategy.reset_after_fork(ident)
        for breaker in self.every_breaker():
            breaker.start_counting(clock.monotonic())
        self.follow()  # a thread that is not here may have been about to


def conditions_of(state: State | None, values: Iterable[Effective]) -> dict[type[Policy], Condition]:
    """Return the condition of each strategy; of some policies also before the first call, when there is no *state*."""
    found = state.conditions() if state is not None else {}
    modes = {type(value.policy): value.observed for value in values if value.enabled}
    for row in ORDER:
        if row.condition is not None and row.policy in modes:
            is_obeyed = any(modes.get(kind) is False for kind in (row.modifies, row.or_else) if kind is not None)
            found[row.policy] = row.condition(is_obeyed)
    return found


class StateDraft:
    """The draft of a state under *policies*: nothing of it is there before ``put``.

    Args:
        state: The state, which may be a new one.
        policies: Those in force.
        entered: Where the counts are to be read.
        detached: Whether attempts may run detached.
    """

    __slots__ = ("_before", "_counters", "_ledger", "_meter", "_policies", "state", "strategies")

    def __init__(self, state: State, policies: Policies, entered: Ledger = ledger, *, detached: bool = False) -> None:
        self.state = state
        self._policies = policies
        self._before = _parts(state)
        self._ledger = entered
        self.strategies, self._counters, self._meter = self._before
        made = self.strategies.by_policy()
        for kind, memory in MEMORIES.items():
            if kind not in policies or kind in made:
                continue
            if memory.is_needed is None or memory.is_needed(policies[kind], detached):
                strategy = memory.make(state.name, policies[kind], self.strategies)
                if strategy is not None:
                    made[kind] = strategy
                    self.strategies = Strategies.of(made)

    def counters_for(
        self, name: str, queue: bool, kinds: Iterable[type[Policy]], *, counts_calls: bool = True
    ) -> Counters | None:
        """Give what counts the policies of *kinds* as *name*; ``None`` where nothing of them is counted."""
        schema = schema_of(kinds, queue=queue, counts_calls=counts_calls)
        return None if schema is None else self.counters_under(name, schema, queue=queue)

    def counters_under(self, name: str, schema: Schema, *, queue: bool) -> Counters:
        """Give what counts the series of *schema* as *name*."""
        counters = next((known for known in self._counters if known.account.schema is schema), None)
        if counters is None:
            counters = self._ledger.new(name, schema)
            self._counters = (*self._counters, counters)
        if self.strategies is not _NO_STRATEGIES:
            # It may not refer to the state, or that would be there for as long as its counts.
            meter = Meter(self.strategies.to_read(), queue or (self._meter is not None and self._meter.queues))
            if meter != self._meter:
                self._meter = meter
        return counters

    @property
    def is_current(self) -> bool:
        """Whether the state is still what it was when this was made."""
        return all(map(is_, self._before, _parts(self.state)))

    def put(self, swap: Swap) -> None:
        """Let the state become this, together with the other stores of *swap*."""
        state, policies = self.state, self._policies
        # What policies apply is stored before them: without the GIL, others see the stores one after another.
        for name in ("strategies", "_counters", "_meter"):
            swap.attribute(state, name, getattr(self, name))
        swap.attribute(state, "alias", alias_in(policies) or state.alias)
        remembering = tuple(policies[kind] for kind in MEMORIES if kind in policies)
        # What is new has its values already, unless others have it, too.
        if state.strategies is _NO_STRATEGIES and RetryBudget not in policies:
            swap.attribute(state, "_followed", remembering)
        swap.attribute(state, "policies", remembering)
        for counters in self._counters:
            if counters not in state._counters:
                self._ledger.enter(counters, swap)
        if self._meter is not None:
            swap.attribute(self._counters[0].account, "meter", self._meter)


def alias_in(policies: Policies) -> str:
    """Give the further name of a breaker with *policies*."""
    name = policies.get(CircuitBreakerName)
    return name.value if isinstance(name, CircuitBreakerName) and CircuitBreaker in policies else ""


def _parts(state: State) -> tuple[Strategies, tuple[Counters, ...], Meter | None]:
    return state.strategies, state._counters, state._meter
