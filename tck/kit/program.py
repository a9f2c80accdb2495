"""Programs in an interpreter of their own: for what is imported first, forks, hangs or ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import faulttolerance

__all__ = ["ALONE", "QUIET", "output_of", "python"]

ALONE = {
    "PYTHONPATH": str(Path(faulttolerance.__file__).parents[1]),
    **{name: value for name, value in os.environ.items() if name == "PYTHONPYCACHEPREFIX"},
}
"""An environment with nothing in it but the way to the package, and to what was compiled."""
QUIET = "import logging; logging.getLogger('faulttolerance').addHandler(logging.NullHandler())\n"
"""The first line of a program whose calls fail on purpose, and whose standard error is looked at."""


def python(
    program: str,
    *options: str,
    arguments: tuple[str, ...] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    seconds: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run the text *program*, which may be indented, under the interpreter's *options*; a hang fails the test."""
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=dict(environment),
        timeout=seconds,
    )


def output_of(
    program: str,
    *options: str,
    arguments: tuple[str, ...] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Give the output of *program*, which ends well and writes nothing to its standard error."""
    done = python(program, *options, arguments=arguments, folder=folder, environment=environment)
    assert (done.returncode, done.stderr) == (0, ""), f"status {done.returncode}: {done.stderr}"
    return done.stdout.strip()
