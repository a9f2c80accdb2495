"""Run a demonstration, the tests or the checks on a machine that has only Python 3.11 and pip.

    python3 .ci/bootstrap.py demo [--plain] [--workers gevent]
    python3 .ci/bootstrap.py overload [--plain] [--plot FILE]
    python3 .ci/bootstrap.py fleet [--plain] [--seconds 10]
    python3 .ci/bootstrap.py observed
    python3 .ci/bootstrap.py durable [--postgres] [--kills 20]
    python3 .ci/bootstrap.py test [--tier stress] [arguments of pytest]
    python3 .ci/bootstrap.py check [arguments of nox]

What is needed is installed once into an environment below `.bootstrap/`; the system's own packages are never touched.
Debian's Python refuses `pip install` (PEP 668) and cannot put pip into a virtual environment (`ensurepip` is a package
of its own); so the environment is made without pip, and the system's pip is told to install into it. It installs uv,
which installs the rest; where uv cannot, pip does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHECKS = ["lint", "typing", "docstrings", "bare", "alone", "tck", "site", "release"]
"""Sessions of ``noxfile.py``."""
TASKS = {
    "demo": ("demo,prometheus,redis", ["examples/storefront"]),
    "overload": ("demo,prometheus,redis", ["-m", "examples.overload"]),
    "fleet": ("demo,prometheus,redis", ["-m", "examples.fleet"]),
    "observed": ("demo,prometheus,redis", ["-m", "examples.observed"]),
    "durable": ("durable", ["-m", "examples.durable"]),
    "test": ("test,test-optional,durable", ["-m", "pytest", "--dist", "worksteal"]),
    "check": ("nox", ["-m", "nox", "--sessions", *CHECKS]),
}
"""For each word on the command line: the extras of its environment, shared with equal ones, and what Python runs."""


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 -- the one file that older ones may be asked to run
        return _refuse(f"Python 3.11 or later is needed; this is {sys.version.split()[0]} ({sys.executable}).")
    if not arguments or arguments[0] not in TASKS:
        return _refuse(__doc__ or "")
    task, *rest = arguments
    extras, command = TASKS[task]
    if task == "test":
        rest = _tiers(rest)
        rest = [f"-n{_processes(waits='--tier=outside' in rest)}", *rest]
    python = _environment(extras)
    return _run([python, *command, *rest]) if python else 1


def _processes(*, waits: bool) -> int:
    """One more than processors, or two if many tests wait for programs and servers; each process collects all tests."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors + 1 + waits, 8)


def _tiers(arguments: list[str]) -> list[str]:
    """Return *arguments* of pytest, with the two usual tiers if they name neither a tier nor tests.

    pytest takes `stress` in `--tier stress` for a path: it knows the project's own options later.
    """
    usual = [] if any(one.startswith(("--tier", "tck")) for one in arguments) else ["--tier=default", "--tier=outside"]
    return [*usual, *"\0".join(arguments).replace("--tier\0", "--tier=").split("\0")] if arguments else usual


def _run(command: list[str], stdout: int | None = None) -> int:
    """The exit status of *command*, as a shell gives it. Ctrl-C reaches the command, too, and is its business."""
    # Tests start hundreds of programs; each would compile the package anew where an image forbids to keep that.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".bootstrap" / "compiled"))
    # A handler, and not a KeyboardInterrupt, which could arrive while the command is being started.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        status = subprocess.call(command, cwd=ROOT, env=environment, stdout=stdout)
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - status if status < 0 else status


def _environment(extras: str) -> str | None:
    """The interpreter of an environment with the project and *extras* in it; made anew when pyproject.toml changed."""
    home = _home(extras.replace(",", "-"))
    stamp = home / "complete"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return _program(home, "python")
    pip = _make(home)
    if pip is None:
        return None
    print(f"Installing what is needed into {home.relative_to(ROOT)} ...", flush=True)
    project = ["--editable", f"{ROOT}[{extras}]"]
    if not _install_by_uv(home, project) and subprocess.call([*pip, *project]):
        return None
    stamp.write_text(wanted)
    python = _program(home, "python")
    if "test" in extras.split(","):
        print("Compiling the tests ...", flush=True)  # once: each process of pytest-xdist would do it for itself
        _run([python, "-m", "pytest", "--collect-only", "-qq", "--tier=all"], stdout=subprocess.DEVNULL)
    return python


def _home(name: str) -> Path:
    return ROOT / ".bootstrap" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"


def _program(home: Path, name: str) -> str:
    return str(home / (f"Scripts/{name}.exe" if os.name == "nt" else f"bin/{name}"))


def _install_by_uv(home: Path, packages: list[str]) -> bool:
    """Return whether uv installed *packages*: in a tenth of pip's time, but not everywhere."""
    tools = _home("uv")
    uv = _program(tools, "uv")
    if not Path(uv).is_file():
        pip = _make(tools)
        if pip is None or subprocess.call([*pip, "--only-binary=:all:", "uv"], stderr=subprocess.DEVNULL):
            return False
    install = [uv, "pip", "install", "--quiet", "--python", _program(home, "python"), *packages]
    environment = {**os.environ, "UV_NATIVE_TLS": "1"}  # the system's certificates, as pip has them
    return subprocess.call(install, stderr=subprocess.DEVNULL, env=environment) == 0  # else pip speaks


def _make(home: Path) -> list[str] | None:
    """Create the environment; the command that installs into it."""
    if importlib.util.find_spec("venv") is None:
        _refuse("This Python has no module venv.")
        return None
    create = [sys.executable, "-m", "venv", "--clear"]
    # What pip compiles would lie where _run does not look for it.
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    if importlib.util.find_spec("pip"):
        subprocess.check_call([*create, "--without-pip", str(home)])
        return [sys.executable, "-m", "pip", "--python", _program(home, "python"), *install]
    if importlib.util.find_spec("ensurepip"):
        subprocess.check_call([*create, str(home)])
        return [_program(home, "python"), "-m", "pip", *install]
    _refuse("This Python has no pip. On Debian and Ubuntu: sudo apt-get install python3-pip")
    return None


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        _refuse("stopped")
        sys.exit(130)
