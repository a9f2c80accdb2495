"""Programs of their own that act before all imports, or may hang: surroundings of other people.

``run`` is for a program that ends by itself, ``gunicorn`` for a service. A program that hangs says where all its
threads stand, and fails the test.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from .program import python

__all__ = ["GREENLETS", "PATCH", "Service", "gunicorn", "needs", "run"]

SECONDS = 40.0
"""The time that a program may take; it takes one or two seconds on an idle machine."""

_ISOLATED = {"PYTHONMALLOC": "malloc"} if (3, 12) <= sys.version_info < (3, 12, 4) else {}
"""The environment of a program that closes an isolated interpreter.

CPython 3.12.0 to 3.12.3 aborts with ``free(): invalid pointer`` where such a program ends. The first interpreter that
calls a C function makes the tuple of the names of its arguments, and the main one frees the tuple at the end, with an
allocator that does not know it (CPython issue 119213). It takes nothing of this package::

    import _xxsubinterpreters as interpreters
    one = interpreters.create(isolated=True)
    interpreters.run_string(one, "import zlib; zlib.compress(b'', level=1)")
    interpreters.destroy(one)

The allocator of C is the same for all interpreters.
"""

PATCH = """
import gevent.events, gevent.monkey
gevent.events.notify_and_call_entry_points = gevent.events.notify  # else each patch looks for plugins in all packages
gevent.monkey.patch_all()
"""
"""The beginning of a program that uses gevent."""
GREENLETS = """
import gevent.events, gevent.monkey, gevent.queue, gevent.selectors, gevent.ssl, gevent.subprocess, gevent.threading
"""
"""The imports of all modules that gevent patches, without patching."""

_WATCHED = "import faulthandler; faulthandler.enable(); del faulthandler\n"
"""The beginning of a program that says where it hangs. No thread watches it: a fork warns of threads."""


def needs(*modules: str) -> None:
    """Skip the test where a package is not installed, but never in CI: there all of them are."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert not missing, f"not installed: {', '.join(missing)}"


def run(
    program: str,
    *options: str,
    status: int = 0,
    seconds: float = SECONDS,
    isolated: bool = False,
    after: str | None = None,
    **environment: str,
) -> list[str]:
    """Run *program* with warnings as errors, and return the lines that it prints.

    Args:
        program: Its text; indented alike.
        options: For the interpreter; a further ``-W`` after ``-W error`` lets a warning of other code pass.
        status: The exit status that it has to have.
        seconds: How long it may take.
        isolated: Whether it closes an isolated interpreter.
        after: The imports of an interpreter that then forks this program, if it may find them imported.
        environment: Variables beside those of this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        # A file and not ``-c``: the library reads sources, and so do readers of a traceback.
        file = Path(folder) / "program.py"
        file.write_text(_WATCHED + textwrap.dedent(program))
        options = ("-W", "error", *options)
        variables = {**os.environ, **(_ISOLATED if isolated else {}), **environment}
        done = python(file, *options, environment=variables, seconds=seconds, after=after)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


class Service:
    """A service that runs in processes of its own."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self._address = f"http://127.0.0.1:{port}"
        self._log = log

    def get(self, path: str, seconds: float = SECONDS) -> str:
        """Return the answer for *path*; for any status but 200, the status before it."""
        request = urllib.request.Request(self._address + path)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return f"{error.code} {error.read().decode()}"

    @property
    def log(self) -> str:
        """Return the text that the processes wrote to their standard error."""
        return self._log.read_text()


@contextlib.contextmanager
def gunicorn(
    application: str, folder: Path, *options: str, settings: str = "", **environment: str
) -> Iterator[Service]:
    """Serve ``application``, the text of a module with a WSGI application of that name, until the block ends.

    Args:
        application: The text.
        folder: Where it is written, and all else that gunicorn reads and writes.
        options: For gunicorn's command line.
        settings: The text of its file of settings.
        environment: Variables beside those of this process.
    """
    (folder / "application.py").write_text(textwrap.dedent(application))
    settings += "\ncontrol_socket_disable = True  # of releases that have one\n"
    settings += "graceful_timeout = 3  # a worker that is about to start misses the signal that ends the others\n"
    (folder / "gunicorn.conf.py").write_text(settings)
    log = folder / "log"
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening, log.open("wb") as stderr:
        number = listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", f"--bind=fd://{number}", *options, "application"],
            cwd=folder,
            env={**os.environ, **environment},
            pass_fds=[number],
            stderr=stderr,
        )
        with process:
            try:
                yield Service(process, listening.getsockname()[1], log)
            finally:
                process.terminate()
                try:
                    process.wait(SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
