"""Requests to applications of ASGI and of WSGI without a server, and small servers for those that need one."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from .waiting import wait_until

__all__ = ["Answer", "Ask", "ask_asgi", "ask_wsgi", "served_by_uvicorn", "served_by_wsgiref"]


class Answer(NamedTuple):
    """The answer of an application."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


Ask = Callable[..., Answer]
"""``ask(application, "GET", "/path?query", headers, body, prefix="")``."""


def ask_asgi(
    application: Any,
    method: str,
    target: str,
    headers: Mapping[str, str] = {},
    body: bytes = b"",
    *,
    prefix: str = "",
    scheme: str = "http",
    at: str = "192.0.2.1",
) -> Answer:
    """Ask as a server that knows ASGI and listens at the address *at*; *target* is below *prefix*."""
    return asyncio.run(asked(application, method, target, headers, body, prefix=prefix, scheme=scheme, at=at))


async def asked(
    application: Any,
    method: str,
    target: str,
    headers: Mapping[str, str] = {},
    body: bytes = b"",
    *,
    prefix: str = "",
    scheme: str = "http",
    at: str = "192.0.2.1",
) -> Answer:
    """Ask on the running loop."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": prefix + unquote(path),
        "root_path": prefix,
        "query_string": query.encode(),
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in {"host": "shop.example", **headers}.items()
        ],
        # A server that believes a proxy takes this address from its header, which a page elsewhere can send, too.
        "client": ("192.0.2.7", 4711),
        "server": (at, 80),
    }
    messages = iter(
        [
            {"type": "http.request", "body": body[:10], "more_body": True},
            {"type": "http.request", "body": body[10:], "more_body": False},
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    start, end = sent
    assert (start["type"], end["type"]) == ("http.response.start", "http.response.body")
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], told, end["body"])


def ask_wsgi(
    application: Any,
    method: str,
    target: str,
    headers: Mapping[str, str] = {},
    body: bytes = b"",
    *,
    prefix: str = "",
    scheme: str = "http",
    at: str = "192.0.2.1",
) -> Answer:
    """Ask as a server that knows WSGI, and is strict about it; *target* is below *prefix*.

    WSGI has no address of the server; who asks this machine under a loopback address has one, too.
    """
    path, _, query = target.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": prefix,
        "PATH_INFO": unquote(path).encode().decode("latin-1"),
        "QUERY_STRING": query,
        "HTTP_HOST": "shop.example",
        "REMOTE_ADDR": "192.0.2.7" if at == "192.0.2.1" else at,
        "wsgi.url_scheme": scheme,
        "wsgi.input": io.BytesIO(body),
    }
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
    setup_testing_defaults(environ)
    found: list[Any] = []

    def start_response(status: str, told: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        found.append((int(status.split()[0]), dict(told)))
        return lambda data: None

    pieces = validator(application)(environ, start_response)
    content = b"".join(pieces)
    pieces.close()  # type: ignore[attr-defined]
    [(status, told)] = found
    return Answer(status, told, content)


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None: ...


class _Threads(ThreadingMixIn, WSGIServer):
    """A server on threads: browsers open connections that they do not use yet, for which a single thread would wait."""

    daemon_threads = True


@contextmanager
def served_by_wsgiref(application: Any) -> Iterator[str]:
    """Serve *application* on threads by the standard library's server; yield the address."""
    with make_server("127.0.0.1", 0, application, server_class=_Threads, handler_class=_Quiet) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def served_by_uvicorn(application: Any, **settings: Any) -> Iterator[str]:
    """Serve *application* by uvicorn, on a thread with a loop of its own; yield the address."""
    uvicorn = pytest.importorskip("uvicorn")
    server = uvicorn.Server(
        uvicorn.Config(application, host="127.0.0.1", port=0, log_level="critical", ws="none", **settings)
    )
    thread = Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
