"""The request and the response of the page, independent of the server."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

_POLICY = (
    "default-src 'none'; connect-src 'self'; form-action 'self'; img-src 'self'; script-src 'self'; style-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)

SAFE_HEADERS = (
    ("content-security-policy", _POLICY),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
)
"""The headers of every response: it loads nothing from other origins, and no other origin shows or reads it."""


class Request(NamedTuple):
    """A request to the page; the application's ``admit`` and ``authorize`` decide by it.

    Args:
        method: The HTTP method, such as ``"POST"``.
        path: The path within the status application, decoded.
        headers: The headers by lower-case name; the values of a name that came several times are joined.
        query: The text after the question mark, as it came.
        body: The body; empty except for ``POST``.
        client: The address of the client as the server reports it: the address of the proxy if there is one. Empty if
            unknown.
        server: The address at which the request arrived, as an ASGI server reports it; empty if unknown.
        scheme: ``"http"`` or ``"https"``.
        native: The ``scope`` of ASGI or the ``environ`` of WSGI, which contains sessions and users.
        guard: The name of the guard whose circuit the request acts on.
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
    """A response of the page."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


def response(status: int, media: str, body: bytes, *headers: tuple[str, str]) -> Response:
    """Return a response that no cache stores."""
    own = (("content-type", media), ("content-length", str(len(body))), ("cache-control", "no-store"))
    return Response(status, (*own, *headers, *SAFE_HEADERS), body)


def as_json(status: int, values: Mapping[str, Any], *headers: tuple[str, str]) -> Response:
    """Return a response for a program. Keys and values are ASCII with escapes, so no name can break the JSON."""
    body = f"{json.dumps(values, indent=2)}\n".encode()
    return response(status, "application/json", body, ("vary", "accept"), *headers)


def as_html(status: int, page: str, *headers: tuple[str, str]) -> Response:
    """Return a response for a person."""
    return response(status, "text/html; charset=utf-8", page.encode(), ("vary", "accept"), *headers)


def is_for_people(request: Request) -> bool:
    """Return whether a page is wanted, and no JSON: the header Accept names texts and no JSON, as in browsers."""
    accepted = request.headers.get("accept", "").lower()
    return "text/" in accepted and "json" not in accepted
