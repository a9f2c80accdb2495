"""The page for servers and frameworks that speak WSGI."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ..exceptions import Fault, FaultToleranceDefinitionException
from .exchange import Request, Response
from .status import MOST_BYTES, TOO_LONG, Authorize, Status

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication


def wsgi_app(
    *,
    critical: Iterable[str] | str = (),
    hosts: Iterable[str] | str = (),
    authorize: Authorize | None = None,
    title: str = "Fault tolerance",
) -> WSGIApplication:
    """Make a WSGI application that shows the guards of this process, to people and to programs.

    It may be mounted under any prefix, or be served alone. It reads only, unless *authorize* is given.

    Args:
        critical: Patterns of names of guards without which the service cannot do its work, as for ``health``:
            ``/ready`` answers 503 while the circuit of one is open.
        hosts: Names, or patterns as ``"*.shop.example"``, of the hosts for which it answers; others get 421. Without
            them it answers for all, but where it is asked over loopback: there for the names of this machine alone,
            which a proxy on the same machine seldom passes on.
        authorize: Who may reset and force circuits. It is given the ``Request`` and returns who that is, or ``True``;
            something false refuses with 403. By default nobody may, and there are no such paths.
        title: Words for the head of the page.

    Raises:
        FaultToleranceDefinitionException: If an argument is something else, or *authorize* would have to be awaited.
    """
    status = Status("wsgi_app", critical, hosts, authorize, title)
    if _is_async(authorize):
        fault = Fault("wsgi_app(authorize)", "is a coroutine function", authorize, "a plain function, or asgi_app")
        raise FaultToleranceDefinitionException(fault)

    def application(environ: MutableMapping[str, Any], start_response: StartResponse) -> list[bytes]:
        response = _answered(status, environ)
        phrase = HTTPStatus(response.status).phrase
        start_response(f"{response.status} {phrase}", list(response.headers))
        return [response.body]

    return application


def _answered(status: Status, environ: MutableMapping[str, Any]) -> Response:
    request = _request(environ)
    if request.method == "POST":
        length = environ.get("CONTENT_LENGTH") or "0"
        if not (length.isascii() and length.isdigit()):
            return status.said(request, 400, "Content-Length is no number")
        if len(length) > 9 or int(length) > MOST_BYTES:
            return status.said(request, 413, TOO_LONG)
        request = request._replace(body=environ["wsgi.input"].read(int(length)))
    begun = status.begun(request)
    if isinstance(begun, Response):
        return begun
    who, error = status.asked(begun)
    if inspect.isawaitable(who):
        if inspect.iscoroutine(who):
            who.close()
        error = TypeError("authorize returned something to await, which is for asgi_app")
    if error is not None:
        return status.failed(begun, error)
    return status.ended(begun, who)


def _request(environ: MutableMapping[str, Any]) -> Request:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_TYPE"
    }
    return Request(
        environ["REQUEST_METHOD"],
        environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace"),
        headers,
        environ.get("QUERY_STRING", ""),
        client=environ.get("REMOTE_ADDR", ""),
        scheme=environ.get("wsgi.url_scheme", "http"),
        native=environ,
    )


def _is_async(authorize: Callable[..., Any] | None) -> bool:
    return any(map(inspect.iscoroutinefunction, (authorize, getattr(authorize, "__call__", None))))  # noqa: B004
