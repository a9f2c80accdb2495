"""The condition of a strategy at one moment, for people and for probes of health."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Condition(NamedTuple):
    """The present effect of a strategy's state on new calls."""

    words: str
    """As in ``open for 27 s, half-open in 3.2 s`` or ``10 of 10 running, 3 waiting``."""
    is_impaired: bool = False
    """Whether calls are refused, or have to wait."""
    is_down: bool = False
    """Whether no call gets through, because the callee does not answer."""
    live: Mapping[str, str] = {}
    """The present values of adaptive parameters, by name: ``{"latency": "limit now 34 of 50"}``."""

    @property
    def in_full(self) -> str:
        """The words, followed by the live values."""
        return ", ".join((self.words, *self.live.values()))


def in_seconds(duration: float) -> str:
    """Return *duration* in words: ``0.25 s``, ``5025 s``."""
    return f"{duration:.3g} s" if 0.001 <= duration < 999.5 else f"{duration:.0f} s"


def in_use(strategies: Iterable[tuple[Any, Any]], now: float) -> list[tuple[Any, Any]]:
    """Return the *strategies* of a function, each with its policy, without those that no call uses.

    Where keys have strategies of their own, the first strategy of a kind serves the keys that find no place. It is left
    out while every key has found one.
    """
    found = list(strategies)
    if any(getattr(strategy, "is_full", False) for _, strategy in found):
        return found
    occurrences, of_keys, kept = Counter(policy for policy, _ in found), set(), []
    for policy, strategy in found:
        if policy in of_keys or occurrences[policy] == 1 or not strategy.is_idle(now):
            kept.append((policy, strategy))
        of_keys.add(policy)
    return kept
