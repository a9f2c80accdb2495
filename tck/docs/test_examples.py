"""Each small example runs to its end as a program of its own, and asserts its promises itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.program import LIBRARY, python

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
LOGGED = (": gave up after ", ": circuit breaker opened: ", " does not answer, and this process decides alone: ")
"""Messages of the library on standard error, as the examples set up no logging."""
EXAMPLES = sorted((ROOT / "examples" / "everyday").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.stem for example in EXAMPLES])
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    done = python(example, "-W", "error", folder=tmp_path, after=f"{LIBRARY}; import faulttolerance.testing")

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not any(words in line for words in LOGGED)] == []
    assert done.stdout  # it shows something


@pytest.mark.parametrize(("example", "option"), [("overload", "--plot"), ("durable", "--postgres")])
def test_a_demonstration_can_be_run_by_its_name(example: str, option: str) -> None:
    """All of it takes up to a minute; the import and the help take one second."""
    if example == "durable":
        pytest.importorskip("dbos")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.{example}", "--help"],
        cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert option in done.stdout


def test_the_demonstration_of_a_fleet_names_a_missing_server() -> None:
    """All of it takes forty seconds; the import and the check of its needs are done at once."""
    pytest.importorskip("redis")
    told, refused = (
        subprocess.run(
            [sys.executable, "-W", "error", "-m", "examples.fleet", *arguments],
            cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, encoding="utf-8", timeout=60, check=False,
        )
        for path, arguments in ((os.environ["PATH"], ["--help"]), ("", ["--plain"]))
    )  # fmt: skip

    assert (told.returncode, told.stderr) == (0, "")
    assert "--seconds" in told.stdout
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "apt-get install redis-server" in refused.stderr
