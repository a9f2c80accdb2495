"""What the guards of the service count, as the table and the promises want it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from service import Storefront
from traffic import KINDS

from faulttolerance import circuit_breakers, guards

NAMES = {kind.method: f"{Storefront.__module__}.{Storefront.__qualname__}.{kind.method}" for kind in KINDS}

openings: Counter[str] = Counter()
"""How often each circuit opened, by its name."""


def _count_opening(name: str, old: str, new: str) -> None:
    openings[name] += new == "open" and old == "closed"


for _name in NAMES.values():
    circuit_breakers.on_state_change(_name, _count_opening)


@dataclass(frozen=True)
class Figures:
    """What one guard has counted so far, and the state of its circuit breaker."""

    calls: int = 0
    retries: int = 0
    timeouts: int = 0
    rejections: int = 0
    """By the circuit breaker or the bulkhead."""
    fallbacks: int = 0
    openings: int = 0
    """How often the circuit opened."""
    breaker: str = ""
    """The state of the circuit; empty where there is none."""

    @classmethod
    def of(cls, guard: Any) -> Figures:
        """Read the figures of one of `guards()`."""
        counts = guard.counts

        def total(metric: str, **tags: str) -> int:
            return sum(
                count for (name, tagged), count in counts.items() if name == metric and tags.items() <= {*tagged}
            )

        return cls(
            calls=total("ft.invocations.total"),
            retries=total("ft.retry.retries.total"),
            timeouts=total("ft.timeout.calls.total", timedOut="true"),
            rejections=total("ft.circuitbreaker.calls.total", circuitBreakerResult="circuitBreakerOpen")
            + total("ft.bulkhead.calls.total", bulkheadResult="rejected"),
            fallbacks=total("ft.invocations.total", fallback="applied"),
            openings=openings[guard.name],
            breaker=circuit_breakers.state(guard.name) if guard.name in circuit_breakers.names() else "",
        )


def figures() -> dict[str, Figures]:
    """The figures of each method of the service; zero for one that was not called yet."""
    found = {guard.name: guard for guard in guards()}
    return {method: Figures.of(found[name]) if name in found else Figures() for method, name in NAMES.items()}
