"""The rows of the core: the policies of the specification, and others that are part of an attempt."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from .. import _policy as kinds
from .._deadline.clock import clock
from .._policy import ChronoUnit, Policy, seconds
from .._strategy import back_off, bulkhead, circuit_breaker, left_behind, rate_limit, retry
from ..exceptions import BulkheadException, CircuitBreakerOpenException, RateLimitException
from .bound_policies import conclude_of
from .budget import budget_of
from .error_log import ErrorLog
from .row import AttemptBinding, Binding, Policies, Row, StrategyFactory


def _retry_after(policy: kinds.HonorRetryAfter, report_error: back_off.ReportError) -> Any:
    from .._strategy.retry_after import RetryAfter

    return RetryAfter(
        seconds(policy.max_delay, ChronoUnit.MILLIS), policy.read, lambda: clock.wall_time(), report_error
    )


def _retry(policy: kinds.Retry, binding: Binding) -> Mapping[str, Any]:
    policies = binding.policies
    when: Any = policies.get(kinds.RetryWhen)
    honor: Any = policies.get(kinds.HonorRetryAfter)
    asks = when is not None or honor is not None or kinds.CustomBackoff in policies
    report_error = ErrorLog(binding.name) if asks else back_off.ignore_error
    delay, ceiling = seconds(policy.delay, policy.delay_unit), math.inf
    if policy.jitter_kind == "decorrelated":  # three times the last delay, repeated, would grow without end
        ceiling = max(delay, seconds(kinds.ExponentialBackoff.max_delay, ChronoUnit.MILLIS))
    growth = _growth(policies, delay, report_error)
    values: tuple[int, float, Any, float, Any, Any] = (
        policy.max_retries,
        seconds(policy.max_duration, policy.duration_unit),
        _jittered(policy.jitter_kind, growth or back_off.fixed(delay, ceiling)),
        seconds(policy.jitter, policy.jitter_delay_unit),
        policy.retry_on,
        policy.abort_on,
    )
    # A shared retry is kept for ever, so it must contain no object of the application.
    failures: tuple[Any, ...] = (*policy.retry_on, *policy.abort_on)  # type: ignore[misc]  # tuples once they are checked
    is_result_stored = getattr(policies.get(kinds.Fallback), "recalling", None) is not None
    is_own = policy.jitter_kind != "added" or is_result_stored
    if asks or growth or is_own or any(one.__module__ != "builtins" for one in failures):
        decides = retry.Retry(
            *values,
            predicates=when and retry.Predicates(when.exception, when.result, "@retry_when", report_error),
            retry_after=honor and _retry_after(honor, report_error),
            returns_rejected_result=when is not None and when.give == "result",
            is_result_stored=is_result_stored,
        )
    else:
        decides = _shared_retry(*values)
    return {"retry": decides}


_shared_retry = lru_cache(retry.Retry)  # most guards have equal values


def _growth(
    policies: Policies, delay: float, report_error: back_off.ReportError
) -> back_off.BackOff | back_off.CustomBackOff | None:
    """Return the growth of the delays that a policy beside the retry declares, or ``None``."""
    if isinstance(policy := policies.get(kinds.ExponentialBackoff), kinds.ExponentialBackoff):
        maximum = seconds(policy.max_delay, policy.max_delay_unit)
        return back_off.Exponential(delay, policy.factor, maximum, seconds(policy.min_delay, ChronoUnit.MILLIS))
    if isinstance(policy := policies.get(kinds.FibonacciBackoff), kinds.FibonacciBackoff):
        return back_off.fibonacci(delay, seconds(policy.max_delay, policy.max_delay_unit))
    if isinstance(policy := policies.get(kinds.CustomBackoff), kinds.CustomBackoff):
        return back_off.CustomBackOff(policy.value, delay, report_error)
    return None


def _jittered(kind: str, growth: back_off.AnyBackOff) -> back_off.AnyBackOff:
    """Return the back-off that draws the delays of *growth*; an added jitter and custom delays need none."""
    if kind == "added" or not isinstance(growth, back_off.BackOff):
        return growth
    return back_off.Full(growth) if kind == "full" else back_off.Decorrelated(growth.delay(1), growth.maximum)


def chance() -> float:
    """Return a random number of the present clock. A lambda for each strategy would take 152 bytes."""
    return clock.random()


_RETRY_BUDGET = StrategyFactory(budget_of, lambda budget, policy: budget.renew(policy.ratio, policy.burst))


def _retry_budget(policy: kinds.RetryBudget, binding: Binding) -> Mapping[str, Any]:
    return {
        "budget": binding.strategies.get(kinds.RetryBudget),
        "on_budget_refusal": binding.on_refusal_of(kinds.RetryBudget),
    }


_shared_values = lru_cache(circuit_breaker.CircuitValues)  # most guards have equal values


def _circuit_values(policy: kinds.CircuitBreaker) -> circuit_breaker.CircuitValues:
    return _shared_values(
        seconds(policy.delay, policy.delay_unit),
        policy.request_volume_threshold,
        policy.failure_ratio,
        policy.success_threshold,
        seconds(policy.window, ChronoUnit.MILLIS),
        seconds(policy.max_delay, ChronoUnit.MILLIS),
    )


_BREAKER = StrategyFactory(
    lambda name, policy, _: circuit_breaker.CircuitBreaker(
        name, _circuit_values(policy), chance=chance, now=clock.monotonic()
    ),
    lambda breaker, policy: breaker.reconfigure(_circuit_values(policy), clock.monotonic()),
)


def _decorated(socket: str, binding: Binding, strategy: Any, value: Any) -> Any:
    """Return *strategy* after the decorations by a *socket* of all rows, innermost first, which also take *value*."""
    for decorate in [*filter(None, map(attrgetter(socket), binding.rows))][::-1]:
        strategy = decorate(strategy, value, binding)
    return strategy


def gate_values(policy: Any, binding: Binding) -> Mapping[str, Any]:
    """Return the values that a *policy* with a gate binds: the name, and its rule for failures."""
    when: Any = binding.policies.get(kinds.FailWhen)
    # Beside a policy that names every exception, a predicate would add nothing.
    decides_alone = when is not None and when.exception is not None and policy.fail_on == (Exception,)
    gate = binding.strategies.get(type(policy))
    asked = _decorated("gate", binding, gate, policy)
    is_observed = binding.on_refusal_of(type(policy)) is not None
    return {
        "gate": asked,
        "gate_name": policy.annotation,
        "deliver": binding.deliver if asked is gate else lambda _: binding.deliver(gate, is_observed),
        "fail_on": () if decides_alone else policy.fail_on,
        "skip_on": policy.skip_on,
        "fail_when": when and retry.Predicates(when.exception, when.result, "@fail_when", ErrorLog(binding.name)),
    }


def _circuit_breaker(policy: kinds.CircuitBreaker, binding: Binding) -> Mapping[str, Any]:
    return {**gate_values(policy, binding), "slow": seconds(policy.slow, ChronoUnit.MILLIS)}


def _limit_values(policy: kinds.RateLimit) -> rate_limit.LimitValues:
    window, spacing = seconds(policy.window, policy.window_unit), seconds(policy.min_spacing, policy.min_spacing_unit)
    kind: Any = policy.type.value  # type: ignore[union-attr]  # a member once it is checked
    max_wait = seconds(policy.max_wait, ChronoUnit.MILLIS)
    return rate_limit.LimitValues(policy.value, window, spacing, kind, max_wait, policy.burst)


_RATE_LIMIT = StrategyFactory(
    lambda name, policy, _: rate_limit.RateLimit(name, _limit_values(policy)),
    lambda limit, policy: limit.reconfigure(_limit_values(policy), clock.monotonic()),
)


def _rate_limit(policy: kinds.RateLimit, binding: Binding) -> Mapping[str, Any]:
    may_wait = _limit_values(policy).max_wait > 0.0 and binding.may_wait
    limit = binding.strategies.get(kinds.RateLimit)
    for row in reversed(binding.rows):
        if row.limit is not None:
            limit, may_wait = row.limit(limit, may_wait, binding)
    return {"rate_limit": limit, "takes_turns": may_wait}


def _timeout(policy: kinds.Timeout, binding: Binding) -> Mapping[str, Any]:
    limit = seconds(policy.value, policy.unit)
    bound: dict[str, Any] = {"seconds": limit or math.inf, "interrupt": policy.interrupt}
    if not limit or binding.on_refusal_of(kinds.Timeout) is not None:
        return bound
    if binding.detached:
        return {**bound, "left_behind": binding.strategies.get(kinds.Timeout)}
    return {**bound, "conclude": conclude_of(binding.asynchronous)}


def _adapt_timeout(attempts: left_behind.LeftBehind, policy: kinds.Timeout) -> left_behind.LeftBehind:
    if policy.adaptive or attempts.limit is not None:
        attempts.follow(seconds(policy.value, policy.unit) if policy.adaptive else 0.0)
    return attempts


_TIMEOUT = StrategyFactory(
    lambda _, policy, __: _adapt_timeout(left_behind.LeftBehind(), policy),
    _adapt_timeout,
    lambda policy, detached: detached or policy.adaptive,  # 73 bytes less for every other time-out
)


def _bulkhead_values(policy: kinds.Bulkhead) -> tuple[int, int, float, float]:
    max_wait, latency = seconds(policy.max_wait, ChronoUnit.MILLIS), seconds(policy.latency, ChronoUnit.MILLIS)
    return policy.value, policy.waiting_task_queue, max_wait, latency


def _bulkhead_of(name: str, policy: kinds.Bulkhead, strategies: Any) -> bulkhead.Bulkhead:
    breaker = strategies.get(kinds.CircuitBreaker)
    lock = breaker.lock if breaker is not None else None  # one lock less per method
    limit, queue, max_wait, latency = _bulkhead_values(policy)
    return bulkhead.Bulkhead(limit, queue, name, max_wait=max_wait, latency=latency, now=_now, lock=lock)


def _now() -> float:
    return clock.monotonic()


_BULKHEAD = StrategyFactory(_bulkhead_of, lambda permits, policy: permits.resize(*_bulkhead_values(policy)))


def may_queue(policies: Policies, asynchronous: bool) -> bool:
    """Return whether calls may wait for a permit: asynchronous calls, and others with a longest wait."""
    policy: Any = policies.get(kinds.Bulkhead)
    return asynchronous or (policy is not None and seconds(policy.max_wait, ChronoUnit.MILLIS) > 0.0)


def _bulkhead(policy: kinds.Bulkhead, binding: Binding) -> Mapping[str, Any]:
    queues = may_queue(binding.policies, binding.asynchronous)
    permits = binding.strategies.get(kinds.Bulkhead)
    decorated = _decorated("permits", binding, permits, queues)
    if decorated is permits and not binding.may_wait:
        decorated = bulkhead.UnqueuedBulkhead(permits)
    return {"bulkhead": decorated, "queues": queues}


def _fallback(policy: kinds.Fallback, _: Binding) -> Mapping[str, Any]:
    never: Any = policy.skip_on
    if recalls(policy):
        from .._signature.call_key import UnsuitableKeyError  # else the next fallback would answer

        never = (*never, UnsuitableKeyError)
    return {"fallback_on": policy.apply_on, "no_fallback_on": never}


def recalls(policy: kinds.Fallback, detached: bool = False) -> bool:
    """Return whether a handler of *policy* recalls a result of an earlier call."""
    return policy.recalling is not None


def where_set(make: Callable[..., Any], parameters: Mapping[type[Policy], str]) -> Callable[..., Any]:
    """Return *make* for guards with a value of one of *parameters*, each of its policy; all others get ``None``."""

    def asked(part: Any, binding: Binding) -> Any:
        is_set = any(getattr(binding.policies.get(kind), name, None) for kind, name in parameters.items())
        return make(part, binding) if is_set else None

    return asked


ASYNCHRONOUS = Row(kinds.Asynchronous, excludes=kinds.AsynchronousNonBlocking)
ASYNCHRONOUS_NON_BLOCKING = Row(kinds.AsynchronousNonBlocking)
FALLBACK = Row(
    kinds.Fallback,
    _fallback,
    block_fault=("replaces a result, and a block has none", ""),
)
RETRY = (
    Row(kinds.Retry, _retry),
    Row(kinds.ExponentialBackoff, modifies=kinds.Retry, is_back_off=True),
    Row(kinds.FibonacciBackoff, modifies=kinds.Retry, is_back_off=True),
    Row(kinds.CustomBackoff, modifies=kinds.Retry, is_back_off=True),
    Row(kinds.HonorRetryAfter, modifies=kinds.Retry),
    Row(kinds.RetryWhen, modifies=kinds.Retry),
    Row(kinds.BeforeRetry, modifies=kinds.Retry),
)
"""The retry, and what modifies it."""
CIRCUIT_BREAKER = Row(
    kinds.CircuitBreaker,
    _circuit_breaker,
    _BREAKER,
    is_gate=True,
    refusal=(CircuitBreakerOpenException, "an open circuit refuses"),
)
CIRCUIT_BREAKER_NAME = Row(kinds.CircuitBreakerName, modifies=kinds.CircuitBreaker)
RATE_LIMIT = Row(kinds.RateLimit, _rate_limit, _RATE_LIMIT, refusal=(RateLimitException, "the rate limit refuses"))
TIMEOUT = Row(kinds.Timeout, _timeout, _TIMEOUT)
BULKHEAD = Row(kinds.Bulkhead, _bulkhead, _BULKHEAD, refusal=(BulkheadException, "a full bulkhead refuses"))


def _around_attempt(function: Callable[..., Any], body: AttemptBinding) -> Callable[..., Any]:
    for wrapper in body.binding.call_wrappers:
        function = wrapper.around_attempt(function, body.binding.name, body.environment, body.is_awaited)
    return function


CALL_WRAPPERS = Row(around_attempt=_around_attempt)
"""The overrides of tests, which are no policies."""


def retry_budget(*, or_else: type[Policy] | None = None) -> Row:
    """Return the row of the retry budget, which may also modify the policy *or_else* instead of the retry."""
    return Row(kinds.RetryBudget, _retry_budget, _RETRY_BUDGET, modifies=kinds.Retry, or_else=or_else)


def fail_when(*, or_else: type[Policy] | None = None) -> Row:
    """Return the row of ``@fail_when``, which may also modify the gate *or_else* instead of the circuit breaker."""
    return Row(kinds.FailWhen, modifies=kinds.CircuitBreaker, or_else=or_else)


def is_detached(policies: Container[type[Policy]]) -> bool:
    """Return whether calls under *policies* are asynchronous, independent of the function."""
    return kinds.Asynchronous in policies or kinds.AsynchronousNonBlocking in policies
