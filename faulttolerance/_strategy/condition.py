"""The condition of a strategy at one moment, for people and for probes of health."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Mapping
from typing import NamedTuple


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
