"""Servers of real frameworks on real sockets, and a backend in a process of its own, which a test kills."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, Self

__all__ = ["Backend", "asgi", "wsgi"]


@contextlib.contextmanager
def asgi(app: Any) -> Iterator[str]:
    """Serve *app* by uvicorn, in a thread; yield the address."""
    uvicorn = __import__("uvicorn")
    ready = threading.Event()

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]
        async def startup(self, *args: Any, **kwargs: Any) -> None:
            await super().startup(*args, **kwargs)
            ready.set()

    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", ws="none", loop="asyncio", http="h11")
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(30.0), "uvicorn did not start"
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30.0)


@contextlib.contextmanager
def wsgi(app: Any) -> Iterator[str]:
    """Serve *app* by threads of werkzeug; yield the address."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: Any) -> None:
            pass

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(30.0)
        server.server_close()


_BACKEND = """
import socket, threading
listening = socket.create_server(("127.0.0.1", 0), backlog=64)
print(listening.getsockname()[1], flush=True)
def serve(connection):
    path = connection.recv(4096).split()[1]
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\n")
    connection.sendall(b"hello" if path == b"/" else b"hel")
    if path != b"/":
        print("half", flush=True)
        connection.recv(1)  # as long as somebody waits
    connection.close()
while True:
    threading.Thread(target=serve, args=[listening.accept()[0]], daemon=True).start()
"""


class Backend:
    """A process that answers ``/`` with ``hello``, and other paths with half of it; a test may kill it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _BACKEND], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
        )
        self.url = f"http://127.0.0.1:{int(self._said())}"
        return self

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def die_in_the_middle(self) -> None:
        """Wait until half of an answer was sent, and kill the process."""
        assert self._said() == "half\n"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30.0)

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()
