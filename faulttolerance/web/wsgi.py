"""The page for servers and frameworks that speak WSGI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from .messages import Request, Response
from .status import MOST_BYTES, TOO_LONG, Hook, StatusPage

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication


def wsgi_app(
    *,
    critical: Iterable[str] | str = (),
    hosts: Iterable[str] | str = (),
    admit: Hook | None = None,
    authorize: Hook | None = None,
    title: str = "Fault tolerance",
) -> WSGIApplication:
    """Return a WSGI application that shows the guards of this process, to people and to programs.

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
            returns the identity of the user, or ``True``; a false result rejects the request with 403. By default
            nobody may act, and the paths of the actions do not exist.
        title: The title in the head of the page.

    Raises:
        FaultToleranceDefinitionException: If an argument is not of the described kind.
    """
    status = StatusPage("wsgi_app", critical, hosts, admit, authorize, title)

    def application(environ: MutableMapping[str, Any], start_response: StartResponse) -> list[bytes]:
        response = _respond(status, environ)
        phrase = HTTPStatus(response.status).phrase
        start_response(f"{response.status} {phrase}", list(response.headers))
        return [response.body]

    return application


def _respond(status: StatusPage, environ: MutableMapping[str, Any]) -> Response:
    request = _request(environ)
    if request.method == "POST":
        length = environ.get("CONTENT_LENGTH") or "0"
        if not (length.isascii() and length.isdigit()):
            return status.message(request, 400, "Content-Length is not a number")
        if len(length) > 9 or int(length) > MOST_BYTES:
            return status.message(request, 413, TOO_LONG)
        request = request._replace(body=environ["wsgi.input"].read(int(length)))
    answer = status.answer(request, _in_place)
    try:
        answer.send(None)
        answer.throw(TypeError("a hook waits for something; only asgi_app awaits hooks"))
    except StopIteration as end:
        response: Response = end.value
        return response
    raise RuntimeError("a hook goes on waiting; only asgi_app awaits hooks")


async def _in_place(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


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
