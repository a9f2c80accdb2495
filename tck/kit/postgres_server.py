"""A server of PostgreSQL that belongs to a test, which may kill and restart it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .redis_server import free_port

__all__ = ["PostgresServer", "postgres_server"]

_PATIENCE = 30.0
"""Seconds after which a server that was started must answer."""


def _programs() -> Path:
    """Return the folder of the programs of Debian's package; skip the test without it, but never in CI."""
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    if initdb is None and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    assert initdb is not None, "PostgreSQL is not installed: apt-get install postgresql"
    return Path(initdb).parent


class PostgresServer:
    """A server on a port and in a directory of its own, which admits everybody on this machine."""

    def __init__(self, folder: Path) -> None:
        self._programs = _programs()
        self._folder = folder
        # It refuses to run as root.
        self._as_whom: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._as_whom:
            shutil.chown(folder, **self._as_whom)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--no-sync", "--auth=trust", "--username=shop", "--encoding=UTF8", "--locale=C")

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._programs / program, "-D", self._folder, *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._as_whom)

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://shop@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server with its old data; return when it admits a client.

        A server ends at once while a child of one that was killed lives, as that has its shared memory: it is started
        again.
        """
        import psycopg

        end = time.monotonic() + _PATIENCE
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process = self._started()
            try:
                psycopg.connect(f"host=127.0.0.1 port={self.port} user=shop dbname=postgres").close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self._folder / "log").read_text()
                time.sleep(0.02)

    def _started(self) -> subprocess.Popen[bytes]:
        settings = ["fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={self.port}"]
        command = [self._programs / "postgres", "-D", self._folder, *(part for one in settings for part in ("-c", one))]
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, **self._as_whom)

    def kill(self) -> None:
        """Kill the server at once; its children notice that, and end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server for the length of the block, if the test does not end it sooner."""
    with tempfile.TemporaryDirectory(prefix="postgres", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o700)
        server = PostgresServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()
