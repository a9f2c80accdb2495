"""The actions of an observed policy: it counts and logs its would-be refusals (rule X7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..._deadline.clock import clock
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment
from ..._execution.race import has_lost_as_first
from ..._log import DEBUG, log
from ..._metrics.catalogue import Series
from ..._metrics.counters import Counters
from ..._strategy.adaptive_timeout import AdaptiveTimeout
from ..._strategy.gate import OnRefusal
from ..._strategy.latencies import OTHERWISE, SUCCEEDED, TIMED_OUT


def report(name: str, annotation: str, counters: Counters | None, series: Series) -> None:
    """Count and log an attempt that a policy would have refused, or ended.

    Args:
        name: The guarded function.
        annotation: The policy.
        counters: The counters; ``None`` without metrics.
        series: The series of these attempts.
    """
    if counters is not None:
        counters.add((series,))
    fields = {"ft_method": name, "ft_policy": annotation}
    log(DEBUG, "%s: %s is only observed, but would have stopped an attempt", name, annotation, fields=fields)


def timed(
    seconds: float, tell: OnRefusal, limit: AdaptiveTimeout | None = None, name: str = ""
) -> Callable[[GuardedCall, Environment | None], GuardedCall]:
    """Return the layer that reports attempts that took too long, for any outcome, and interrupts none.

    Args:
        seconds: The longest duration of an attempt.
        tell: Called for each late attempt.
        limit: The adaptive limit in place of *seconds*; it learns as if it had ended the late attempts.
        name: The guard, whose first attempts may lose to hedges.
    """

    @contextmanager
    def attempt() -> Iterator[None]:
        began, allowed, end = clock.monotonic(), seconds if limit is None else limit.seconds, OTHERWISE
        try:
            yield
            end = SUCCEEDED
        except BaseException as failure:
            if not isinstance(failure, Exception) and has_lost_as_first(name):
                end = TIMED_OUT
            raise
        finally:
            elapsed = clock.monotonic() - began
            is_late = elapsed >= allowed
            if limit is not None:
                limit.record(min(elapsed, allowed), TIMED_OUT if is_late else end)
            if is_late:
                tell()

    def around(call: GuardedCall, environment: Environment | None) -> GuardedCall:
        def blocking(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            with attempt():
                return call(args, kwargs)

        async def awaited(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            with attempt():
                return await call(args, kwargs)

        return blocking if environment is None else awaited

    return around
