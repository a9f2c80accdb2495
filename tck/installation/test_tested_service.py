"""The project in `examples/tested-service`, as its owner runs it: in an environment of its own, from the wheel.

Its requirements are in its own `pyproject.toml`, and nothing of this project's tests is on its path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.outside, pytest.mark.timeout(200)]  # programs say themselves that they hang

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "examples" / "tested-service"

Run = Callable[..., subprocess.CompletedProcess[str]]


def pip(python: Path) -> list[str]:
    """Return the command that installs for *python*: the environment of these tests may be without pip itself."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "--python", str(python)]
    found = shutil.which("pip3") or shutil.which("pip") or pytest.fail("there is no pip on the PATH")
    return [found, "--python", str(python)]


def install(python: Path, *packages: str) -> None:
    """Install packages for *python* by pip; without access to packages, skip the tests unless this is CI."""
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*pip(python), *options, "install", "--no-compile", *packages]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
    if done.returncode and not os.environ.get("CI"):
        reason = next((line for line in done.stderr.splitlines() if "ERROR" in line), "it does not say why")
        pytest.skip(f"pip cannot install what the example needs: {reason.strip()}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python in a copy of the project, in an environment with the wheel."""
    home = tmp_path_factory.mktemp("tested-service")
    environment, project = home / "environment", home / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    venv.create(environment, with_pip=False)
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    needed = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # By its path, from which pip builds the wheel: another project may have the name where pip looks.
    install(python, str(ROOT), *needed["optional-dependencies"]["test"])

    def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
        return subprocess.run(
            [python, *arguments],
            cwd=project, env=clean, capture_output=True, encoding="utf-8", timeout=60, check=False,
        )  # fmt: skip

    return run_python


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-m", "pytest", "-q"), "21 passed"),
        (("-m", "pytest", "-q", "-n", "2"), "21 passed"),
        (("-W", "error", "-m", "unittest", "test_unittest"), "OK"),
    ],
    ids=["pytest", "xdist", "unittest"],
)
def test_the_tests_of_the_example_pass(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """They pass under pytest with pytest-asyncio, in two processes of pytest-xdist, and under plain unittest."""
    done = run(*arguments)

    assert done.returncode == 0, done.stdout + done.stderr
    assert words in done.stdout + done.stderr


def test_the_example_runs_against_the_wheel(run: Run) -> None:
    """It does not run against the sources beside it."""
    done = run("-c", "import faulttolerance; print(faulttolerance.__file__)")

    assert "site-packages" in done.stdout
    assert str(ROOT) not in done.stdout
