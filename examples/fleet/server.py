"""A redis-server of our own: on a free port, in a directory that goes with it, and without anything on disk."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

PROGRAM = "redis-server"
MISSING = f"""There is no {PROGRAM}, of which this starts one of its own. To install it:
  Debian, Ubuntu:  sudo apt-get install redis-server
  Fedora:          sudo dnf install valkey-compat-redis
  macOS:           brew install redis"""


class Server:
    """It can be killed, come back empty, and be stopped in the middle of what it does."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def start(self) -> None:
        """Have it up, and empty."""
        self._process = subprocess.Popen(
            [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C is left to us
        )
        for _ in range(500):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as asked:
                    asked.sendall(b"PING\r\n")
                    if asked.recv(7) == b"+PONG\r\n":
                        return
            except OSError:
                pass
            time.sleep(0.01)
        raise RuntimeError(f"{PROGRAM} did not start")

    def kill(self) -> None:
        """Let it end as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Let it take connections and answer nobody, as a machine does that is out of memory."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, and answer what it was asked meanwhile."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


@contextmanager
def running() -> Iterator[Server]:
    """Have a server for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def what_is_missing() -> str:
    """Say what has to be installed first; nothing: it is all there."""
    if importlib.util.find_spec("redis") is None:
        return "The package redis is missing. To install it: python3 -m pip install 'redis[hiredis]>=5'"
    return "" if shutil.which(PROGRAM) else MISSING
