"""A Prometheus of our own: on a free port, in a directory that goes with it, and what can be asked of it."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = "prometheus"
MISSING = f"""There is no {PROGRAM}, of which this starts one of its own. To install it:
  Debian, Ubuntu:  sudo apt-get install prometheus
  Fedora:          sudo dnf install golang-github-prometheus
  macOS:           brew install prometheus"""

INTERVAL = 0.1
"""Seconds from one scrape, and from one look at the rules, to the next."""


class Series(NamedTuple):
    """One line of a panel: its labels, and its values by the server's time, without those that are no number."""

    labels: dict[str, str]
    values: dict[float, float]


class Server:
    """What is known of one."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def now(self, query: str) -> list[float]:
        """Give the values that *query* has now."""
        return [float(one["value"][1]) for one in self._asked("query", query=query)["result"]]

    def over(self, query: str, since: float, until: float, step: float = INTERVAL) -> list[Series]:
        """Give what *query* says from one moment to another; ``ValueError`` where it is none."""
        found = self._asked("query_range", query=query, start=f"{since}", end=f"{until}", step=f"{step}")
        series = (
            Series(one["metric"], {at: float(text) for at, text in one["values"] if math.isfinite(float(text))})
            for one in found["result"]
        )
        return [one for one in series if one.values]

    def values_of(self, label: str, **parameters: str) -> set[str]:
        """Give the values of a label."""
        return set(self._asked(f"label/{label}/values", **parameters))

    def time(self) -> float:
        """Give what time the server has."""
        return float(self._asked("query", query="time()")["result"][0])

    def has(self, query: str) -> bool:
        """Tell whether *query* has a value other than 0 now; false also while the server is not up yet."""
        with contextlib.suppress(OSError):
            return any(self.now(query))
        return False

    def _asked(self, what: str, **parameters: str) -> Any:
        address = f"{self._address}/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (400, 422):
                    raise  # an OSError: it is not ready yet
                raise ValueError(json.load(error)["error"]) from None


def what_is_missing() -> str:
    """Say what to install; empty where everything is there."""
    return "" if shutil.which(PROGRAM) else MISSING


@contextlib.contextmanager
def running(target: int, rules: str) -> Iterator[Server]:
    """Have a server up that scrapes the port *target* of this machine, and has *rules*, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        (Path(folder) / "rules.yml").write_text(rules, encoding="utf-8")
        (Path(folder) / "prometheus.yml").write_text(
            f"""
global: {{scrape_interval: {INTERVAL * 1000:.0f}ms, evaluation_interval: {INTERVAL * 1000:.0f}ms}}
rule_files: [rules.yml]
scrape_configs: [{{job_name: shop, static_configs: [{{targets: ["127.0.0.1:{target}"]}}]}}]
""",
            encoding="utf-8",
        )
        with open(Path(folder) / "log", "w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                [
                    PROGRAM,
                    "--config.file=prometheus.yml",
                    "--storage.tsdb.path=data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C is left to us
            )
            try:
                server = Server(port)
                until(lambda: server.has("up") or process.poll() is not None)
                if process.poll() is not None:
                    raise SystemExit(f"{PROGRAM} ended:\n{(Path(folder) / 'log').read_text(encoding='utf-8')}")
                yield server
            finally:
                process.terminate()
                process.wait()


def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"it did not come to that within {seconds:g} s")
        time.sleep(0.05)


def free_port() -> int:
    """Give a port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
