"""The chaos of a guard, which configuration alone declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._call.fault_injection import FaultInjection
from ..._deadline.clock import clock
from ..._log import WARNING, log
from ..._metrics.catalogue import Series
from ..._metrics.counters import Counters
from ..._policy import ChronoUnit, seconds
from .policy import Chaos

_said: set[tuple[str, str]] = set()


def chaos_of(name: str, policy: Chaos, counters: Counters | None, series_of: Callable[[str], Series]) -> FaultInjection:
    """Return the chaos of the guard *name*, and warn once of each chaos that it has.

    Args:
        name: The guard, or the line that several guards share.
        policy: The faults and delays of attempts.
        counters: The counters of disturbances; ``None`` without metrics.
        series_of: Returns the series of a kind of chaos.
    """
    if (name, repr(policy)) not in _said:
        _said.add((name, repr(policy)))
        log(WARNING, "%s has %r: calls fail or wait on purpose", name, policy, fields={"ft_method": name})
    delay = seconds(policy.latency, ChronoUnit.MILLIS)
    errors: Any = policy.error or (() if delay else (ConnectionError,))  # a tuple, once it is checked

    def failure() -> BaseException | None:
        if not errors:
            return None
        kind = errors[0] if len(errors) == 1 else errors[int(clock.random() * len(errors))]
        made: BaseException = kind(f"{name}: made by chaos")
        return made

    def tell(kind: str) -> None:
        if counters is not None:
            counters.add((series_of(kind),))

    return FaultInjection(failure, delay, rate=policy.rate, report=tell)


def forget_chaos() -> None:
    """Reset the warnings, so that chaos of guards is logged again."""
    _said.clear()
