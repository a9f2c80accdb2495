"""The page for servers and frameworks that speak ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from .messages import Request, Response
from .status import MOST_BYTES, TOO_LONG, Hook, StatusPage

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def asgi_app(
    *,
    critical: Iterable[str] | str = (),
    hosts: Iterable[str] | str = (),
    admit: Hook | None = None,
    authorize: Hook | None = None,
    title: str = "Fault tolerance",
) -> Application:
    """Return an ASGI application that shows the guards of this process, to people and to programs.

    Mount the application under any prefix, or serve it alone. It only reads, unless *authorize* is set.

    Args:
        critical: Patterns of names of guards without which the service cannot do its work, as for ``health``:
            ``/ready`` answers 503 while the circuit of such a guard is open.
        hosts: Names of hosts, or patterns such as ``"*.shop.example"``, under which the page answers; requests for
            other hosts get 421. Without *hosts* the page answers under every name. Over loopback it then answers only
            under the names of this machine; a proxy on the same machine seldom passes these names on.
        admit: A function that decides whether a user may see the page, and act if *authorize* agrees. It takes each
            ``Request``; a false result rejects the request with 403. By default everybody who reaches the page may see
            it.
        authorize: A function that decides whether a user may reset and force circuits. It takes the ``Request`` and
            returns the identity of the user, or ``True``, or an awaitable of these; a false result rejects the request
            with 403. A plain function runs on a thread of the loop's executor. By default nobody may act, and the paths
            of the actions do not exist.
        title: The title in the head of the page.

    Raises:
        FaultToleranceDefinitionException: If an argument is not of the described kind.
    """
    status = StatusPage("asgi_app", critical, hosts, admit, authorize, title)

    async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the status page speaks HTTP, not {scope['type']}")  # servers serve it without a lifespan
        request = _request(scope)
        if request.method == "POST":
            body = await _body(receive)
            if body is None:
                return  # the client has disconnected
            if len(body) > MOST_BYTES:
                await _send(send, status.message(request, 413, TOO_LONG))
                return
            request = request._replace(body=body)
        await _send(send, await status.answer(request, asyncio.to_thread))

    return application


def _request(scope: MutableMapping[str, Any]) -> Request:
    path, prefix = scope["path"], scope.get("root_path", "").rstrip("/")
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        path = path.removeprefix(prefix)  # old servers and frameworks omit the prefix from the path
    if path != "/" and not (scope.get("raw_path") or b"/").lower().endswith((b"/", b"%2f")):
        path = path.removesuffix("/")  # Litestar adds it to a path that it mounts
    client, server = scope.get("client"), scope.get("server")
    return Request(
        scope["method"],
        path,
        _headers(scope["headers"]),
        scope.get("query_string", b"").decode("latin-1"),
        client=str(client[0]) if client else "",
        server=str(server[0]) if server else "",
        scheme=scope.get("scheme", "http"),
        native=scope,
    )


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by name; values of the same name are joined, as WSGI servers do."""
    headers: dict[str, str] = {}
    for name, value in ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw):
        between = "; " if name == "cookie" else ","
        headers[name] = f"{headers[name]}{between}{value}" if name in headers else value
    return headers


async def _body(receive: Receive) -> bytes | None:
    """Return the body, or only the beginning of a body that is too long; ``None`` if the client disconnected."""
    body = b""
    while len(body) <= MOST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body


async def _send(send: Send, response: Response) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
