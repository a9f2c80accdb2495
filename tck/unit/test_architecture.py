"""The rooms of the house: what each may use. The direction of imports between them is import-linter's to check."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import faulttolerance

PACKAGE = Path(faulttolerance.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

RUNTIME = ("_runtime/",)
TESTING = ("testing.py", "testing/", "pytest_plugin.py")
CLOCKS = ("_runtime/activity.py", "_runtime/native.py")

ALLOWED = {
    # Only the runtime waits; the test kit replaces what it waits with.
    "asyncio": (*RUNTIME, *TESTING),
    "concurrent": (*RUNTIME, *TESTING),
    "_thread": (*RUNTIME, *TESTING),
    "queue": (*RUNTIME, *TESTING),
    "signal": RUNTIME,
    "ctypes": RUNTIME,
    # Time and chance are injected; one file reads each.
    "time": CLOCKS,
    "random": ("_runtime/clock.py", *TESTING),
    # What raises while words are written decides no call: one file sees to that.
    "logging": ("_log.py",),
}
"""Modules of the standard library, and the rooms that may import them."""

SHORT_LIVED = {"Lock", "RLock", "get_ident", "local", "current_thread", "main_thread"}
"""What any room may take from `threading`: a lock over arithmetic, a name for the thread, a value of its own."""


def modules_named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def attributes_of(tree: ast.AST, module: str) -> Iterator[str]:
    """What is taken from a module, as `module.name` or by `from module import name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == module:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            yield node.attr


def parsed(file: str) -> ast.AST:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"), file)


@pytest.mark.parametrize("file", FILES)
def test_only_the_runtime_waits_and_only_the_clock_knows_the_time(file: str) -> None:
    """Decisions are pure: they are given the time and the random number."""
    roots = {module.split(".")[0] for module in modules_named(parsed(file))}

    misplaced = {root for root in roots if root in ALLOWED and not file.startswith(ALLOWED[root])}

    assert misplaced == set()


@pytest.mark.parametrize("file", [file for file in FILES if not file.startswith((*RUNTIME, *TESTING))])
def test_threads_are_started_in_the_runtime_only(file: str) -> None:
    """Elsewhere `threading` serves for locks that cover arithmetic, and for telling threads apart."""
    taken = set(attributes_of(parsed(file), "threading"))

    assert taken <= SHORT_LIVED


@pytest.mark.parametrize("file", [file for file in FILES if not file.startswith("_config/")])
def test_the_environment_is_read_by_the_configuration_only(file: str) -> None:
    """A value has one way in, so that its source can be told."""
    taken = set(attributes_of(parsed(file), "os"))

    assert taken.isdisjoint({"environ", "environb", "getenv", "getenvb"})


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("_telemetry/")])
def test_sinks_see_events_and_nothing_else_of_ours(file: str) -> None:
    """A sink can be read, and replaced, without knowing how calls are guarded."""
    ours = {
        node.module or ""
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ImportFrom) and node.level > file.count("/")
    }

    assert ours <= {"_event", "_log"}


def test_importing_the_package_stays_cheap() -> None:
    """What only some applications need is imported when it is first needed."""
    heavy = [
        "ast",
        "asyncio",
        "concurrent.futures",
        "dataclasses",
        "difflib",
        "dis",
        "inspect",
        "linecache",
        "logging",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "pydantic_settings",
        "random",
        "rich",
        "signal",
        "textwrap",
        "tokenize",
        "wrapt",
    ]
    # What the interpreter has loaded for itself costs nothing: 3.13 needs linecache for ``-c``.
    program = (
        f"import sys; before = set(sys.modules); import faulttolerance; "
        f"print(*(name for name in {heavy!r} if name in sys.modules.keys() - before))"
    )

    # -I: neither the environment nor the user's site may preload any of them.
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_guarding_a_plain_function_reads_no_signature() -> None:
    """``inspect`` is for fallbacks and ``@asynchronous``; decorator and first call do without."""
    program = """
import sys
from faulttolerance import retry

@retry
def function():
    return "done"

print(function(), *(name for name in ("dataclasses", "inspect") if name in sys.modules))
"""

    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("done", "")


def test_importing_the_package_compiles_no_annotation() -> None:
    """``typing`` would, for a named tuple under ``from __future__ import annotations`` and for bounds in quotes."""
    program = """
import sys
compiled = []
sys.addaudithook(lambda event, args: compiled.append(args) if event == "compile" else None)
import faulttolerance
texts = [code for code, name in compiled if name == "<string>"]
print(*(text for text in texts if not text.startswith(b"lambda _cls, ")))  # what collections makes a named tuple of
"""

    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("", "")
