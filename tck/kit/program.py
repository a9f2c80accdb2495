"""Programs in an interpreter of their own: for first imports, forks, hangs and exits of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import faulttolerance

from .forked import CAN_FORK, fork

__all__ = ["ALONE", "LIBRARY", "QUIET", "command_line", "output_of", "python"]

ALONE = {
    "PYTHONPATH": str(Path(faulttolerance.__file__).parents[1]),
    **{name: value for name, value in os.environ.items() if name == "PYTHONPYCACHEPREFIX"},
}
"""An environment with nothing in it but the path to the package, and to its compiled files."""
QUIET = "import logging; logging.getLogger('faulttolerance').addHandler(logging.NullHandler())\n"
"""The first line of a program whose calls fail on purpose, and whose standard error is checked."""
LIBRARY = "from faulttolerance import *"
"""The imports of all that the package exports, for programs that come *after* it."""


def python(
    program: str | Path,
    *options: str,
    arguments: tuple[str, ...] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    seconds: float = 60.0,
    after: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run *program*, a file or a text that may be indented, under the interpreter's *options*; a hang fails the test.

    With *after*, an interpreter that has run this text forks it, and it finds these modules imported.
    """
    if isinstance(program, str):
        program = textwrap.dedent(program)
    if after is not None and CAN_FORK:
        return fork(
            program,
            *options,
            beginning=after,
            paths=ALONE,
            arguments=arguments,
            folder=folder,
            environment=environment,
            seconds=seconds,
        )
    command = [sys.executable, *options, *(["-c", program] if isinstance(program, str) else [program]), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=dict(environment)
    ) as process:
        try:
            output, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as hang:
            process.send_signal(signal.SIGABRT if CAN_FORK else signal.SIGTERM)  # faulthandler says where it is
            hang.add_note("".join(process.communicate(timeout=seconds)))
            raise
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, error)


def output_of(
    program: str,
    *options: str,
    arguments: tuple[str, ...] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    after: str | None = None,
) -> str:
    """Return the output of *program*, which ends well and writes nothing to its standard error."""
    done = python(program, *options, arguments=arguments, folder=folder, environment=environment, after=after)
    assert (done.returncode, done.stderr) == (0, ""), f"status {done.returncode}: {done.stderr}"
    return done.stdout.strip()


def command_line(
    *arguments: str, folder: Path, environment: Mapping[str, str] = ALONE
) -> subprocess.CompletedProcess[str]:
    """Run the package's command line in *folder*, where its parts were imported before."""
    program = "import runpy; runpy.run_module('faulttolerance', run_name='__main__', alter_sys=True)"
    imports = f"{LIBRARY}\nfrom faulttolerance._command import cli\nimport faulttolerance.testing"
    return python(program, arguments=arguments, folder=folder, environment=environment, after=imports)
