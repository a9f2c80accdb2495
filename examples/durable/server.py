"""A PostgreSQL server for the demonstration: on a free port, in a temporary directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MISSING = """PostgreSQL is not installed; the demonstration starts a server of its own. To install it:
  Debian, Ubuntu:  sudo apt-get install postgresql
  Fedora:          sudo dnf install postgresql-server
  macOS:           brew install postgresql"""


def what_is_missing(*, postgres: bool) -> str:
    """Return how to install the missing package or program, or an empty text."""
    if find_spec("dbos") is None:
        return "The package dbos is missing. To install it: python3 -m pip install 'faulttolerance[durable]'"
    return MISSING if postgres and programs() is None else ""


def programs() -> Path | None:
    """Return the folder of the server's programs, which Debian keeps out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    return None if initdb is None else Path(initdb).parent


@contextmanager
def running() -> Iterator[str]:
    """Run a server as long as the block lasts, and yield its address."""
    where = programs()
    assert where is not None
    # It refuses to run as root.
    user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="postgres", ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, **user)
        make: list[str | Path] = [
            where / "initdb",
            "-D",
            folder,
            "--no-sync",
            "--auth=trust",
            "--username=shop",
            "--encoding=UTF8",
        ]
        subprocess.run(make, check=True, capture_output=True, cwd=folder, **user)
        settings = ["fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={port}"]
        settings += ["max_connections=200"]
        command: list[str | Path] = [
            where / "postgres",
            "-D",
            folder,
            *(part for one in settings for part in ("-c", one)),
        ]
        with open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demonstration
                **user,
            )
        try:
            _await(port)
            yield f"postgresql://shop@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGQUIT)  # at once, its children too
            process.wait()


def _await(port: int) -> None:
    import psycopg

    end = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(f"host=127.0.0.1 port={port} user=shop dbname=postgres").close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
