"""Switches that turn off policies, and the delays between attempts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from .._call.continuation import RetryDelays
from .._call.core import is_detached
from .._config import Effective
from .._guard.resolve.transaction import overridden
from .._policy import Policy, Retry
from .._shown import shown
from ..exceptions import definition_error
from .reusable_context import ReusableContext
from .target import kind_of, target_of


def disabled(*what: Any) -> ReusableContext[None]:
    """Switch policies off within a block, or for a decorated test; ``disabled()`` is for all of them.

    The effect is that of the configuration key ``enabled``, for all threads and loops, and above every source: no
    configuration within the block switches the policies on again. Calls in flight go on as they began. The state of
    guards stays, and so does the configuration that was changed within the block. Blocks nest.

    Args:
        what: Annotations, as ``"Retry"``; and targets, which are guarded functions, methods, classes and their
            subclasses, methods of an object for its class, and ``Guard`` objects. Without an annotation every policy is
            off but ``Asynchronous``, which says how a function is called; without a target everywhere.

    Raises:
        FaultToleranceDefinitionException: A text names no annotation, or a target is not guarded.

    >>> from faulttolerance import retry
    >>> @retry(max_retries=3, retry_on=ConnectionError)
    ... def fetch():
    ...     print("trying")
    ...     raise ConnectionError
    >>> with disabled("Retry"):
    ...     fetch()
    Traceback (most recent call last):
    ConnectionError
    """
    where = "testing.disabled"
    kinds = {kind_of(where, one) for one in what if _is_annotation(one)}
    targets = [target_of(where, one) for one in what if not _is_annotation(one)]

    def switched_off(subject: object, effective: Effective) -> Effective:
        kind = type(effective.policy)
        is_meant = kind in kinds if kinds else not is_detached((kind,))
        if is_meant and (not targets or any(target.covers(subject) for target in targets)):
            configured = {**effective.configured, "enabled": "testing.disabled()"}
            return effective._replace(enabled=False, configured=configured)
        return effective

    # Each time another object: the block that ends removes its own.
    return ReusableContext("disabled", lambda: overridden(lambda *given: switched_off(*given)))


def _is_annotation(candidate: object) -> bool:
    return isinstance(candidate, str) or (isinstance(candidate, type) and issubclass(candidate, Policy))


def no_wait(*, attempts: int | None = None) -> ReusableContext[None]:
    """Skip the delays between attempts within a block, or for a decorated test.

    Attempts are made as usual, and events state the delays that would have been. Everything else takes its time, on the
    real clock: time-outs, deadlines and ``max_duration``, the opening of circuits, turns under rate limits, and the
    delay before a hedge, which is time that an attempt has to answer. A delay that would not fit before a deadline
    still ends the retries.

    Args:
        attempts: How many attempts a call makes at most, the first one included; at least 1. ``None``: as declared.

    Raises:
        FaultToleranceDefinitionException: *attempts* is something else.
    """
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        allowed = "an integer >= 1, or None (as declared)"
        raise definition_error("testing.no_wait(attempts)", f"is {shown(attempts)}", attempts, allowed)

    def capped(_: object, effective: Effective) -> Effective:
        policy = effective.policy
        if not isinstance(policy, Retry) or attempts is None or 0 <= policy.max_retries < attempts:
            return effective
        configured = {**effective.configured, "max_retries": "testing.no_wait(attempts)"}
        return effective._replace(policy=policy.__replace__(max_retries=attempts - 1), configured=configured)

    @contextmanager
    def passing() -> Iterator[None]:
        with nullcontext() if attempts is None else overridden(lambda *given: capped(*given)):
            RetryDelays.skipped_by.append(passing)
            try:
                yield
            finally:
                RetryDelays.skipped_by.pop()

    return ReusableContext("no_wait", passing)
