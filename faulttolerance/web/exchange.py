"""What is asked and what is answered, whichever server stands between."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

Form = Literal["html", "json"]

_POLICY = (
    "default-src 'none'; connect-src 'self'; form-action 'self'; img-src 'self'; script-src 'self'; style-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)

_SAFE = (
    ("content-security-policy", _POLICY),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
)
"""Headers of every answer: nothing is loaded from elsewhere, and nothing elsewhere shows or reads it."""


class Request(NamedTuple):
    """What is asked; the application's ``authorize`` is given one, to decide by.

    Args:
        method: As in ``"POST"``.
        path: The path within the status application, decoded.
        headers: By names in small letters; what came under one name several times, together.
        query: What stands behind the question mark, as it came.
        body: What was sent; empty but for ``POST``.
        client: The address of the caller, as the server tells it: a proxy's where there is one. Empty if unknown.
        server: The address at which it arrived, as a server of ASGI tells it; empty if unknown.
        scheme: ``"http"`` or ``"https"``.
        native: The ``scope`` of ASGI, or the ``environ`` of WSGI, where sessions and users are to be found.
        guard: The name of the guard that is to be acted on.
        action: ``"reset"``, ``"force-open"`` or ``"force-closed"``.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    query: str = ""
    body: bytes = b""
    client: str = ""
    server: str = ""
    scheme: str = "http"
    native: Mapping[str, Any] = {}
    guard: str = ""
    action: str = ""

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies, by name."""
        pairs = (part.strip().partition("=") for part in self.headers.get("cookie", "").split(";"))
        return {name: value for name, _, value in pairs}


class Response(NamedTuple):
    """What is answered."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    def without_body(self) -> Self:
        """Give what answers HEAD: the same headers, the length included."""
        return self._replace(body=b"")

    def unchanged(self) -> Self:
        """Give what says to whoever has it that it holds: it is about no content."""
        kept = tuple(header for header in self.headers if header[0] not in ("content-type", "content-length"))
        return self._replace(status=304, headers=kept, body=b"")

    def also(self, *headers: tuple[str, str]) -> Self:
        """Give the same with more headers."""
        return self._replace(headers=(*self.headers, *headers))


def response(status: int, media: str, body: bytes, *headers: tuple[str, str]) -> Response:
    """Make a response that nothing between keeps, unless *headers* say otherwise."""
    caching = () if any(name == "cache-control" for name, _ in headers) else (("cache-control", "no-store"),)
    length = ("content-length", str(len(body)))
    return Response(status, (("content-type", media), length, *caching, *headers, *_SAFE), body)


def as_json(status: int, told: Mapping[str, Any]) -> Response:
    """Answer a program. Keys and values are ASCII, with escapes, so that no name can spoil it."""
    return response(status, "application/json", f"{json.dumps(told, indent=2)}\n".encode(), ("vary", "accept"))


def as_html(status: int, page: str) -> Response:
    """Answer a person."""
    return response(status, "text/html; charset=utf-8", page.encode(), ("vary", "accept"))


def redirect(status: int, location: str) -> Response:
    """Send a browser elsewhere: *location* is relative, so that proxies may have put it anywhere."""
    return response(status, "text/plain; charset=utf-8", b"", ("location", location))


def form_for(request: Request) -> Form | None:
    """Choose what to answer with by the header Accept; ``None`` where neither would be taken.

    JSON is for whoever has no preference, as programs do.
    """
    accepted = _accepted(request.headers.get("accept", ""))
    program, person = (_quality(media, accepted) for media in ("application/json", "text/html"))
    if max(program, person) == 0:
        return None
    return "html" if person > program else "json"


def _accepted(header: str) -> dict[str, float]:
    """Read the header Accept: the quality of each range of media."""
    found: dict[str, float] = {}
    for part in header.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
        try:
            found[media] = min(1.0, max(0.0, float(quality)))
        except ValueError:
            found[media] = 0.0
    found.pop("", None)
    return found or {"*/*": 1.0}


def _quality(media: str, accepted: Mapping[str, float]) -> float:
    """Give that of the range which fits most closely."""
    ranges = (media, f"{media.partition('/')[0]}/*", "*/*")
    return next((accepted[one] for one in ranges if one in accepted), 0.0)
