"""A fork under a guard is as quiet as one without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from faulttolerance import retry
assert "logging" not in sys.modules
@retry
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(fork())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_first_fork_of_a_program_that_does_not_log_is_quiet(tmp_path: Path) -> None:
    """A module that is imported between two halves of a fork has half of its own hooks run: none is (rule L5)."""
    program = tmp_path / "forks.py"
    program.write_text(PROGRAM)

    found = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=30)

    assert (found.stdout, found.stderr) == ("0\n", "")
