"""The same shop behind gunicorn, whose workers serve each customer by a greenlet: `--workers gevent`.

A WSGI application: `/<method>/<argument>` calls a guarded method, `/figures` says what was counted. gunicorn loads it
before it patches anything (`--preload`), which is the harder way round. Only methods that are no coroutines can be
called this way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
from figures import Figures, figures
from service import Storefront
from traffic import KINDS, Kind, Traffic

from faulttolerance import Future, configure, validate

BACKEND = "STOREFRONT_BACKEND"
SETTINGS = Path(__file__).with_name("storefront.toml")
SERVED = tuple(kind for kind in KINDS if not kind.awaited)


# In gunicorn: what stands here is done once, by the process that forks the worker.

if BACKEND in os.environ:
    configure(files=[SETTINGS])
    validate()


@functools.cache
def shop() -> Storefront:
    """One for all customers of a worker."""
    return Storefront(os.environ[BACKEND])


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    method, _, argument = environ["PATH_INFO"].strip("/").partition("/")
    storefront = shop()
    if method == "figures":
        content: Any = {name: dataclasses.asdict(one) for name, one in figures().items()}
    else:
        result = getattr(storefront, method)(argument)
        content = result.result() if isinstance(result, Future) else result
    answer = json.dumps(content).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
    return [answer]


# In the demonstration


class ServedTraffic(Traffic):
    """Customers who ask gunicorn."""

    def __init__(self, backend: str, address: str) -> None:
        super().__init__(backend, guarded=True, kinds=SERVED)
        self._customers = httpx.Client(base_url=address, limits=httpx.Limits(max_connections=None), timeout=70)

    def _method(self, kind: Kind) -> Callable[[Any, Any], Any]:
        def ask(_: Any, argument: Any) -> Any:
            return self._customers.get(f"/{kind.method}/{argument}").raise_for_status().json()

        return ask


class Server:
    """gunicorn with one worker, so that there is one state of circuits to look at."""

    def __init__(self, worker_class: str, backend: str) -> None:
        self._command = [sys.executable, "-m", "gunicorn", f"--worker-class={worker_class}", "--preload", "served"]
        self._command += [f"--chdir={Path(__file__).parent}", "--log-level=critical", "--no-control-socket"]
        self._environment = {**os.environ, BACKEND: backend}
        self.address = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have it serve until the block ends."""
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
            number = listening.fileno()
            self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            process = subprocess.Popen(
                [*self._command, f"--bind=fd://{number}"],
                env=self._environment,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # so that Ctrl-C is left to this process
            )
            try:
                self._await_first_answer(process)
                yield
            finally:
                process.terminate()
                process.wait()

    def _await_first_answer(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            with contextlib.suppress(httpx.TimeoutException):
                self.figures(1.0)
                return
            if process.poll() is not None:
                raise RuntimeError(f"gunicorn ended with status {process.returncode}")

    def figures(self, patience: float = 20.0) -> dict[str, Figures]:
        """What the worker has counted so far."""
        found = httpx.get(f"{self.address}/figures", timeout=patience).json()
        return {
            method: Figures(**one) for method, one in found.items() if any(method == kind.method for kind in SERVED)
        }
