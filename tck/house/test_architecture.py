"""The rooms of the house: the modules that each may use, and the limits to the size of functions and files.

Import-linter checks the direction of imports between them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest

from kit.program import ALONE, python
from kit.source import FILES, nodes_of, parsed, text_of

RUNTIME = ("_platform/", "_deadline/", "_execution/", "_extensions/fleet/")
TESTING = ("testing.py", "testing/", "pytest_plugin.py")
OUTSIDE = ("integrations/", "web/")
"""What is written as an application would be."""
CLOCKS = ("_deadline/threads/activity.py", "_platform/unpatched.py")

ALLOWED = {
    # Only the runtime waits; the test kit replaces what it waits with.
    "asyncio": (*RUNTIME, *TESTING, *OUTSIDE),
    "concurrent": (*RUNTIME, *TESTING, *OUTSIDE),
    "_thread": (*RUNTIME, *TESTING),
    "queue": (*RUNTIME, *TESTING),
    "signal": RUNTIME,
    "ctypes": RUNTIME,
    # Time and chance are injected; one file reads each.
    "time": (*CLOCKS, "integrations/_time.py"),
    "random": ("_deadline/clock.py", *TESTING),
    # What raises while words are written decides no call: one file sees to that.
    "logging": ("_log.py",),
}
"""Modules of the standard library, and the rooms that may import them."""

SHORT_LIVED = {"Lock", "RLock", "get_ident", "local", "current_thread", "main_thread"}
"""What any room may take from `threading`: a lock over arithmetic, a name for the thread, a value of its own."""


CONNECTING = "_telemetry/connect.py"
"""Chooses the exporters and connects them; what they show does not concern it."""

MOST_BRANCHES = 31
MOST_LINES = 90
MOST_LINES_OF_A_FILE = 500

LARGE_FUNCTIONS = {
    # The attempts of a call under all policies, from which the policies that a function has not are cut away.
    "_call/attempt.py attempt": (170, 212),
    "_call/attempt.py attempt.call": (164, 200),
}
"""Functions that may exceed the limits, each with the branches and the lines that it may have."""

LARGE_FILES: dict[str, int] = {}
"""Files that may exceed the limit, each with the lines that it may have."""

CIRCLES = {
    (
        "_call/bound_policies",
        "_call/continuation",
    ): "settling an attempt leads to a retry or a fallback, which ask the policies",
    (
        "_guard_value/guard",
        "_guard_value/guard_resolver",
        "_guard_value/client_proxy",
    ): "a Guard makes a resolver and ports, which keep it",
    (
        "_policy/foreign_names",
        "_policy/parameter",
    ): "a value with a wrong name loads the names that other libraries have",
    (
        "_deadline/queue",
        "_deadline/attempt_record",
        "_deadline/task",
    ): "a deadline, the queue that it stands in, and the attempt that it is noted on",
    (
        "_deadline/threads/callbacks",
        "_deadline/threads/pending_interrupt",
        "_deadline/threads/chain",
    ): "a thread keeps what is pending for it, which refers to its deadlines",
    (
        "testing/simulated_loop",
        "testing/simulated_run",
        "testing/simulated_threads",
    ): "a run owns its threads and loops, each of which knows its run",
    ("testing/virtual_clock", "testing/virtual_loop"): "a clock makes loops, which follow it",
}
"""Files that import one another, imports for type checkers and inside functions included, and the reason for each."""

MOST_FILES_OF_A_CIRCLE = 3

BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.With,
    ast.AsyncWith,
    ast.comprehension,
    ast.match_case,
)


class Measure(NamedTuple):
    """The size of a function, with the functions inside it."""

    branches: int
    lines: int

    def exceeds(self, branches: int = MOST_BRANCHES, lines: int = MOST_LINES) -> bool:
        return self.branches > branches or self.lines > lines


def modules_named(file: str) -> Iterator[str]:
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def attributes_of(file: str, module: str) -> Iterator[str]:
    """Yield the names that a file uses of a module, as `module.name` or by `from module import name`."""
    for node in nodes_of(file):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == module:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            yield node.attr


def measured(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Measure]]:
    """Yield the measure of each function below *tree*, with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}{node.name}"
            if not isinstance(node, ast.ClassDef):
                assert node.end_lineno is not None
                yield name, Measure(branches_in(node), node.end_lineno - node.lineno + 1)
            yield from measured(node, f"{name}.")
        else:
            yield from measured(node, above)


def branches_in(tree: ast.AST) -> int:
    """Count the branches of a function; ``and`` and ``or`` have one less than they have operands."""
    return sum(
        len(node.values) - 1 if isinstance(node, ast.BoolOp) else isinstance(node, BRANCHES) for node in ast.walk(tree)
    )


def lines_of(file: str) -> int:
    return len(text_of(file).splitlines())


@cache
def rooms_and_names() -> tuple[set[str], set[str], tuple[str, ...]]:
    """Return the rooms, the names of files, and the beginnings of the paths of files in a room."""
    rooms = {file.rpartition("/")[0] for file in FILES} - {""}
    return rooms, {file.rpartition("/")[2] for file in FILES} | {".py"}, tuple(f"{room}/" for room in rooms)


def files_named(file: str) -> set[str]:
    """Return the strings that name a source file of the package, or a room as a folder, but for docstrings."""
    rooms, names, beginnings = rooms_and_names()
    prose, attributes, strings = set[int](), set[str](), dict[int, str]()
    for node in nodes_of(file):
        if isinstance(node, ast.Expr):
            prose.add(id(node.value))
        elif isinstance(node, ast.Attribute):
            # `__slots__` and `getattr` name attributes, which may be called as a room is.
            attributes.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings[id(node)] = node.value
    return {
        text
        for text in {strings[node] for node in strings.keys() - prose} - attributes
        if text in rooms or text.rpartition("/")[2] in names or text.startswith(beginnings)
    }


@cache
def imports_of(file: str) -> set[str]:
    """Return the files of the package that *file* imports: at its top, for type checkers, or inside a function."""
    found, known = set[str](), set(FILES)
    for node in nodes_of(file):
        if isinstance(node, ast.ImportFrom) and node.level:
            room = PurePosixPath(file).parents[node.level - 1] / (node.module or "").replace(".", "/")
            for path in (room, *(room / alias.name for alias in node.names)):
                found |= {f"{path}.py", f"{path}/__init__.py"} & known
    return found - {f"{folder}/__init__.py" for folder in PurePosixPath(file).parents}


def circles_in(imports: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """Return the largest sets of files in which each file leads to each other one."""
    reached: dict[str, set[str]] = {}
    for file in imports:
        seen, ahead = set(), [file]
        while ahead:
            fresh = imports[ahead.pop()] - seen
            seen |= fresh
            ahead += fresh
        reached[file] = seen
    return {
        tuple(sorted(other.removesuffix(".py") for other in reached[file] if file in reached[other]))
        for file in imports
        if file in reached[file]
    }


@cache
def functions() -> dict[str, Measure]:
    """Return the measure of each function of the package, by its file and its qualified name."""
    return {f"{file} {name}": measure for file in FILES for name, measure in measured(parsed(file))}


def test_only_the_runtime_waits_and_only_the_clock_knows_the_time() -> None:
    """Decisions are pure: the time and the random number are arguments."""
    roots = {(file, module.split(".")[0]) for file in FILES for module in modules_named(file)}

    misplaced = {(file, root) for file, root in roots if root in ALLOWED and not file.startswith(ALLOWED[root])}

    assert misplaced == set()


def test_threads_are_started_in_the_runtime_only() -> None:
    """Elsewhere `threading` provides locks around arithmetic, and the names of threads."""
    others = [file for file in FILES if not file.startswith((*RUNTIME, *TESTING))]
    taken = {(file, name) for file in others for name in attributes_of(file, "threading")}

    assert {(file, name) for file, name in taken if name not in SHORT_LIVED} == set()


def test_the_environment_is_read_by_the_configuration_only() -> None:
    """A value has one way in, so that its source can be shown."""
    others = [file for file in FILES if not file.startswith("_config/")]
    taken = {(file, name) for file in others for name in attributes_of(file, "os")}

    assert {(file, name) for file, name in taken if name in ("environ", "environb", "getenv", "getenvb")} == set()


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("_telemetry/") and file != CONNECTING])
def test_sinks_see_only_events_and_counts_of_the_library(file: str) -> None:
    """A sink can be read, and replaced, without knowing how calls are guarded."""
    ours = {
        (node.module or alias.name).partition(".")[0]
        for node in nodes_of(file)
        if isinstance(node, ast.ImportFrom) and node.level > file.count("/")
        for alias in node.names
    }

    assert ours <= {"_event", "_log", "_metrics", "_shown"}


def test_files_that_import_one_another_are_few_and_each_circle_has_its_reason() -> None:
    """Type checkers and readers follow every import, wherever it stands."""
    circles = circles_in({file: imports_of(file) for file in FILES})

    assert circles == {tuple(sorted(circle)) for circle in CIRCLES}
    assert all(len(circle) <= MOST_FILES_OF_A_CIRCLE for circle in circles)


def test_extensions_do_not_import_one_another() -> None:
    """Each extension can be read, and taken away, without the others."""
    pairs = {
        (file.split("/")[1], other.split("/")[1])
        for file in FILES
        if file.startswith("_extensions/") and file.count("/") > 1
        for other in imports_of(file)
        if other.startswith("_extensions/")
    }

    assert {(one, other) for one, other in pairs if one != other} == set()


def test_a_function_can_be_read_in_one_go() -> None:
    large = {name: measure for name, measure in functions().items() if measure.exceeds(*LARGE_FUNCTIONS.get(name, ()))}

    assert large == {}


def test_a_file_can_be_read_in_one_go() -> None:
    large = {file: lines_of(file) for file in FILES if lines_of(file) > LARGE_FILES.get(file, MOST_LINES_OF_A_FILE)}

    assert large == {}


def test_every_exception_to_the_limits_is_needed() -> None:
    """A line of a function or file that became smaller is taken away."""
    known = functions()
    small = {name for name in LARGE_FUNCTIONS if name not in known or not known[name].exceeds()}
    files = {file for file in LARGE_FILES if file not in FILES or lines_of(file) <= MOST_LINES_OF_A_FILE}

    assert (small, files) == (set(), set())


def test_no_string_names_a_file_of_the_package() -> None:
    """A string that names a file goes wrong when the file is renamed, and no checker sees it."""
    assert {(file, name) for file in FILES for name in files_named(file)} == set()


@pytest.mark.outside
def test_importing_the_package_stays_cheap() -> None:
    """A module that only some applications need is imported when it is first needed."""
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
    # What the interpreter loads for itself costs nothing: 3.13 needs linecache for ``-c``, 3.14 ast for named tuples.
    program = f"""
import sys, typing
class _(typing.NamedTuple):
    field: int
before = set(sys.modules)
import faulttolerance
print(*(name for name in {heavy!r} if name in sys.modules.keys() - before))
"""

    # -I: neither the environment nor the user's site may preload any of them.
    done = python(program, "-I")

    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.outside
def test_guarding_a_plain_function_reads_no_signature() -> None:
    """``inspect`` is for fallbacks and ``@asynchronous``; decorator and first call do not need it."""
    program = """
import sys
from faulttolerance import retry

@retry
def function():
    return "done"

print(function(), *(name for name in ("dataclasses", "inspect") if name in sys.modules))
"""

    done = python(program, "-I")

    assert (done.stdout.strip(), done.stderr) == ("done", "")


@pytest.mark.outside
def test_a_first_call_on_an_abstract_class_needs_no_inspection() -> None:
    """Its class is as plain as any other, and many services have base classes with abstract methods."""
    program = """
import abc, sys
from faulttolerance import retry

class Client(abc.ABC):
    @retry
    def fetch(self):
        return "fetched"

print(Client().fetch(), "inspect" in sys.modules)
"""

    done = python(program, "-S", environment=ALONE)

    assert (done.stdout.strip(), done.stderr) == ("fetched False", "")


@pytest.mark.outside
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

    done = python(program, "-I")

    assert (done.stdout.strip(), done.stderr) == ("", "")
