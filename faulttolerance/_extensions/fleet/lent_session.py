"""The session of a fleet in which calls ask on their own threads, one call at a time (rule F1)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple
from weakref import ref

from ..._deadline.gevent import hub_here
from ..._log import ERROR, log
from ..._platform.unpatched import native, threads_are_real
from .protocol import CallSession, Question, Session, TakeTurn

__all__ = ["LentSession", "Sent", "close"]

_UNUSED_SECONDS = 30.0
"""An unused session is closed after so long: a router on the way may have forgotten its connection."""
_AGAIN_SECONDS = 5.0
"""After so long another session is tried, where the server has refused one."""


class Sent(NamedTuple):
    """A question that a call has sent, and whose answer the thread of the fleet is to receive."""

    question: TakeTurn
    session: CallSession
    at: float
    """When it was sent."""


class LentSession:
    """At most one session. The caller that takes it out owns it until it puts it back.

    A caller that is struck meanwhile never puts it back. So no answer meets another question, and no lock is left held;
    and the reference is weak, so that another session is made once the lost one is gone.
    """

    __slots__ = ("_idle", "_newest", "_tries_at", "_used_at", "is_wanted")

    def __init__(self) -> None:
        self._idle: list[CallSession] = []
        self._newest: Callable[[], CallSession | None] = _nothing
        self._tries_at = inf
        self._used_at = 0.0
        self.is_wanted = False
        """Whether a call has missed it."""

    def allow(self, is_allowed: bool) -> None:
        """Allow a session from now on, or none. Greenlets wait by a hub of their own, so they share no connection."""
        self._tries_at = native.monotonic() if is_allowed and threads_are_real() else inf

    @property
    def is_out(self) -> bool:
        """Whether a call uses it."""
        return self._newest() is not None and not self._idle

    def take(self) -> CallSession | None:
        """Return the session, which is the caller's from now on; ``None``: it is not here."""
        if hub_here() is not None:
            return None
        try:
            return self._idle.pop()
        except IndexError:
            self.is_wanted = True
            return None

    def put_back(self, session: CallSession) -> None:
        """Lend *session* to the next call, unless it was ended meanwhile."""
        if session is self._newest():
            self._used_at = native.monotonic()
            self._idle.append(session)
        else:
            close(session)

    def drop(self, session: CallSession) -> None:
        """Close *session*, which is broken or may have an answer still to come."""
        if session is self._newest():
            self._newest, self.is_wanted = _nothing, True
        close(session)

    def is_due(self) -> bool:
        """Return whether another session is to be made now."""
        return self.is_wanted and self._newest() is None and native.monotonic() >= self._tries_at

    def make(self, connect: Callable[[], Session], first: Question) -> None:
        """Make a session, in which the *first* question is asked, so that it is known to work."""
        self.is_wanted = False
        session = connect()
        if not isinstance(session, CallSession):
            self._tries_at = inf
            close(session)
            return
        try:
            session.exchange([first])
        except Exception:  # no more connections, say; the session of the thread does as well
            self._tries_at = native.monotonic() + _AGAIN_SECONDS
            close(session)
        else:
            self._newest = ref(session)
            self.put_back(session)

    def end_unused(self) -> None:
        """Close the session if no call has used it for long."""
        if self._idle and self._used_at + _UNUSED_SECONDS < native.monotonic():
            self.end()

    def end(self) -> None:
        """Close the session, also while a call uses it."""
        session, self._newest = self._newest(), _nothing
        self._idle.clear()
        if session is not None:
            close(session)


def close(session: Session) -> None:
    """Close *session*, which may be broken in any way."""
    try:
        session.close()
    except BaseException as error:
        log(ERROR, "a session of the fleet was not closed", error=error)


def _nothing() -> None:
    """Stand for a reference to a session that is gone."""
