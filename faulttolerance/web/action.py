"""The actions on circuits and the checks before them: the only code of the page that changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from .. import circuit_breakers
from .._log import INFO, log
from .._shown import escaped
from . import reading
from .messages import Request

ACTIONS: Final[Mapping[str, Callable[[str], None]]] = {
    "reset": circuit_breakers.reset,
    "force-open": circuit_breakers.force_open,
    "force-closed": circuit_breakers.force_closed,
}
"""The actions that an administrator can apply to the circuit of a guard, by the last part of the path."""

PROGRAM_HEADER: Final = "x-requested-by"
"""The header by which a request states that a program sent it: no page of another origin can make a browser send it."""


def rejection(request: Request) -> tuple[int, str] | None:
    """Return the reason to reject *request* before ``authorize`` is called, as a status and words; ``None`` if none."""
    headers = request.headers
    if not _is_same_origin(headers):
        return 403, "a page of another origin sent this"
    if PROGRAM_HEADER in headers:
        return None
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    # Every browser names the origin of a form.
    if media != "application/x-www-form-urlencoded" or not {"origin", "sec-fetch-site"} & headers.keys():
        return 403, f"this has neither a form of this page, nor the header {PROGRAM_HEADER.title()} of a program"
    sent = {name: values[-1] for name, values in parse_qs(request.body.decode("ascii", "replace")).items()}
    if sent.get("process", "") != reading.name_of(reading.process()):
        return 409, "another process of the service created the form, and each process has its own circuits"
    return None


def _is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether ``Sec-Fetch-Site`` and ``Origin``, if the request has them, name this host."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    # Only the host is compared: behind a proxy that speaks TLS, the scheme here differs from the browser's.
    return origin is None or origin.partition("://")[2] == (headers.get("host") or None)


def perform(request: Request, identity: object) -> bool:
    """Apply the requested action and log who requested it; return false if the circuit no longer exists.

    Args:
        request: The request to act.
        identity: The result of ``authorize`` for the request: true, or the name of the user.
    """
    caller = _caller(request, identity)  # first: nothing is done for a user whose name cannot be written
    try:
        ACTIONS[request.action](request.guard)
    except KeyError:
        return False
    log(INFO, "circuit of %s: %s, by %s", escaped(request.guard), request.action, caller)
    return True


def log_unauthorized(request: Request) -> None:
    """Log that ``authorize`` rejected *request*."""
    log(INFO, "circuit of %s: %s was not authorised for %s", escaped(request.guard), request.action, _caller(request))


def _caller(request: Request, identity: Any = True) -> str:
    name = "" if identity is True else escaped(str(identity)[:200])
    return " at ".join(filter(None, (name or "somebody", escaped(request.client))))
