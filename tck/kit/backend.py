"""A backend of HTTP/1.1 on a real socket that answers as a test demands: well, late, by halves or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

__all__ = ["Answer", "Backend", "Received", "backend"]


class Answer(NamedTuple):
    """The reaction of the backend to one request.

    Args:
        status: The status.
        body: The body.
        headers: More headers.
        dies: Where the connection ends: ``"before"`` the answer, in the ``"body"``, or ``"after"`` the answer, which
            does not say so; ``""``: it stays.
        waits: Whether it answers only when the backend is released.
        holds: The 1,000 promised bytes after the body, until the backend is released:
            ``"silence"``, or ``"drops"``, one after the other.
        chunked: Whether the body comes in chunks, without its length; one that dies or holds has no last chunk.
    """

    status: int = 200
    body: bytes = b"served"
    headers: tuple[tuple[str, str], ...] = ()
    dies: str = ""
    waits: bool = False
    holds: str = ""
    chunked: bool = False


class Received(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    body: bytes
    connection: tuple[str, int]
    headers: dict[str, str]


class Backend:
    """Gives *answers* one after another; when they are all given, the last one again and again."""

    def __init__(self, answers: Iterable[Answer], port: int) -> None:
        self.answers = list(answers)
        self.received: list[Received] = []
        self.released = threading.Event()
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._lock = threading.Lock()

    def answer_to(self, received: Received) -> Answer:
        with self._lock:
            self.received.append(received)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def will(self, *answers: Answer) -> None:
        """Answer so from now on, and forget the requests that were received."""
        with self._lock:
            self.answers[:] = answers
            self.received.clear()

    def release(self) -> None:
        """Wake the answers that wait."""
        released, self.released = self.released, threading.Event()
        released.set()

    @property
    def methods(self) -> list[str]:
        return [received.method for received in self.received]

    @property
    def connections(self) -> int:
        return len({received.connection for received in self.received})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    backend: Backend

    def finish(self) -> None:
        with suppress(OSError):  # the client has gone
            super().finish()
        self.rfile.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write no line for a request."""

    def _serve(self) -> None:
        received = Received(self.command, self.path, self._body(), self.client_address, dict(self.headers))
        answer = self.backend.answer_to(received)
        if answer.waits:
            self.backend.released.wait(60)
        if answer.dies:
            self.close_connection = True
        if answer.dies == "before":
            return
        if answer.status == 101:
            self.close_connection = True
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        has_body = self.command != "HEAD" and answer.status not in (101, 204, 304)
        if answer.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif answer.status != 101:
            self.send_header(
                "Content-Length", str(len(answer.body) + (1000 if answer.dies == "body" or answer.holds else 0))
            )
        self.end_headers()
        if has_body and answer.chunked:
            for at in range(0, len(answer.body), 10_000):
                chunk = answer.body[at : at + 10_000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"" if answer.dies == "body" or answer.holds else b"0\r\n\r\n")
        elif has_body:
            self.wfile.write(answer.body)
        if answer.holds:
            self.close_connection = True
            released = self.backend.released
            with suppress(OSError):  # the client has gone
                self.wfile.flush()
                while not released.wait(0.01 if answer.holds == "drops" else 60):
                    self.wfile.write(b".")
                    self.wfile.flush()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: the tests are about clients that go away."""


@contextmanager
def backend(*answers: Answer, port: int = 0) -> Iterator[Backend]:
    """Run a backend that gives *answers*, by default good ones, at *port* or at a free one."""
    with _Server(("127.0.0.1", port), _Handler) as server:
        made = Backend(answers or [Answer()], server.server_address[1])
        server.RequestHandlerClass = type("_BoundHandler", (_Handler,), {"backend": made})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.release()
            server.shutdown()
            thread.join()
