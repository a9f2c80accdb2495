"""The recommended guard for calls of another service."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._extensions.deadline.policy import Deadline
from ._guard_value.guard import Guard, declared_by
from ._policy import CircuitBreaker, ExponentialBackoff, Policy, Retry, RetryBudget, Timeout, seconds
from .exceptions import RefusedException

if TYPE_CHECKING:
    from typing import Unpack

    from ._extensions.keywords import GuardPolicies
    from .typing import Duration

_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""The exceptions that say that the caller is wrong: another attempt fails alike, and the callee is not in trouble."""


def recommended(
    attempt_timeout: Duration = "1s",
    *given: Policy | Callable[..., Any],
    name: str = "",
    **policies: Unpack[GuardPolicies],
) -> Guard:
    """Return a ``Guard`` for calls of another service that may be repeated.

    The guard has these policies. Each can be replaced by another value of its kind, or left out by ``None`` under its
    name. One guard serves all functions that call the same service.

    - ``Timeout``: an attempt ends after *attempt_timeout*.
    - ``Deadline``: a call, with all attempts and the delays between them, ends after three times the ``Timeout``.
    - ``Retry`` and ``ExponentialBackoff``: a failed attempt is repeated up to twice, after random delays of up to 100
      and 200 ms; mistakes of the caller, such as a ``TypeError``, and refusals are not repeated.
    - ``RetryBudget``: repeated attempts are at most a fifth of the successful calls, beside a burst of ten. So retries
      do not make an outage worse.
    - ``CircuitBreaker``: when half of the last 20 attempts failed, calls are refused for five seconds; mistakes of the
      caller do not count.

    Args:
        attempt_timeout: The longest duration of an attempt: about twice the slowest answer that is normal.
        *given: Decorators or policies that replace recommended policies of their kind, or add to them.
        name: The name of the guard; see ``Guard``.
        **policies: The same by name: ``retry=Retry(...)``; ``None`` leaves the policy out.

    Raises:
        FaultToleranceDefinitionException: If a value is out of range, or the policies do not fit together.

    >>> from faulttolerance import retry
    >>> inventory = recommended("2s", retry(max_retries=1, retry_on=OSError))
    >>> @inventory
    ... def stock(item: str) -> int:
    ...     return 3
    >>> stock("chair")
    3
    """
    given = tuple(map(declared_by, given))
    attempt = next((one for one in (*given, *policies.values()) if isinstance(one, Timeout)), Timeout(attempt_timeout))
    whole = 3_000 * seconds(attempt.value, attempt.unit)
    chosen: dict[str, Any] = {
        "timeout": attempt,
        "deadline": Deadline(whole) if whole else None,
        "retry": Retry(max_retries=2, delay=100, jitter_kind="full", abort_on=(*_MISTAKES, RefusedException)),
        "exponential_backoff": ExponentialBackoff(),
        "retry_budget": RetryBudget(),
        "circuit_breaker": CircuitBreaker(skip_on=_MISTAKES),
    }
    kinds = {type(policy) for policy in given}
    kept = {key: policy for key, policy in chosen.items() if type(policy) not in kinds}
    if policies.get("retry", chosen["retry"]) is None:
        kept = {key: policy for key, policy in kept.items() if key not in ("exponential_backoff", "retry_budget")}
    arguments: dict[str, Any] = {**kept, **policies}
    return Guard(*given, name=name, **arguments)
