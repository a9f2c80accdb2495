"""Definitions that are allowed but seldom intended: ``check`` reports them, and no code rejects them (rule M4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from .._call.order import ROWS
from .._config import Declared, Snapshot, ignore_keys
from .._guard_value.guard import decorated_functions
from .._inspection.explanation import explanations_of
from .._policy import (
    ChronoUnit,
    CircuitBreaker,
    ExponentialBackoff,
    FailWhen,
    Fallback,
    FibonacciBackoff,
    HonorRetryAfter,
    Policy,
    Retry,
    RetryWhen,
    Timeout,
    format_duration,
    in_milliseconds,
    parameters,
    seconds,
)
from .._shown import brief, escaped, shown
from ..exceptions import CircuitBreakerOpenException, FaultToleranceException, RateLimitException, TimeoutException

if TYPE_CHECKING:
    from .._control.configure import GuardedMethod

Policies = Mapping[type[Policy], Any]
"""The policies of a guard that are at work: neither a time-out of 0, nor a retry without retries."""
Findings = Iterator[str]
"""The parameter, as in ``@Retry(retry_on)``, the reason for the doubt, and a remedy."""

_SHORT = 0.01
_MISTAKES = (NameError, AttributeError, TypeError)
_REFUSALS: list[tuple[type[Policy], Any, str]] = [
    (kind, *row.refusal) for kind, row in ROWS.items() if row.refusal is not None
]


class LintFinding(NamedTuple):
    """A definition that is seldom intended.

    Args:
        code: The code that switches the lint off.
        where: The guarded function, or the guard.
        what: The text that a lint yields, see ``Findings``.
    """

    code: str
    where: str
    what: str

    def __str__(self) -> str:
        return escaped(f"{self.where} {self.what} [{self.code}]")


def _uncounted(policies: Policies) -> Findings:
    """Specification, circuitbreaker: any exception that ``failOn`` does not name is a success."""
    breaker = policies.get(CircuitBreaker)
    if breaker is None or _is_predicate(policies.get(FailWhen)):
        return
    for kind, error, case in (*_REFUSALS, (Timeout, TimeoutException, "takes too long")):
        is_inside = kind in policies and not hasattr(kind, "fail_on")
        if is_inside and not _names(error, breaker.fail_on, breaker.skip_on):
            yield (
                f"@CircuitBreaker(fail_on) does not name {error.__name__}: a call that {case} counts as a success; name"
                f" {error.__name__} in fail_on, or in skip_on if that is meant"
            )


def _bare(policies: Policies) -> Findings:
    retry = _retry_by_sets(policies)
    if retry is not None and retry.retry_on == (Exception,) and not retry.abort_on:
        yield (
            "@Retry(retry_on) is Exception: every failure is retried, also bugs and actions that must not happen twice;"
            " name the failures that another attempt may cure"
        )


def _not_retried(policies: Policies) -> Findings:
    retry = _retry_by_sets(policies)
    if retry is not None and Timeout in policies and not _names(TimeoutException, retry.retry_on, retry.abort_on):
        yield (
            "@Retry(retry_on) does not name TimeoutException: an attempt that times out is not retried; name"
            " TimeoutException in retry_on, or in abort_on if that is meant"
        )


def _scattered(policies: Policies) -> Findings:
    retry = policies.get(Retry)
    if retry is None or retry.jitter_kind != "added":
        return
    delay, jitter = seconds(retry.delay, retry.delay_unit), seconds(retry.jitter, retry.jitter_delay_unit)
    if 0 < delay < jitter:
        yield (
            f"@Retry(jitter) is {_spelled(jitter)} while delay is {_spelled(delay)}: some retries start without any"
            " delay; set a jitter of at most the delay"
        )


def _hasty(policies: Policies) -> Findings:
    timeout = policies.get(Timeout)
    if timeout is not None and (limit := seconds(timeout.value, timeout.unit)) < _SHORT:
        yield (
            f"@Timeout(value) is {_spelled(limit)}: below 10ms, pauses of threads and of garbage collection end"
            " healthy calls; a bare number counts milliseconds"
        )


def _impatient(policies: Policies) -> Findings:
    breaker, timeout = policies.get(CircuitBreaker), policies.get(Timeout)
    if breaker is None or timeout is None:
        return
    delay, limit = seconds(breaker.delay, breaker.delay_unit), seconds(timeout.value, timeout.unit)
    if delay < limit:
        yield (
            f"@CircuitBreaker(delay) is {_spelled(delay)} while @Timeout(value) is {_spelled(limit)}: the next probe"
            " is admitted before the last probe can have failed; set a delay of at least the time-out"
        )


def _swallows(policies: Policies) -> Findings:
    fallback = policies.get(Fallback)
    if fallback is None or any(_names(mistake, fallback.skip_on) for mistake in _MISTAKES):
        return
    if _has_class_of(NameError, fallback.apply_on):
        yield (
            f"@Fallback(apply_on) is {_listed(fallback.apply_on)}: a bug, such as a NameError, looks like an outage;"
            " name the failures that need the fallback in apply_on, or NameError, AttributeError and TypeError in"
            " skip_on"
        )


def _as_if_seconds(policies: Policies) -> Findings:
    for kind, policy in policies.items():
        for name, parameter in parameters(kind).items() if kind is not Timeout else ():  # FT005 reports time-outs
            value, unit = getattr(policy, name), parameter.kind.unit
            if parameter.kind.looks_like_seconds(value, getattr(policy, unit) if unit else ChronoUnit.MILLIS):
                yield f"@{kind.__name__}({name}) {in_milliseconds(value)}"


def _stunted(policies: Policies) -> Findings:
    retry, exponential = policies.get(Retry), policies.get(ExponentialBackoff)
    growth = exponential or policies.get(FibonacciBackoff)
    if growth is None or retry is None or seconds(retry.delay, retry.delay_unit):
        return
    if exponential is None or not exponential.min_delay:
        yield (
            f"@{type(growth).__name__} increases the delay of @Retry, but a delay of 0 stays 0; set a delay"
            " to start with"
        )


def _blaming(policies: Policies) -> Findings:
    gates = [gate for gate in policies.values() if hasattr(gate, "fail_on")]
    for gate in gates if not _is_predicate(policies.get(FailWhen)) else ():
        skips_refusals = all(isinstance(one, type) and issubclass(one, FaultToleranceException) for one in gate.skip_on)
        if gate.fail_on == (Exception,) and skips_refusals:
            yield (
                f"@{type(gate).__name__}(fail_on) is Exception: mistakes of callers, such as a ValueError, count"
                " against the callee, and after enough of them all calls are refused; name the failures of the callee"
                " in fail_on, or the mistakes of callers in skip_on"
            )


def _insistent(policies: Policies) -> Findings:
    retry = _retry_by_sets(policies)
    for kind, error, refuses in _REFUSALS if retry else ():
        waits = HonorRetryAfter in policies and error in (CircuitBreakerOpenException, RateLimitException)
        if kind not in policies or waits or error in retry.retry_on or _names(error, retry.abort_on):
            continue
        if _has_class_of(error, retry.retry_on):
            yield (
                f"@Retry(retry_on) is {_listed(retry.retry_on)}, which includes {error.__name__}: an attempt that"
                f" {refuses} is retried at once, and refused again; name {error.__name__} in abort_on, or in retry_on"
                " if that is meant"
            )


LINTS: Mapping[str, Callable[[Policies], Findings]] = {
    "FT001": _uncounted,
    "FT002": _bare,
    "FT003": _not_retried,
    "FT004": _scattered,
    "FT005": _hasty,
    "FT006": _impatient,
    "FT008": _swallows,
    "FT009": _as_if_seconds,
    "FT010": _stunted,
    "FT012": _blaming,
    "FT013": _insistent,
}
"""The lints of one guard's policies, by the code of the doubt."""
_NESTED = "FT007"
CODES = (*sorted([*LINTS, _NESTED]),)


def lint(guards: Iterable[GuardedMethod], snapshot: Snapshot) -> Iterator[LintFinding]:
    """Yield the findings about *guards*, except for codes that a key ``Check/ignore`` names."""
    for guard in guards:
        policies = {type(policy): policy for policy in guard.policies if _is_at_work(policy)}
        for code in LINTS.keys() - codes_of(snapshot, guard._effective.declared):
            yield from (LintFinding(code, guard.name, text) for text in LINTS[code](policies))
        yield from _nested(guard.method, guard._cls, snapshot)
    for function in decorated_functions():
        yield from _nested(function, None, snapshot)


def codes_of(snapshot: Snapshot, declared: Iterable[Declared]) -> frozenset[str]:
    """Return the codes that the keys of any of *declared* name."""
    codes = set()
    for key in dict.fromkeys(key for one in declared for key in ignore_keys(one)):
        for entry in snapshot.find_all(key):
            several = entry.value if isinstance(entry.value, (list, tuple, set)) else str(entry.value).split(",")
            codes |= {str(code).strip().upper() for code in several}
    return frozenset(codes - {""})


def unknown(codes: Iterable[str]) -> list[str]:
    """Return a message for each code that no lint has."""
    known = ", ".join(CODES)
    return [f"no doubt has the code {brief(shown(code))}; there are {known}" for code in sorted({*codes} - {*CODES})]


def _nested(function: Any, cls: type | None, snapshot: Snapshot) -> Iterator[LintFinding]:
    """Yield a finding for each guard that retries around another guard that retries."""
    try:
        parts = [*explanations_of(function, cls)]
    except KeyError:
        return  # ``validate`` reports a guard that does not exist
    if _NESTED in codes_of(snapshot, (declared for part in parts for declared in part.effective.declared)):
        return
    retries = [(part, part.effective.policies.get(Retry)) for part in parts]
    for (outer, retry), (_, inner) in pairwise([one for one in retries if one[1] is not None and _is_at_work(one[1])]):
        yield LintFinding(
            _NESTED,
            outer.title,
            f"@Retry(max_retries) is above another: each of {_attempts(retry)} attempts makes up to {_attempts(inner)}"
            " of the guard inside; let only one of them retry",
        )


def _attempts(retry: Any) -> str:
    return str(retry.max_retries + 1) if retry.max_retries >= 0 else "endlessly many"


def _is_at_work(policy: Any) -> bool:
    if isinstance(policy, Timeout):
        return seconds(policy.value, policy.unit) != 0
    return not isinstance(policy, Retry) or policy.max_retries != 0


def _retry_by_sets(policies: Policies) -> Any:
    """Return the retry if sets of exceptions decide what it retries; ``None`` if a predicate decides."""
    return None if _is_predicate(policies.get(RetryWhen)) else policies.get(Retry)


def _is_predicate(when: Any) -> bool:
    """Return whether *when* decides by a predicate about exceptions."""
    return when is not None and when.exception is not None


def _names(error: type[BaseException], *sets: Any) -> bool:
    """Return whether one of *sets* names *error*, or may name it: a predicate decides by itself."""
    return any(not isinstance(one, type) or issubclass(error, one) for members in sets for one in members)


def _has_class_of(error: type[BaseException], members: Any) -> bool:
    return any(isinstance(one, type) and issubclass(error, one) for one in members)


def _listed(exceptions: Any) -> str:
    return ", ".join(one.__name__ if isinstance(one, type) else shown(one) for one in exceptions)


def _spelled(length: float) -> str:
    return format_duration(length * 1000)
