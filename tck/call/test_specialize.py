"""Cutting ``attempt.path`` down to the policies of a guard changes the cost of a call, and never its result."""

from __future__ import annotations

import ast
import asyncio
import compileall
import py_compile
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import asynchronous, bulkhead, circuit_breaker, explain, fallback, rate_limit, retry, timeout
from faulttolerance._call import attempt, specialize, syntax_tree as specializer
from faulttolerance.testing import reset, virtual_time
from kit.program import python

Decorate = Callable[[Any], Any]

POLICIES: dict[str, Decorate] = {
    "fallback": fallback(lambda context: f"instead of {context.failure}"),
    "retry": retry(max_retries=2, jitter=0),
    "breaker": circuit_breaker(request_volume_threshold=3),
    "rate limit": rate_limit(4),
    "time-out": timeout(10_000),
    "late time-out": timeout(10_000, interrupt=False),
    "bulkhead": bulkhead(2),
}


def combinations() -> Iterator[tuple[str, ...]]:
    names = [name for name in POLICIES if name != "late time-out"]
    for number in range(1, 2 ** len(names)):
        yield tuple(name for at, name in enumerate(names) if number >> at & 1)
    yield ("late time-out",)
    yield ("retry", "late time-out", "bulkhead")


def outcomes(names: tuple[str, ...], asynchronous: bool) -> list[str]:
    """Return the outcomes of seven calls of a method that fails now and then."""
    moods = iter([None, OSError("1"), None, OSError("2"), OSError("3"), OSError("4"), OSError("5"), *[None] * 20])

    def body(argument: int, *, keyword: int = 0) -> str:
        if (mood := next(moods)) is not None:
            raise mood
        return f"{argument}/{keyword}"

    async def coroutine(argument: int, *, keyword: int = 0) -> str:
        await asyncio.sleep(0)
        return body(argument, keyword=keyword)

    guarded: Any = coroutine if asynchronous else body
    for name in names:
        guarded = POLICIES[name](guarded)

    async def run() -> list[str]:
        seen = []
        for number in range(7):
            try:
                result = guarded(number, keyword=number)
                seen.append(await result if asynchronous else result)
            except Exception as error:  # outcomes are compared
                seen.append(f"{type(error).__name__}: {error}")
        return seen

    with virtual_time() as clock:
        return clock.run(run())


@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
def test_a_cut_path_has_the_same_results_as_the_whole_one(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every combination of policies the same calls have the same results, cut or uncut."""
    cut = {names: outcomes(names, asynchronous) for names in combinations()}
    reset()
    monkeypatch.setattr(attempt, "specialized", lambda function, flags: specialize.uncut(function, (*flags.items(),)))

    assert {names: outcomes(names, asynchronous) for names in combinations()} == cut


def test_without_the_text_of_the_program_calls_take_the_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment of compiled files only works as well."""

    def no_source(function: object) -> object:
        raise OSError("source code not available")

    monkeypatch.setattr(specialize, "_source", no_source)
    specialize._specialized.cache_clear()
    try:
        found = outcomes(("retry", "time-out", "bulkhead"), asynchronous=False)
    finally:
        specialize._specialized.cache_clear()

    assert found[:2] == ["0/0", "1/1"]


def run_from(program: Path, lines: list[str]) -> str:
    """Run *lines* with the package in *program*, from a file, so that tracebacks show the text; return the output."""
    script = program / "script.py"
    script.write_text("\n".join(lines), encoding="utf-8")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def copied(program: Path) -> Path:
    """Copy the package into *program*; return the path of its ``attempt.py``."""
    shutil.copytree(
        Path(attempt.__file__).parents[1], program / "faulttolerance", ignore=shutil.ignore_patterns("__pycache__")
    )
    return program / "faulttolerance" / "_call" / "attempt.py"


CALLS = [
    "from faulttolerance import bulkhead, retry, timeout",
    "from faulttolerance._call import attempt",
    "outcomes = iter([OSError(), 'called'])",
    "@retry(max_retries=1, jitter=0)",
    "@timeout(9000)",
    "@bulkhead(2)",
    "def function():",
    "    outcome = next(outcomes)",
    "    if isinstance(outcome, OSError): raise outcome",
    "    return outcome",
    "print(function(), attempt.__file__)",
]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder with compiled files only, and the path of the ``attempt.py`` from which they were compiled."""
    program = tmp_path_factory.mktemp("program")
    source = copied(program / "build")
    compileall.compile_dir(program / "build", quiet=1, legacy=True)
    compiled = program / "deployed"
    shutil.copytree(program / "build", compiled, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return compiled, source


@pytest.mark.outside
@pytest.mark.parametrize(
    "other", ["    nothing fits\n" * 400, "def attempt(*_): return lambda *_: 'another version'\n" * 400, "\xff\0"]
)
def test_compiled_files_run_as_they_are_beside_the_text_of_another_version(
    deployed: tuple[Path, Path], other: str
) -> None:
    """Compiled files ignore a file at the place of their source, even if it could be compiled, too."""
    compiled, source = deployed
    source.write_text(other, encoding="latin-1")

    assert run_from(compiled, CALLS) == f"called {compiled / 'faulttolerance' / '_call' / 'attempt.pyc'}"


@pytest.mark.outside
def test_compiled_files_with_unchecked_hashes_run_as_they_are(tmp_path: Path) -> None:
    """An interpreter takes the compiled file, and ignores the text beside it."""
    source = copied(tmp_path)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(tmp_path, quiet=1, invalidation_mode=mode)
    text = source.read_text(encoding="utf-8")
    source.write_text(
        text.replace("    if DEADLINE:\n", "    if DEADLINE:\n        raise SystemError\n", 1), encoding="utf-8"
    )

    assert run_from(tmp_path, CALLS) == f"called {source}"


@pytest.mark.outside
def test_garbage_is_collected_in_no_first_call_at_the_wrong_moment(tmp_path: Path) -> None:
    """A finalizer that formats a traceback parses a line: before Python 3.12 it must not meet a guard that is cut."""
    lines = [
        "import gc, traceback",
        "from faulttolerance import bulkhead, circuit_breaker, rate_limit, retry, timeout",
        "class Noisy:",
        "    def __init__(self): self.me = self",
        "    def __del__(self):",
        "        try: raise ValueError(str(1) + str(2))",
        "        except ValueError: traceback.format_exc()",
        "        if is_running: Noisy()",
        # The imports of the first decorator run before: imports inside of imports are another matter.
        "policies = retry, timeout(9000), bulkhead(2), rate_limit(9), circuit_breaker",
        "guarded = [policy(lambda: True) for policy in policies]",
        "is_running = True",
        "gc.set_threshold(50)",
        "Noisy()",
        "for call in guarded:",
        "    print(call(), gc.isenabled())",
        "is_running = False",
    ]

    assert run_from(tmp_path, lines).split() == ["True"] * 10


@pytest.mark.parametrize("error", [SystemError, MemoryError, RecursionError])
def test_a_guard_that_cannot_be_cut_now_works_and_the_next_one_is_cut(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first call at the end of the stack, or of the memory, has the same outcome as anywhere else."""

    def fail(*_: object) -> ast.Module:
        raise error

    specialize._specialized.cache_clear()
    with monkeypatch.context() as trouble:
        trouble.setattr(specializer, "cut", fail)
        in_trouble = outcomes(("retry", "time-out", "bulkhead"), asynchronous=False)
    kept = specialize._specialized.cache_info().currsize

    assert in_trouble == outcomes(("retry", "time-out", "bulkhead"), asynchronous=False)
    assert (kept, specialize._specialized.cache_info().currsize) == (0, 2)


def test_the_path_of_a_guard_leaves_out_the_policies_that_it_does_not_have() -> None:
    """A guard pays for its own policies only."""

    @retry
    def function() -> None: ...

    text = explain(function, source=True)

    assert "policies.fall_back(" in text
    assert "bulkhead" not in text
    assert "await " not in text
    assert ast.parse(text[text.index("def attempt") :])


def test_only_a_coroutine_that_may_have_to_wait_looks_for_trio() -> None:
    """Under a rate limit or a closed circuit the coroutine awaits only its method, which may be of any loop."""

    async def function() -> None: ...

    texts = {
        one: explain(POLICIES[one](function), source=True) for one in ("rate limit", "breaker", "retry", "bulkhead")
    }

    assert [one for one, text in texts.items() if "'trio' in modules" in text] == ["retry", "bulkhead"]


def test_annotations_and_assertions_for_type_checkers_are_in_no_path_that_runs() -> None:
    """Help for type checkers costs a guarded call nothing."""

    @circuit_breaker
    @timeout(1000)
    async def function() -> None: ...

    text = explain(function, source=True)
    kinds = {type(node) for node in ast.walk(ast.parse(text[text.index("def attempt") :]))}

    assert ast.Try in kinds
    assert kinds.isdisjoint({ast.Assert, ast.AnnAssign})


def test_a_traceback_shows_the_lines_that_run() -> None:
    """The cut path keeps the file and the line numbers of the one that people read."""

    @timeout(1000)
    def function() -> None:
        raise OSError

    with pytest.raises(OSError) as caught:
        function()
    frames = traceback.extract_tb(caught.value.__traceback__)

    shown = [frame.line for frame in frames if frame.filename == attempt.__file__]
    assert "result = function(*args, **kwargs) if kwargs else function(*args)" in shown


@pytest.mark.outside
def test_a_program_that_is_exchanged_on_disk_goes_on_as_it_was_loaded(tmp_path: Path) -> None:
    """An upgrade under a running process must not mix two versions of one function."""
    program = tmp_path / "program"
    shutil.copytree(Path(attempt.__file__).parents[1], program / "faulttolerance")
    lines = [
        "import pathlib, sys",
        f"sys.path.insert(0, {str(program)!r})",
        "from faulttolerance import retry",
        "from faulttolerance._call import attempt",
        "assert attempt.__file__.startswith(sys.path[0])",
        "pathlib.Path(attempt.__file__).write_text('nothing')",
        "print(retry(lambda: 'as loaded')())",
    ]
    done = python("\n".join(lines))

    assert (done.stdout, done.stderr) == ("as loaded\n", "")


def test_a_call_that_is_cancelled_before_it_began_is_cancelled() -> None:
    """A later ``await`` of the handle raises a cancellation, as for a task."""

    @asynchronous
    async def function() -> None: ...

    call: Any = function()
    assert call.cancel()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call)
