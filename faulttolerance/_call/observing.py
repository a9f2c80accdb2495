"""What becomes of a policy that is only observed: it is counted and logged what it would have done (rule X7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._log import DEBUG, log
from .._metrics.catalogue import OBSERVED
from .._metrics.counters import Counters
from .._runtime.blocking import Arguments, GuardedCall
from .._runtime.clock import clock
from .._runtime.environment import Environment
from .._strategy.observed import Tell


class Observer:
    """Told of each attempt that a policy would have refused, or ended.

    Args:
        name: The guarded function.
        annotation: The policy.
        counters: What counts it; ``None``: nothing does.
    """

    __slots__ = ("_annotation", "_counters", "_name", "_series")

    def __init__(self, name: str, annotation: str, counters: Counters | None) -> None:
        self._name = name
        self._annotation = annotation
        self._counters = counters
        self._series = (OBSERVED.series((annotation,)),)

    def __call__(self) -> None:
        """Count and log one."""
        if self._counters is not None:
            self._counters.add(self._series)
        fields = {"ft_method": self._name, "ft_policy": self._annotation}
        log(DEBUG, "%s: %s, only observed, let an attempt pass", self._name, self._annotation, fields=fields)


def timed(seconds: float, tell: Tell) -> Callable[[GuardedCall, Environment | None], GuardedCall]:
    """Give the layer that tells of attempts that took *seconds* or longer, however they ended; none is interrupted."""

    def around(call: GuardedCall, environment: Environment | None) -> GuardedCall:
        def blocking(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            began = clock.monotonic()
            try:
                return call(args, kwargs)
            finally:
                if clock.monotonic() - began >= seconds:
                    tell()

        async def awaited(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            began = clock.monotonic()
            try:
                return await call(args, kwargs)
            finally:
                if clock.monotonic() - began >= seconds:
                    tell()

        return blocking if environment is None else awaited

    return around
