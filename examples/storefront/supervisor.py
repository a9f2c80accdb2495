"""Runs the backend, and starts it again after its crash, as an init system would."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from backend import CRASH, CRASH_STATUS


class Supervisor:
    """Keeps one backend process alive, until told to stop."""

    def __init__(self, database: Path) -> None:
        self.crashes = 0
        self._database = database
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="supervisor")

    @property
    def address(self) -> str:
        """Where the backend listens, when it does."""
        return f"http://127.0.0.1:{self._port}"

    @contextlib.contextmanager
    def running(self, begin: float) -> Iterator[None]:
        """Have the backend up, its timetable beginning at *begin*, until the block ends."""
        self._start(begin)
        try:
            self._await_first_answer()
            self._begin = begin
            self._thread.start()
            yield
        finally:
            self._stopping.set()
            if self._thread.is_alive():
                self._thread.join()
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _start(self, begin: float) -> None:
        backend = str(Path(__file__).with_name("backend.py"))
        self._process = subprocess.Popen(
            [sys.executable, backend, str(self._port), repr(begin), str(self._database)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C is left to this process
        )

    def _await_first_answer(self) -> None:
        for _ in range(200):
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1)
                connection.request("GET", "/alive")
                if connection.getresponse().status == 200:
                    connection.close()
                    return
            time.sleep(0.05)
        raise RuntimeError("the backend did not start")

    def _watch(self) -> None:
        while not self._stopping.wait(0.02):
            assert self._process is not None
            status = self._process.poll()
            if status is None:
                continue
            if status != CRASH_STATUS:
                raise RuntimeError(f"the backend ended with status {status}")
            self.crashes += 1
            if not self._stopping.wait(CRASH.until - CRASH.since):
                self._start(self._begin)
