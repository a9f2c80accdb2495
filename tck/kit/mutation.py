"""A check that the tests notice wrong decisions of the library.

    python tck/kit/mutation.py [--jobs N] [PART OF A NAME ...]

Each change is made in a copy of the project, and its tests are run on it until one fails. A change that none notices
is a test that is missing, unless it is known to make no difference. The exit status is 1 where one survived that is
not. A run of all changes writes the outcome into ``build/mutants.md``.

The changes stand beside the tests of their subject, in ``tck/*/mutants.toml``. A group has the tests of its changes,
in the order in which they are run: those of the official kit first. A change has these keys:

- ``name`` says what is wrong then;
- ``function`` is the qualified name of a function or a class, and ``old`` an expression or statements in it: both
  together stand once in the package, wherever that is (``kit/pin.py``);
- ``new`` takes the place of ``old``; statements are removed where it is empty;
- ``file``, instead of ``function``, is a file that is no Python, in which the text ``old`` stands once;
- ``equivalent`` says why nobody could notice the change; it is run all the same.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from queue import SimpleQueue

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.pin import Pin

__all__ = ["PAGE", "ROOT", "Mutant", "main", "mutants"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "build" / "mutants.md"

_TEST_SECONDS = 20
_MUTANT_SECONDS = 400
_FAILED = re.compile(r"^(?:FAILED|ERROR) tck/([\w/]+\.py)", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    name: str
    old: str
    new: str
    subject: str
    tests: tuple[str, ...]
    function: str = ""
    file: str = ""
    equivalent: str = ""
    """The reason why no test could notice it; empty where a test has to."""

    @cached_property
    def path(self) -> str:
        """The file with the place, from the root of the project."""
        if self.file:
            return f"faulttolerance/{self.file}"
        paths = [path for path, text in _modules_with(self.function).items() for _ in self._pin.spans(text)]
        if len(paths) != 1:
            raise ValueError(f"{self.name}: {self.function} has the code to be changed in {paths or 'no file'}")
        return paths[0]

    @cached_property
    def _pin(self) -> Pin:
        return Pin(self.function, self.old, self.new)

    def applied_to(self, text: str) -> str:
        """Return *text*, which is that of the file, with the change made."""
        if not self.file:
            return self._pin.applied_to(text)
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.path} has the text to be changed {text.count(self.old)} times")
        return text.replace(self.old, self.new)


@cache
def _modules() -> dict[str, str]:
    """Return the text of each module of the package, by its path."""
    paths = sorted((ROOT / "faulttolerance").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def _modules_by_name() -> dict[str, dict[str, str]]:
    """Return the modules in which each function and each class is defined."""
    found: dict[str, dict[str, str]] = {}
    for path, text in _modules().items():
        for name in set(re.findall(r"\b(?:def|class) (\w+)", text)):
            found.setdefault(name, {})[path] = text
    return found


def _modules_with(function: str) -> dict[str, str]:
    """Return the modules where *function* may be: all of them for a module's own code."""
    return _modules_by_name().get(function.rpartition(".")[2], {}) if function else _modules()


def mutants(file: str = "*/mutants.toml") -> list[Mutant]:
    """Return all changes in the files below ``tck`` that the pattern names, in their order."""
    return [
        Mutant(**change, subject=path.parent.name, tests=tuple(group["tests"]))
        for path in sorted((ROOT / "tck").glob(file))
        for group in tomllib.loads(path.read_text(encoding="utf-8"))["group"]
        for change in group["mutant"]
    ]


class Copy:
    """A copy of the project, in which no other process works."""

    def __init__(self, home: Path, original: Path = ROOT) -> None:
        self.home = home
        for part in ("faulttolerance", "tck"):
            shutil.copytree(original / part, home / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md"):
            shutil.copy(original / part, home / part)

    def outcome(self, mutant: Mutant) -> str:
        """Return the file of the first test that fails on *mutant*; empty where none does."""
        path = self.home / mutant.path
        whole = path.read_text(encoding="utf-8")
        changed = mutant.applied_to(whole)
        if path.suffix == ".py":
            compile(changed, str(path), "exec")  # or each test would fail because of the change itself
        try:
            path.write_text(changed, encoding="utf-8")
            return self._confirmed_failure(mutant.tests)
        finally:
            path.write_text(whole, encoding="utf-8")

    def _confirmed_failure(self, tests: tuple[str, ...]) -> str:
        # A test that fails now and then on any library says nothing about this one: it has to fail twice.
        while tests:
            file, _ = self.first_failure(tests)
            if file not in tests or self.first_failure([file])[0]:
                return file
            tests = tests[tests.index(file) + 1 :]
        return ""

    def first_failure(self, tests: Iterable[str]) -> tuple[str, str]:
        """Return the file of the first of *tests* that fails, empty where none does; and the output of pytest."""
        # No bytecode: a file that is changed and changed back within a second would be taken for the other one.
        environment = {**os.environ, "PYTHONPATH": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider"]
        command += ["--timeout", str(_TEST_SECONDS), *(f"tck/{test}" for test in tests)]
        process = subprocess.Popen(
            command,
            cwd=self.home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=_MUTANT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "a test that did not end", ""
        if process.returncode == 0:
            return "", said
        failure = _FAILED.search(said)
        if failure:
            return failure[1], said
        if process.returncode in (1, 2) and "Timeout" in said:
            return "a test that did not end", said
        raise RuntimeError(f"pytest ended with {process.returncode} and names no test:\n{said[-2000:]}")


def main(arguments: list[str]) -> int:
    """Run the changes that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of the names of the changes to try; all where none is given")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in mutants() if not options.names or any(part in mutant.name for part in options.names)]
    with tempfile.TemporaryDirectory() as home:
        outcomes = _tried(chosen, Path(home), options.jobs)
    survived = [mutant for mutant in chosen if not outcomes[mutant] and not mutant.equivalent]
    noticed_equivalents = [mutant for mutant in chosen if outcomes[mutant] and mutant.equivalent]
    noticed = sum(map(bool, outcomes.values()))
    print(f"{noticed} of {len(chosen)} noticed, {len(chosen) - noticed - len(survived)} of no effect")
    for mutant in survived:
        print(f"SURVIVED: {mutant.name} ({mutant.path})")
    for mutant in noticed_equivalents:
        print(f"NOTICED, though said to be of no effect: {mutant.name} ({mutant.path}), by {outcomes[mutant]}")
    if not options.names:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(outcomes), encoding="utf-8")
    return 1 if survived or noticed_equivalents else 0


def _tried(chosen: list[Mutant], home: Path, jobs: int) -> dict[Mutant, str]:
    copies: SimpleQueue[Copy] = SimpleQueue()
    first = Copy(home / "0")
    for number in range(1, jobs):
        copies.put(Copy(home / str(number), first.home))
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    print(f"{len(tests)} files of tests on the library as it is ...", flush=True)
    failed, said = first.first_failure(tests)
    if failed:
        raise SystemExit(f"{said}\n{failed} fails without any change")
    copies.put(first)

    def attempt(mutant: Mutant) -> str:
        copy = copies.get()
        try:
            file = copy.outcome(mutant)
        finally:
            copies.put(copy)
        print(f"{file or ('no effect' if mutant.equivalent else 'SURVIVED'):40} {mutant.name}", flush=True)
        return file

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(chosen, pool.map(attempt, chosen), strict=True))


def page(outcomes: dict[Mutant, str]) -> str:
    """Write the page on a run."""
    noticed = [by for by in outcomes.values() if by]
    by_the_kit = sum(by.startswith("spec/") for by in noticed)
    lines = [
        "# Do the tests notice?",
        "",
        f"Of {len(outcomes)} changes the tests notice {len(noticed)}, the official kit's cases alone {by_the_kit}.",
        "",
    ]
    for subject in dict.fromkeys(mutant.subject for mutant in outcomes):
        lines += [f"## {subject}", "", "| change | first noticed by |", "| --- | --- |"]
        for mutant, by in outcomes.items():
            if mutant.subject == subject:
                lines.append(f"| {mutant.name} | {by or ('no effect' if mutant.equivalent else '**survived**')} |")
        lines.append("")
    silent = [mutant for mutant in outcomes if mutant.equivalent]
    if silent:
        lines += ["## Changes without effect", "", "| change | why nobody can notice |", "| --- | --- |"]
        lines += [f"| {mutant.name} | {mutant.equivalent} |" for mutant in silent]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
