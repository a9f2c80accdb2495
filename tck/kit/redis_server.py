"""Servers of Redis that belong to a test, which may kill, freeze, slow and empty them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

__all__ = ["RedisServer", "free_port", "redis_server", "slowed"]

_PATIENCE = 20.0
"""Seconds after which a server that was started must answer."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _program() -> str:
    """Return the path of Debian's redis-server; skip the test without it, but never in CI."""
    pytest.importorskip("redis")
    found = shutil.which("redis-server")
    if found is None and not os.environ.get("CI"):
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    assert found is not None, "redis-server is not installed: apt-get install redis-server"
    return found


class RedisServer:
    """A server on a port and in a directory of its own, which keeps nothing on disk.

    Args:
        folder: Where it runs.
        arguments: More of its settings, as on the command line: ``"--requirepass", "secret"``.
        sentinel: The text of its file of settings, if it is a sentinel.
    """

    def __init__(self, folder: Path, *arguments: str, sentinel: str = "") -> None:
        self._program = _program()
        self._folder = folder
        self._arguments = arguments
        self._sentinel = sentinel
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, empty; return when it answers."""
        folder = self._folder / str(self.port)
        folder.mkdir(parents=True, exist_ok=True)
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        if self._sentinel:
            (folder / "sentinel.conf").write_text(self._sentinel)
            command = [self._program, str(folder / "sentinel.conf"), "--sentinel", *settings]
        else:
            command = [self._program, *settings, "--save", "", "--appendonly", "no", *self._arguments]
        with open(folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self._process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, "it says nothing"
            time.sleep(0.01)

    def _answers(self) -> bool:
        """Return whether the server answers, even if only that a password is missing."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5) as one:
            one.settimeout(0.5)
            one.sendall(b"PING\r\n")
            return one.recv(100).startswith((b"+PONG", b"-NOAUTH", b"-DENIED"))
        return False

    def kill(self) -> None:
        """Kill the server at once, and all its data with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process: it accepts connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process where it was frozen."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Restart the server on the same port, empty."""
        self.kill()
        self.start()

    def client(self, **settings: Any) -> Any:
        """Return a client of redis-py, which the caller closes."""
        import redis

        return redis.Redis(port=self.port, **settings)

    def ask(self, *command: str, **settings: Any) -> Any:
        """Return the server's answer to one command."""
        with self.client(decode_responses=True, **settings) as client:
            return client.execute_command(*command)


@contextmanager
def redis_server(folder: Path, *arguments: str, sentinel: str = "") -> Iterator[RedisServer]:
    """Run a server for the length of the block, if the test does not end it sooner."""
    server = RedisServer(folder, *arguments, sentinel=sentinel)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def slowed(port: int, seconds: float = 0.05) -> Iterator[int]:
    """Yield a port that leads to the server at *port*, and delays all its answers by *seconds*."""
    with socket.create_server(("127.0.0.1", 0)) as entrance:
        ends: list[socket.socket] = []

        def carry(source: socket.socket, target: socket.socket, delay: float) -> None:
            with suppress(OSError):
                while received := source.recv(65536):
                    time.sleep(delay)
                    target.sendall(received)
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = entrance.accept()
                    server = socket.create_connection(("127.0.0.1", port))
                    ends.extend((caller, server))
                    for pair in ((caller, server, 0.0), (server, caller, seconds)):
                        thread = threading.Thread(target=carry, args=pair, daemon=True)
                        thread.start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield entrance.getsockname()[1]
        finally:
            with suppress(OSError):
                entrance.shutdown(socket.SHUT_RDWR)
            thread.join(_PATIENCE)
            for end in ends:
                end.close()
