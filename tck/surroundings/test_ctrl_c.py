"""Ctrl-C, which a terminal sends to all its processes: the demonstration, and the program that starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.surroundings import needs

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
DEMONSTRATION = [str(ROOT / "examples/storefront"), "--plain"]

needs_groups = pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")


def interrupted(command: list[str], after: str) -> tuple[int, str]:
    """Return the status and the output of a command that gets Ctrl-C after its line with *after*."""
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,  # a new program, and no thread of ours in between
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        written = ""
        for line in process.stdout:
            written += line
            if after in line:
                os.killpg(process.pid, signal.SIGINT)
                break
        written += process.stdout.read()
        return process.wait(), written


def _hear_ctrl_c() -> None:
    # What a shell starts in the background ignores the signal, and so do its children.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@needs_groups
@pytest.mark.parametrize("options", [[], ["--workers", "gevent"]], ids=["threads", "gevent"])
def test_the_demonstration_ends_at_ctrl_c(options: list[str]) -> None:
    """Its status is the one that a shell expects, without a traceback; its processes end with it."""
    needs("httpx", "uvicorn", "rich", "gevent", "gunicorn", "pydantic_settings")

    status, written = interrupted([*DEMONSTRATION, *options], after="second")

    assert (status, written.splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in written


@needs_groups
@pytest.mark.parametrize("ends", ["sys.exit(130)", "os.kill(os.getpid(), signal.SIGINT)"], ids=["exits", "is-killed"])
def test_the_starter_of_the_demonstration_waits_for_it(ends: str) -> None:
    """The status is that of the program, which may end slowly; the output has nothing else."""
    bootstrap = ROOT / ".ci/bootstrap.py"
    if not bootstrap.is_file():
        pytest.skip("not part of a source distribution")
    program = f"""
import os, signal, sys, time
try:
    print("begun")
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.2)
    print("stopped")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    {ends}
"""
    start = f"""
import runpy, sys
sys.exit(runpy.run_path({str(bootstrap)!r})["_run"]([sys.executable, "-c", {program!r}]))
"""

    assert interrupted(["-c", start], after="begun") == (130, "begun\nstopped\n")
