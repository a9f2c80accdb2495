"""The page for servers and frameworks that speak ASGI."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias, TypeVar

from .exchange import Request, Response
from .status import MOST_BYTES, TOO_LONG, Hook, Question, Status, advanced

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

T = TypeVar("T")


def asgi_app(
    *,
    critical: Iterable[str] | str = (),
    hosts: Iterable[str] | str = (),
    admit: Hook | None = None,
    authorize: Hook | None = None,
    title: str = "Fault tolerance",
) -> Application:
    """Make an ASGI application that shows the guards of this process, to people and to programs.

    It may be mounted under any prefix, or be served alone. It reads only, unless *authorize* is given.

    Args:
        critical: Patterns of names of guards without which the service cannot do its work, as for ``health``:
            ``/ready`` answers 503 while the circuit of one is open.
        hosts: Names, or patterns as ``"*.shop.example"``, of the hosts for which it answers; others get 421. Without
            them it answers for all, but where it is asked over loopback: there for the names of this machine alone,
            which a proxy on the same machine seldom passes on.
        admit: Who may look, and act if *authorize* says so: it is given each ``Request``, and something false refuses
            with 403. By default whoever reaches the page.
        authorize: Who may reset and force circuits. It is given the ``Request`` and returns, or lets be awaited, who
            that is, or ``True``; something false refuses with 403. A plain function runs on a thread of the loop's
            executor. By default nobody may, and there are no such paths.
        title: Words for the head of the page.

    Raises:
        FaultToleranceDefinitionException: If an argument is something else.
    """
    status = Status("asgi_app", critical, hosts, admit, authorize, title)

    async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
        else:
            request = _request(scope)
            if request.method == "POST":
                body = await _body(receive)
                if body is None:
                    return  # the caller has gone
                if len(body) > MOST_BYTES:
                    await _send(send, await _aside(status.said, request, 413, TOO_LONG))
                    return
                request = request._replace(body=body)
            await _send(send, await _answered(status, request))

    return application


async def _answered(status: Status, request: Request) -> Response:
    steps = status.answer(request)
    step = await _aside(advanced, steps)
    while isinstance(step, Question):
        verdict = await _aside(step.asked)
        if inspect.isawaitable(verdict[0]):
            try:
                verdict = await verdict[0], None
            except Exception as error:  # noqa: BLE001  # it is the application's
                verdict = None, error
        step = await _aside(advanced, steps, verdict)
    return step


async def _aside(function: Callable[..., T], *args: Any) -> T:
    """Call *function* where it does not hold up the loop: a thousand guards take a tenth of a second to read."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function(*args)  # another library's loop
    return await asyncio.to_thread(function, *args)


def _request(scope: MutableMapping[str, Any]) -> Request:
    path, prefix = scope["path"], scope.get("root_path", "").rstrip("/")
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        path = path.removeprefix(prefix)  # servers and frameworks of old leave it away
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
    """Give the headers by name; those of one name together, as servers of WSGI do."""
    headers: dict[str, str] = {}
    for name, value in ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw):
        between = "; " if name == "cookie" else ","
        headers[name] = f"{headers[name]}{between}{value}" if name in headers else value
    return headers


async def _body(receive: Receive) -> bytes | None:
    """Give what was sent, or the beginning of what is too long; ``None`` where the caller left."""
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


async def _live(receive: Receive, send: Send) -> None:
    """Answer a server that asks whether the application is ready to begin, and to end: it has nothing to do."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
