"""The memory of a method's time-out: the bodies that were left behind (rule O2), and a limit that adapts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from .condition import Condition, in_seconds

if TYPE_CHECKING:
    from .adaptive_timeout import AdaptiveTimeout


class LeftBehind:
    """The bodies of one method that were left behind, as long as they live and run.

    Every step is one operation on a dictionary, so no lock is needed. A body whose event loop was closed is removed
    when it is collected.
    """

    _bodies: dict[ref[Any], None] | None = None
    # Class attributes, not set in an ``__init__``: most methods never need them.
    _adaptive: AdaptiveTimeout | None = None
    limit: AdaptiveTimeout | None = None
    """The limit, where it adapts now."""

    def adaptive(self, ceiling: float) -> AdaptiveTimeout:
        """Return the limit as it adapts or would adapt, in seconds; it begins at *ceiling*."""
        if self._adaptive is None:
            from .adaptive_timeout import AdaptiveTimeout

            self._adaptive = AdaptiveTimeout(ceiling)
        return self._adaptive

    def follow(self, ceiling: float) -> None:
        """Adapt the limit from now on, up to *ceiling* in seconds; 0.0: there is no limit, or it is fixed."""
        if not ceiling:
            self._adaptive = self.limit = None
            return
        self.limit = self.adaptive(ceiling)
        self.limit.reconfigure(ceiling)

    @property
    def count(self) -> int | None:
        """The number of bodies left behind now; ``None`` where there never were any."""
        return len(self._bodies) if self._bodies is not None else None

    def add(self, body: object) -> None:
        """Record that *body* was left behind; the caller checks afterwards whether it has ended meanwhile."""
        bodies = self._bodies
        if bodies is None:
            bodies = self._bodies = {}
        bodies[ref(body, lambda known: bodies.pop(known, None))] = None

    def remove(self, body: object) -> None:
        """Record that *body* has ended; it need not have been left behind."""
        if self._bodies:
            self._bodies.pop(ref(body), None)

    def condition(self, now: float) -> Condition | None:
        """Return the condition of the limit, where it adapts."""
        limit = self.limit
        if limit is None:
            return None
        slow = limit.slowest
        words = "no p99 yet" if slow is None else f"p99 {in_seconds(slow)}"
        return Condition(words, live={"adaptive": f"limit now {in_seconds(limit.seconds)} of {limit.ceiling:g} s"})

    def is_idle(self, now: float) -> bool:
        """Return whether the record can be dropped without loss: no body goes on."""
        return not self._bodies

    def reset_after_fork(self, ident: int) -> None:
        """Remove all bodies, in the child of a fork: they run in the parent."""
        if self._bodies is not None:
            self._bodies = {}
        if self._adaptive is not None:
            self._adaptive.reset_after_fork(ident)
