"""The session of a fleet in which calls ask on their own threads, one call at a time (rule F1)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from weakref import ref

from ..._log import ERROR, log
from ..._platform.greenlets import hub_here
from ..._platform.unpatched import native, threads_are_real
from .protocol import CallSession, Request, Session

_UNUSED_SECONDS = 30.0
"""The seconds after which an unused session is closed: a router on the way may have dropped its connection."""
_AGAIN_SECONDS = 1.0
"""The seconds after which another session is created, if the server has refused one, or answered late."""


class SessionPool:
    """At most one session. The caller that takes it owns it until the caller puts it back.

    A caller that is interrupted in between never puts it back. So no answer is assigned to another request, and no
    lock stays held. The reference is weak, so another session is created once the lost session is collected.
    """

    def __init__(self) -> None:
        self._idle: list[CallSession] = []
        self._newest: Callable[[], CallSession | None] = _nothing
        self._retry_at = inf
        self._used_at = 0.0
        self.is_wanted = False
        """Whether a call has missed the session."""

    def allow(self, is_allowed: bool) -> None:
        """Allow or forbid a session from now on. Greenlets wait on hubs of their own, so they share no connection."""
        self._retry_at = native.monotonic() if is_allowed and threads_are_real() else inf

    @property
    def is_in_use(self) -> bool:
        """Whether a call uses the session."""
        return self._newest() is not None and not self._idle

    def acquire(self) -> CallSession | None:
        """Return the session, which the caller owns from now on; ``None`` if it is not available."""
        if hub_here() is not None:
            return None
        try:
            return self._idle.pop()
        except IndexError:
            self.is_wanted = True
            return None

    def release(self, session: CallSession) -> None:
        """Offer *session* to the next call, unless it was ended in between."""
        if session is self._newest():
            self._used_at = native.monotonic()
            self._idle.append(session)
        else:
            close(session)

    def discard(self, session: CallSession) -> None:
        """Close *session*, which is broken or may still receive an answer."""
        if session is self._newest():
            self._newest, self.is_wanted = _nothing, True
            self._retry_at = native.monotonic() + _AGAIN_SECONDS
        close(session)

    def needs_session(self) -> bool:
        """Return whether another session must be created now."""
        return self.is_wanted and self._newest() is None and native.monotonic() >= self._retry_at

    def create(self, connect: Callable[[], Session], first: Request) -> None:
        """Create a session, and ask the *first* request in it to prove that it works."""
        self.is_wanted = False
        session = connect()
        if not isinstance(session, CallSession):
            self._retry_at = inf
            close(session)
            return
        try:
            session.exchange([first])
        except Exception:  # for example no free connections; the thread's session serves too
            self._retry_at = native.monotonic() + _AGAIN_SECONDS
            close(session)
        else:
            self._newest = ref(session)
            self.release(session)

    def close_unused(self) -> None:
        """Close the session if no call has used it for long."""
        if self._idle and self._used_at + _UNUSED_SECONDS < native.monotonic():
            self.close_session()

    def close_session(self) -> None:
        """Close the session, even while a call uses it."""
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
    """Represent a reference to a session that no longer exists."""
