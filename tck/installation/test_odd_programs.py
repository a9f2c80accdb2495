"""Programs that do not consist of files of modules: frozen, moved, or made at run time."""

from __future__ import annotations

import asyncio
import compileall
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import faulttolerance
from faulttolerance import Guard, around_invoke, asynchronous, bulkhead, explain, guards, rate_limit, retry, timeout
from faulttolerance.policies import Retry
from kit.definition import refused
from kit.program import QUIET, output_of, python

pytestmark = pytest.mark.outside

PACKAGE = Path(faulttolerance.__file__).parent

INTERRUPTED = """
import sys
from faulttolerance import TimeoutException, asynchronous, bulkhead, retry, timeout
from faulttolerance._deadline.threads import roles

callers = []

@retry(max_retries=1, jitter=0)
@timeout(50)
@bulkhead(1)
def busy():
    callers.append(sys._getframe(1))
    while True: pass

try: busy()
except TimeoutException as error: print(error)
print(roles.is_attempt(callers[0]))
"""


def test_modules_may_have_no_file(tmp_path: Path) -> None:
    """Modules of programs that are frozen into one file have none."""
    program = """
import importlib.machinery, importlib.util, os, sys

class Frozen:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] != "faulttolerance": return None
        self.place = os.path.join(sys.argv[1], *name.split(".")[1:])
        return importlib.machinery.ModuleSpec(name, self, is_package=os.path.isdir(self.place))
    def create_module(self, spec): return None
    def exec_module(self, module):
        spec = module.__spec__
        place = os.path.join(sys.argv[1], *spec.name.split(".")[1:])
        file = os.path.join(place, "__init__.py") if spec.submodule_search_locations is not None else place + ".py"
        with open(file, encoding="utf-8") as text:
            exec(compile(text.read(), file, "exec"), module.__dict__)

sys.meta_path.insert(0, Frozen())
import faulttolerance, faulttolerance.testing
assert not hasattr(faulttolerance, "__file__")
"""

    assert (
        output_of(QUIET + program + INTERRUPTED, arguments=(str(PACKAGE),), folder=tmp_path)
        == "__main__.busy: timed out after 0.05 s\nTrue"
    )


def test_compiled_files_may_have_been_moved(tmp_path: Path) -> None:
    """Time-outs recognise the library's own code by its names, and not by the folder of its files."""
    build, deployed = tmp_path / "build", tmp_path / "deployed"
    shutil.copytree(PACKAGE, build / "faulttolerance", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(build, quiet=1, legacy=True)
    shutil.copytree(build, deployed, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.rmtree(build)
    program = f"import sys; sys.path.insert(0, {str(deployed)!r})\n"

    assert output_of(QUIET + program + INTERRUPTED, folder=tmp_path) == "__main__.busy: timed out after 0.05 s\nTrue"


@pytest.mark.parametrize("names", [{"__name__": None}, {"__name__": 5}, {}], ids=["None", "a number", "nothing"])
def test_code_under_exec_needs_no_name(names: dict[str, Any]) -> None:
    """Functions, classes and guards work with any name of the module in its globals."""
    program = """
import warnings
from faulttolerance import *
from faulttolerance.policies import Retry

@fallback(fallback_method="other")
@retry(max_retries=1, jitter=0)
@timeout(9000)
def function(): raise OSError

def other(): return "aside"

@retry
class Client:
    @bulkhead
    def method(self): return "method"

class Special(Client):
    def method(self): return super().method()

guard = Guard(retry=Retry(max_retries=1))

@guard
def by_guard(): return "by guard"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    @retry
    def handed_on():
        async def later(): ...
        return later()
    handed_on().close()

outcomes = function(), Client().method(), Special().method(), by_guard()
validate()
"""
    found: dict[str, Any] = dict(names)
    exec(compile(program, "<a notebook>", "exec"), found)

    assert found["outcomes"] == ("aside", "method", "method", "by guard")
    assert explain(found["function"]).startswith("function\n")
    assert any(one.name.endswith("Client.method") for one in guards() if one.method is found["Client"].method)


def test_the_reason_of_a_cancellation_reaches_the_body() -> None:
    """A cancellation has its reason from the handle, from the task that awaits it, or from a task that awaits that."""
    seen: list[tuple[Any, ...]] = []

    @asynchronous
    @retry(max_retries=2, jitter=0)
    @timeout(60_000)
    @bulkhead(9)
    async def call() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as cancelled:
            seen.append(cancelled.args)
            raise

    async def awaiting() -> None:
        await call()

    async def cancelled(task: Any) -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        task.cancel("why")
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        for _ in range(9):
            await asyncio.sleep(0)
        seen.append(raised.value.args)

    async def run() -> None:
        await cancelled(call())
        await cancelled(asyncio.ensure_future(call()))
        await cancelled(asyncio.ensure_future(awaiting()))
        task: Any = call()
        for _ in range(9):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())

    assert [args for args in seen if args] == [("why",)] * 6


class Lazy:
    """A descriptor of a library, such as the cached_property of Django."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def __get__(self, instance: object, owner: object) -> object:
        return self.function(instance)


@pytest.mark.parametrize(
    ("descriptor", "name"),
    [
        (property, "@property"),
        (functools.cached_property, "@cached_property"),
        (lambda function: functools.partialmethod(function, 1), "@partialmethod"),
        (functools.singledispatchmethod, "@singledispatchmethod"),
        (Lazy, "@Lazy"),
    ],
)
def test_a_descriptor_that_cannot_be_guarded_is_refused_with_the_remedy(
    descriptor: Callable[[Any], Any], name: str
) -> None:
    """Every decorator refuses it, and names the descriptor below it."""
    audit = around_invoke(lambda invocation: invocation.proceed())
    for decorator in (retry, retry(max_retries=1), timeout, bulkhead, rate_limit, Guard(retry=Retry()), audit):
        with refused(f"{name} cannot be guarded; allowed: a function, a method, a class; guard the function in it"):
            decorator(descriptor(lambda self, *_: None))


def test_an_interceptor_above_an_object_that_is_no_callable_is_refused() -> None:
    """It would else fail at the first call."""
    audit = around_invoke(lambda invocation: invocation.proceed())

    with refused("interceptor", "cannot be called"):
        audit(5)


def test_an_interpreter_without_the_gil_is_refused_at_import() -> None:
    """The message names the variable that enables it."""
    done = python("import sys; sys._is_gil_enabled = lambda: False; import faulttolerance")

    assert done.returncode == 1
    assert "RuntimeError: faulttolerance needs the GIL" in done.stderr
    assert "PYTHON_GIL=1" in done.stderr


def test_an_interpreter_other_than_cpython_is_refused_at_import() -> None:
    """On PyPy the first ``async def`` would run without its policies, and steps that must be one would be several."""
    done = python("import sys; sys.implementation.name = 'pypy'; import faulttolerance")

    assert done.returncode == 1
    assert "RuntimeError: faulttolerance needs CPython; this interpreter is pypy" in done.stderr
