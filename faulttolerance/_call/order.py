"""The order in which policies nest, and what each of them brings to a call: a new policy is a new row.

The specification (chapters on interactions) and SmallRye's rate limit give the order, whatever order the decorators are
written in; the adaptive throttle takes the place of the circuit breaker:

    partition_by( coalesce( asynchronous( fallback( deadline( retry( hedge( circuit_breaker( rate_limit( timeout(
    bulkhead( method )))))))))))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, TypedDict

from .._deadline.clock import clock
from .._execution.criticality import Criticality
from .._extensions.adaptive_throttle import strategy as adaptive_throttle
from .._extensions.coalesce.strategy import Flights
from .._extensions.deadline.layer import time_limit_of, under_deadline
from .._extensions.hedge import strategy as hedge
from .._extensions.hedge.layer import has_lost, racing
from .._extensions.last_good.layer import Remembering
from .._extensions.last_good.strategy import LastResults
from .._extensions.observe.layer import timed
from .._extensions.observe.strategy import ObservedBulkhead, ObservedGate, ObservedRateLimit
from .._extensions.partition_by.strategy import Partitions
from .._policy import (
    AdaptiveThrottle,
    Asynchronous,
    AsynchronousNonBlocking,
    BeforeRetry,
    Bulkhead,
    ChronoUnit,
    CircuitBreaker,
    CircuitBreakerName,
    Coalesce,
    CustomBackoff,
    Deadline,
    ExponentialBackoff,
    FailWhen,
    Fallback,
    FibonacciBackoff,
    FleetWide,
    Hedge,
    HonorRetryAfter,
    LastGood,
    PartitionBy,
    Policy,
    RateLimit,
    Retry,
    RetryBudget,
    RetryWhen,
    Timeout,
    seconds,
)
from .._strategy import back_off, bulkhead, circuit_breaker, left_behind, rate_limit, retry
from .._strategy.retry_after import RetryAfter
from .._strategy.unqueued import UnqueuedBulkhead
from .budget import budget_of
from .mistakes import Mistakes
from .row import Binding, Layer, Memory, Policies, Row, StrategyLookup, key_of
from .settle import conclude_of


class Strategies(tuple[Any, ...]):
    """The strategies that remember something between calls: one for each row with a memory, or ``None`` so far.

    A method may have one of these and little else: it takes a third of the memory of a dictionary, and ends behind the
    last strategy that there is. So those that most methods have come first (``_PLACES``).
    """

    __slots__ = ()

    def get(self, policy: type[Policy]) -> Any:
        """Give the strategy of *policy*, if there is one."""
        place = _PLACES[policy]
        return self[place] if place < len(self) else None

    def by_policy(self) -> dict[type[Policy], Any]:
        """Give the strategies that there are by their policies, in the order of ``MEMORIES``."""
        return {policy: strategy for policy in MEMORIES if (strategy := self.get(policy)) is not None}

    @classmethod
    def of(cls, by_policy: Mapping[type[Policy], Any]) -> Strategies:
        """Give those of *by_policy*."""
        places = [by_policy.get(policy) for policy in _PLACES]
        while places and places[-1] is None:
            places.pop()
        return cls(places)

    def items(self) -> Iterator[tuple[type[Policy], Any]]:
        """Give the strategies that there are, each with its policy; those for each key too."""
        yield from self.by_policy().items()
        for partition in self.get(PartitionBy) or ():
            yield from partition.strategies.items()

    def to_read(self) -> Strategies:
        """Give those that metrics read, for as long as there are counts: no budget, which goes with its guards."""
        return self if self.get(RetryBudget) is None else self.of({**self.by_policy(), RetryBudget: None})


class GuardPolicies(TypedDict, total=False):
    """What type checkers know of the policies that a ``Guard`` takes, those of ``ORDER`` by the names of decorators."""

    fallback: Fallback | None
    deadline: Deadline | None
    retry: Retry | None
    exponential_backoff: ExponentialBackoff | None
    fibonacci_backoff: FibonacciBackoff | None
    custom_backoff: CustomBackoff | None
    honor_retry_after: HonorRetryAfter | None
    retry_when: RetryWhen | None
    before_retry: BeforeRetry | None
    retry_budget: RetryBudget | None
    hedge: Hedge | None
    circuit_breaker: CircuitBreaker | None
    circuit_breaker_name: CircuitBreakerName | None
    adaptive_throttle: AdaptiveThrottle | None
    fail_when: FailWhen | None
    rate_limit: RateLimit | None
    fleet_wide: FleetWide | None
    timeout: Timeout | None
    bulkhead: Bulkhead | None
    coalesce: Coalesce | None
    partition_by: PartitionBy | None


def is_detached(policies: Container[type[Policy]]) -> bool:
    """Tell whether calls under *policies* are asynchronous whatever the function is."""
    return Asynchronous in policies or AsynchronousNonBlocking in policies


def _retry(policy: Retry, binding: Binding) -> Mapping[str, Any]:
    policies, name = binding.policies, binding.name
    when: Any = policies.get(RetryWhen)
    honor: Any = policies.get(HonorRetryAfter)
    asks = when is not None or honor is not None or CustomBackoff in policies
    tell = Mistakes(name) if asks else retry.unheard
    delay, ceiling = seconds(policy.delay, policy.delay_unit), math.inf
    if policy.jitter_kind == "decorrelated":  # three times the last one, and so on, would have no end
        ceiling = max(delay, seconds(ExponentialBackoff.max_delay, ChronoUnit.MILLIS))
    growth = [
        row.back_off(policies[row.policy], delay, name, tell)
        for row in ORDER
        if row.back_off and row.policy in policies
    ]
    values: tuple[int, float, Any, float, Any, Any] = (
        policy.max_retries,
        seconds(policy.max_duration, policy.duration_unit),
        _JITTERED[policy.jitter_kind](growth[0] if growth else back_off.fixed(delay, ceiling)),
        seconds(policy.jitter, policy.jitter_delay_unit),
        policy.retry_on,
        policy.abort_on,
    )
    # What is shared is kept: nothing of the application is. Under keys, one guard decides for all of them.
    failures: tuple[Any, ...] = (*policy.retry_on, *policy.abort_on)  # type: ignore[misc]  # tuples once they are checked
    is_remembered = memory_in(policies.get(Fallback)) is not None
    is_own = policy.jitter_kind != "added" or is_remembered or PartitionBy in policies
    if asks or growth or is_own or any(one.__module__ != "builtins" for one in failures):
        decides = retry.Retry(
            *values,
            exception_predicate=when and when.exception,
            result_predicate=when and when.result,
            tell=tell,
            retry_after=honor and RetryAfter(seconds(honor.max_delay, ChronoUnit.MILLIS), honor.read, _wall_time, tell),
            gives_result=when is not None and when.give == "result",
            is_remembered=is_remembered,
        )
    else:
        decides = retry.shared_retry(*values)
    return {"retry": decides}


_JITTERED: Mapping[str, Callable[[Any], back_off.AnyBackOff]] = {
    "added": lambda growth: growth,
    "full": lambda growth: back_off.Full(growth) if growth.has_jitter else growth,
    "decorrelated": lambda growth: (
        back_off.Decorrelated(growth.delay(1), growth.maximum) if growth.has_jitter else growth
    ),
}


def _chance() -> float:
    return clock.random()


def _wall_time() -> float:
    return clock.wall_time()


_RETRY_BUDGET = Memory(budget_of, lambda budget, policy: budget.renew(policy.ratio, policy.burst))


def _retry_budget(policy: RetryBudget, binding: Binding) -> Mapping[str, Any]:
    return {"budget": binding.strategies.get(RetryBudget), "tell_of_budget": binding.tell_of(RetryBudget)}


def _breaker_values(policy: CircuitBreaker) -> dict[str, Any]:
    return {
        "delay": seconds(policy.delay, policy.delay_unit),
        "request_volume_threshold": policy.request_volume_threshold,
        "failure_ratio": policy.failure_ratio,
        "success_threshold": policy.success_threshold,
        "window": seconds(policy.window, ChronoUnit.MILLIS),
        "max_delay": seconds(policy.max_delay, ChronoUnit.MILLIS),
        "now": clock.monotonic(),
    }


_BREAKER = Memory(
    lambda name, policy, _: circuit_breaker.CircuitBreaker(name, **_breaker_values(policy), chance=_chance),
    lambda breaker, policy: breaker.reconfigure(**_breaker_values(policy)),
)


def _gate(policy: CircuitBreaker | AdaptiveThrottle, binding: Binding) -> Mapping[str, Any]:
    when: Any = binding.policies.get(FailWhen)
    # Beside what names every exception a predicate would say nothing.
    decides_alone = when is not None and when.exception is not None and policy.fail_on == (Exception,)
    gate, tell = binding.strategies.get(type(policy)), binding.tell_of(type(policy))
    asked = gate if tell is None else ObservedGate(gate, tell)
    if tell is None and FleetWide in binding.policies and isinstance(policy, CircuitBreaker):
        asked = binding.strategies.get(FleetWide).gate(gate, binding.deliver)
    if Hedge in binding.policies:
        asked = hedge.DeafGate(asked, has_lost)
    return {
        "gate": asked,
        "gate_name": policy.annotation,
        "deliver": binding.deliver if asked is gate else lambda _: binding.deliver(gate),
        "fail_on": () if decides_alone else policy.fail_on,
        "skip_on": policy.skip_on,
        "fail_when": when and retry.Predicates(when.exception, when.result, "@fail_when", Mistakes(binding.name)),
        "slow": seconds(policy.slow, ChronoUnit.MILLIS) if isinstance(policy, CircuitBreaker) else 0.0,
    }


def _throttle_values(policy: AdaptiveThrottle) -> tuple[float, float, int]:
    return policy.multiplier, seconds(policy.window, ChronoUnit.MILLIS), policy.min_requests


_THROTTLE = Memory(
    lambda name, policy, _: adaptive_throttle.AdaptiveThrottle(
        name, *_throttle_values(policy), _chance, Criticality.current
    ),
    lambda throttle, policy: throttle.reconfigure(*_throttle_values(policy), clock.monotonic()),
)


def _limit_values(policy: RateLimit) -> tuple[int, float, float, Any]:
    window, spacing = seconds(policy.window, policy.window_unit), seconds(policy.min_spacing, policy.min_spacing_unit)
    return policy.value, window, spacing, policy.type.value  # type: ignore[union-attr]  # a member once it is checked


def _waiting_values(policy: RateLimit) -> tuple[float, int]:
    return seconds(policy.max_wait, ChronoUnit.MILLIS), policy.burst


_RATE_LIMIT = Memory(
    lambda name, policy, _: rate_limit.RateLimit(name, *_limit_values(policy), *_waiting_values(policy)),
    lambda limit, policy: limit.reconfigure(*_limit_values(policy), clock.monotonic(), *_waiting_values(policy)),
)


def _rate_limit(policy: RateLimit, binding: Binding) -> Mapping[str, Any]:
    limit, tell = binding.strategies.get(RateLimit), binding.tell_of(RateLimit)
    if tell is not None:
        return {"rate_limit": ObservedRateLimit(limit, tell)}
    may_wait = _waiting_values(policy)[0] > 0.0 and not binding.is_hedge
    if FleetWide in binding.policies:
        from .._extensions.fleet.limit import FleetRateLimit
        from .._extensions.fleet.link import lane  # few functions are the fleet's

        member = binding.strategies.get(FleetWide)
        shared = FleetRateLimit(limit, member.part, member.key, lane, may_wait=may_wait)
        return {"rate_limit": shared, "takes_turns": True}  # it waits for answers at least
    return {"rate_limit": limit, "takes_turns": may_wait}


def _member_of(name: str, *_: object) -> Any:
    from .._extensions.fleet.layer import Member  # few functions are the fleet's

    return Member(name)


_FLEET_WIDE = Memory(_member_of, lambda member, _: member)


def _observed_timeout(policy: Timeout, binding: Binding) -> Layer | None:
    limit, tell = seconds(policy.value, policy.unit), binding.tell_of(Timeout)
    if tell is None or not limit or binding.is_block:
        return None
    return timed(limit, tell, binding.strategies.get(Timeout).adaptive(limit) if policy.adaptive else None)


def _timeout(policy: Timeout, binding: Binding) -> Mapping[str, Any]:
    bound: dict[str, Any] = {"seconds": seconds(policy.value, policy.unit), "interrupt": policy.interrupt}
    if not bound["seconds"] or binding.tell_of(Timeout) is not None:
        return bound
    if policy.adaptive:
        bound["time_limit"] = binding.strategies.get(Timeout).adaptive(bound["seconds"])
    if binding.detached:
        return {**bound, "left_behind": binding.strategies.get(Timeout)}
    return {**bound, "conclude": conclude_of(binding.asynchronous)}


def _adapt_timeout(bodies: left_behind.LeftBehind, policy: Timeout) -> left_behind.LeftBehind:
    if policy.adaptive or bodies.limit is not None:
        bodies.follow(seconds(policy.value, policy.unit) if policy.adaptive else 0.0)
    return bodies


_TIMEOUT = Memory(
    lambda _, policy, __: _adapt_timeout(left_behind.LeftBehind(), policy),
    _adapt_timeout,
    lambda policy, detached: detached or policy.adaptive,  # 73 bytes less for every other time-out
)


def _bulkhead_values(policy: Bulkhead) -> tuple[int, int, float, float]:
    max_wait, latency = seconds(policy.max_wait, ChronoUnit.MILLIS), seconds(policy.latency, ChronoUnit.MILLIS)
    return policy.value, policy.waiting_task_queue, max_wait, latency


def _bulkhead_of(name: str, policy: Bulkhead, strategies: StrategyLookup) -> bulkhead.Bulkhead:
    breaker = strategies.get(CircuitBreaker)
    lock = breaker.lock if breaker is not None else None  # one less per method
    limit, queue, max_wait, latency = _bulkhead_values(policy)
    return bulkhead.Bulkhead(limit, queue, name, max_wait=max_wait, latency=latency, now=_now, lock=lock)


def _now() -> float:
    return clock.monotonic()


_BULKHEAD = Memory(_bulkhead_of, lambda permits, policy: permits.resize(*_bulkhead_values(policy)))


def may_queue(policies: Policies, asynchronous: bool) -> bool:
    """Tell whether calls may wait for a permit: asynchronous ones, and others where there is a longest wait."""
    policy: Any = policies.get(Bulkhead)
    return asynchronous or (policy is not None and _bulkhead_values(policy)[2] > 0.0)


def _bulkhead(policy: Bulkhead, binding: Binding) -> Mapping[str, Any]:
    permits, tell = binding.strategies.get(Bulkhead), binding.tell_of(Bulkhead)
    bound: dict[str, Any] = {"bulkhead": permits, "queues": may_queue(binding.policies, binding.asynchronous)}
    if tell is not None:
        bound["bulkhead"] = ObservedBulkhead(permits, tell, may_wait=bound["queues"])
    elif binding.is_hedge:
        bound["bulkhead"] = UnqueuedBulkhead(permits)
    if seconds(policy.latency, ChronoUnit.MILLIS):
        from .._extensions.adaptive.limit_listener import Limiter

        bound["limiter"] = Limiter(binding.name, permits, detached=binding.detached)
    return bound


def _exponential(policy: ExponentialBackoff, delay: float, *_: object) -> back_off.BackOff:
    maximum = seconds(policy.max_delay, policy.max_delay_unit)
    return back_off.exponential(delay, policy.factor, maximum, seconds(policy.min_delay, ChronoUnit.MILLIS))


def _fibonacci(policy: FibonacciBackoff, delay: float, *_: object) -> back_off.BackOff:
    return back_off.fibonacci(delay, seconds(policy.max_delay, policy.max_delay_unit))


def _custom(policy: CustomBackoff, delay: float, name: str, tell: back_off.Mistakes) -> back_off.CustomBackOff:
    return back_off.CustomBackOff(policy.value, name, delay, tell)


def _coalesce(policy: Coalesce, binding: Binding) -> Layer:
    from .._extensions.coalesce.layer import Coalescing

    flights, counters = binding.strategies.get(Coalesce), binding.counters_of(Coalesce)
    return Coalescing(binding.name, flights, key_of(policy.key, binding), counters)


def _hedge_values(policy: Hedge) -> tuple[int, float, float]:
    return policy.max_hedges, policy.quantile, seconds(policy.delay, ChronoUnit.MILLIS)


_HEDGE = Memory(
    lambda name, policy, _: hedge.Hedge(*_hedge_values(policy)),
    lambda hedges, policy: hedges.reconfigure(*_hedge_values(policy)),
)


def _in_races(policy: Hedge, binding: Binding) -> Mapping[str, Any]:
    """Bind nothing; but what stands around a race counts the calls, each of them once."""
    return {}


def _limit_partitions(partitions: Partitions, policy: PartitionBy) -> None:
    partitions.limit = policy.max_partitions


def memory_in(policy: Policy | None) -> LastGood | None:
    """Give the ``last_good`` among what *policy* asks, if that is a fallback."""
    value = getattr(policy, "value", None)
    several = value if isinstance(value, tuple) else (value,)
    return next((one for one in several if isinstance(one, LastGood)), None)


def _results_of(name: str, policy: Fallback, _: object) -> LastResults | None:
    value = memory_in(policy)
    return None if value is None else LastResults(seconds(value.max_age, ChronoUnit.MILLIS), value.max_entries)


def _renew_results(results: LastResults | None, policy: Fallback) -> None:
    value = memory_in(policy)
    if results is not None and value is not None:
        results.reconfigure(seconds(value.max_age, ChronoUnit.MILLIS), value.max_entries)


_LAST_GOOD = Memory(_results_of, _renew_results)


def _last_good(policy: Fallback, binding: Binding) -> Layer | None:
    value = memory_in(policy)
    if value is None:
        return None
    from .._signature.call_key import Target

    return Remembering(binding.name, binding.strategies.get(Fallback), key_of(value.key, binding, Target))


ORDER = (
    Row(PartitionBy, memory=Memory(lambda name, policy, _: Partitions(policy.max_partitions), _limit_partitions)),
    Row(Coalesce, memory=Memory(lambda *_: Flights(), lambda *_: None), layer=_coalesce, is_for_classes=False),
    Row(Asynchronous, excludes=AsynchronousNonBlocking),
    Row(AsynchronousNonBlocking),
    Row(
        Fallback,
        lambda policy, _: {"fallback_on": policy.apply_on, "no_fallback_on": policy.skip_on},
        _LAST_GOOD,
        layer=_last_good,
    ),
    Row(Deadline, time_limit_of, layer=under_deadline),
    Row(Retry, _retry),
    Row(ExponentialBackoff, modifies=Retry, back_off=_exponential),
    Row(FibonacciBackoff, modifies=Retry, back_off=_fibonacci),
    Row(CustomBackoff, modifies=Retry, back_off=_custom),
    Row(HonorRetryAfter, modifies=Retry),
    Row(RetryWhen, modifies=Retry),
    Row(BeforeRetry, modifies=Retry),
    Row(RetryBudget, _retry_budget, _RETRY_BUDGET, modifies=Retry, or_else=Hedge),
    Row(Hedge, _in_races, _HEDGE, layer=racing),
    Row(CircuitBreaker, _gate, _BREAKER),
    Row(CircuitBreakerName, modifies=CircuitBreaker),
    Row(AdaptiveThrottle, _gate, _THROTTLE, excludes=CircuitBreaker),
    Row(FailWhen, modifies=CircuitBreaker, or_else=AdaptiveThrottle),
    Row(RateLimit, _rate_limit, _RATE_LIMIT),
    Row(FleetWide, memory=_FLEET_WIDE, modifies=CircuitBreaker, or_else=RateLimit),
    Row(Timeout, _timeout, _TIMEOUT, layer=_observed_timeout),
    Row(Bulkhead, _bulkhead, _BULKHEAD),
)
"""Outermost first."""

ROWS: Mapping[type[Policy], Row] = {row.policy: row for row in ORDER}
RANK: Mapping[type[Policy], int] = {row.policy: rank for rank, row in enumerate(ORDER)}
"""The place of each policy in the order."""

MODIFIED: Mapping[type[Policy], type[Policy]] = {row.policy: row.modifies for row in ORDER if row.modifies is not None}
"""The policies that do nothing by themselves, and those that they belong to."""

MEMORIES: Mapping[type[Policy], Memory] = {
    row.policy: row.memory
    for row in sorted(ORDER, key=lambda row: row.policy is FleetWide)  # the last one to be made and shown
    if row.memory is not None
}
_FREQUENT = (CircuitBreaker, Timeout, Bulkhead)
_PLACES: Mapping[type[Policy], int] = {
    policy: place for place, policy in enumerate(sorted(MEMORIES, key=lambda policy: policy not in _FREQUENT))
}
