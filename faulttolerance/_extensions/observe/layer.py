"""The actions of an observed policy: it counts and logs its would-be refusals (rule X7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..._deadline.clock import clock
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment
from ..._log import DEBUG, log
from ..._metrics.catalogue import Series
from ..._metrics.counters import Counters
from ..._strategy.adaptive_timeout import AdaptiveTimeout
from ..._strategy.gate import OnRefusal
from ..._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT


class Observer:
    """Called for each attempt that a policy would have refused, or ended.

    Args:
        name: The guarded function.
        annotation: The policy.
        counters: The counters; ``None`` without metrics.
        series: The series of these attempts.
    """

    __slots__ = ("_annotation", "_counters", "_name", "_series")

    def __init__(self, name: str, annotation: str, counters: Counters | None, series: Series) -> None:
        self._name = name
        self._annotation = annotation
        self._counters = counters
        self._series = (series,)

    def __call__(self) -> None:
        """Count and log one attempt."""
        if self._counters is not None:
            self._counters.add(self._series)
        fields = {"ft_method": self._name, "ft_policy": self._annotation}
        log(
            DEBUG,
            "%s: %s is only observed, but would have stopped an attempt",
            self._name,
            self._annotation,
            fields=fields,
        )


def timed(
    seconds: float, tell: OnRefusal, limit: AdaptiveTimeout | None = None
) -> Callable[[GuardedCall, Environment | None], GuardedCall]:
    """Return the layer that reports attempts that took too long, for any outcome, and interrupts none.

    Args:
        seconds: The longest duration of an attempt.
        tell: Called for each late attempt.
        limit: The adaptive limit in place of *seconds*; it learns as if it had ended the late attempts.
    """

    def end(began: float, allowed: float, *, is_success: bool) -> None:
        elapsed = clock.monotonic() - began
        is_late = elapsed >= allowed
        if limit is not None:
            limit.record(min(elapsed, allowed), TIMED_OUT if is_late else SUCCEEDED if is_success else OTHERWISE)
        if is_late:
            tell()

    def around(call: GuardedCall, environment: Environment | None) -> GuardedCall:
        def blocking(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            began, allowed, is_success = clock.monotonic(), seconds if limit is None else limit.seconds, False
            try:
                result = call(args, kwargs)
                is_success = True
                return result
            finally:
                end(began, allowed, is_success=is_success)

        async def awaited(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            began, allowed, is_success = clock.monotonic(), seconds if limit is None else limit.seconds, False
            try:
                result = await call(args, kwargs)
                is_success = True
                return result
            finally:
                end(began, allowed, is_success=is_success)

        return blocking if environment is None else awaited

    return around
