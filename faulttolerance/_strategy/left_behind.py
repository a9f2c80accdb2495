"""The bodies that go on although their calls have timed out, and nobody waits for them any more (rule O2)."""

from __future__ import annotations

from typing import Any
from weakref import ref


class LeftBehind:
    """Knows the bodies of one method that were left behind, as long as they live and run.

    Every step is one operation on a dictionary, so no lock is needed; a body whose event loop was closed is forgotten
    when it is collected.
    """

    _bodies: dict[ref[Any], None] | None = None
    # Here, and not in an ``__init__``: most methods never need any.

    @property
    def count(self) -> int | None:
        """How many there are now; ``None`` where there never were any."""
        return len(self._bodies) if self._bodies is not None else None

    def add(self, body: object) -> None:
        """Note that *body* was left behind; whoever calls this asks afterwards whether it has ended meanwhile."""
        bodies = self._bodies
        if bodies is None:
            bodies = self._bodies = {}
        bodies[ref(body, lambda known: bodies.pop(known, None))] = None

    def remove(self, body: object) -> None:
        """Note that *body* has ended; it need not have been left behind."""
        if self._bodies:
            self._bodies.pop(ref(body), None)

    def is_idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten: no body goes on."""
        return not self._bodies

    def keep_only(self, ident: int) -> None:
        """Forget them all, in the child of a fork: they run in the parent."""
        if self._bodies is not None:
            self._bodies = {}
