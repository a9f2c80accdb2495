"""The page for servers and frameworks that speak WSGI."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ..exceptions import Fault, FaultToleranceDefinitionException
from .exchange import Request, Response
from .status import MOST_BYTES, TOO_LONG, Hook, Question, Status, advanced

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
    """Make a WSGI application that shows the guards of this process, to people and to programs.

    It may be mounted under any prefix, or be served alone. It reads only, unless *authorize* is given.

    Args:
        critical: Patterns of names of guards without which the service cannot do its work, as for ``health``:
            ``/ready`` answers 503 while the circuit of one is open.
        hosts: Names, or patterns as ``"*.shop.example"``, of the hosts for which it answers; others get 421. Without
            them it answers for all, but where it is asked over loopback: there for the names of this machine alone,
            which a proxy on the same machine seldom passes on.
        admit: Who may look, and act if *authorize* says so: it is given each ``Request``, and something false refuses
            with 403. By default whoever reaches the page.
        authorize: Who may reset and force circuits. It is given the ``Request`` and returns who that is, or ``True``;
            something false refuses with 403. By default nobody may, and there are no such paths.
        title: Words for the head of the page.

    Raises:
        FaultToleranceDefinitionException: If an argument is something else, or a hook would have to be awaited.
    """
    status = Status("wsgi_app", critical, hosts, admit, authorize, title)
    hooks = {"admit": admit, "authorize": authorize}
    if faults := [
        Fault(f"wsgi_app({argument})", "is a coroutine function", hook, "a plain function, or asgi_app")
        for argument, hook in hooks.items()
        if _is_async(hook)
    ]:
        raise FaultToleranceDefinitionException(*faults)

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
    steps = status.answer(request)
    step = advanced(steps)
    while isinstance(step, Question):
        verdict = step.asked()
        if inspect.isawaitable(verdict[0]):
            if inspect.iscoroutine(verdict[0]):
                verdict[0].close()
            verdict = None, TypeError("a hook returned something to await, which is for asgi_app")
        step = advanced(steps, verdict)
    return step


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


def _is_async(hook: Callable[..., Any] | None) -> bool:
    return any(map(inspect.iscoroutinefunction, (hook, getattr(hook, "__call__", None))))  # noqa: B004
