"""An extension can be taken away: without its folder, its row and its public names the rest is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from kit.program import QUIET, output_of
from kit.taken_away import EXTENSIONS, copy_without

ROOT = Path(__file__).resolve().parents[2]

GROUPS = [EXTENSIONS, *(EXTENSIONS[first::3] for first in range(3))]
"""All extensions, and three groups of them: the tests of the specification take too long for each one alone."""

USE = """
import asyncio, sys
import faulttolerance as ft

def guarded(function):
    for decorate in (
        ft.fallback(lambda context: "other"), ft.retry(max_retries=1, jitter=0), ft.circuit_breaker, ft.timeout("5s"),
        ft.bulkhead(3), ft.rate_limit(100),
    ):
        function = decorate(function)
    return function

@guarded
def fetch():
    return "fetched"

@guarded
async def fail():
    raise ConnectionError

@ft.asynchronous
@guarded
def later():
    return "later"

print(fetch(), asyncio.run(fail()), later().result(5), ft.Guard(retry=ft.policies.Retry()).call(fetch))
looked_at = ft.explain(fetch), ft.health().status, [*ft.guards()], [getattr(ft, name) for name in ft.__all__]
print(*(name for name in sys.modules if name.startswith(TRACES)))
"""
"""Every policy of the specification, and all that looks at guards."""


def passes_the_specification(copy: Path) -> bool:
    """Return whether the tests of the specification pass with the package in the folder *copy*."""
    plugins = ["-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "faulttolerance.pytest_plugin"]
    options = ["-q", "-x", *plugins, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(ROOT / "tck" / "spec")],
        capture_output=True,
        text=True,
        check=False,
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(copy), str(ROOT / "tck"))),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # each one costs time in each of 1,300 tests
        },
    )
    assert done.returncode == 0, done.stdout
    return True


def use(copy: Path, extensions: Collection[str]) -> list[str]:
    """Run a program that uses the rest, and return its output: the modules of *extensions* that it loaded."""
    traces = tuple(f"faulttolerance._extensions.{extension}." for extension in extensions)
    return output_of(f"{QUIET}TRACES = {traces!r}\n{USE}", folder=copy).splitlines()


@pytest.mark.outside
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_the_rest_works_without_an_extension_and_has_no_trace_of_it(extension: str, tmp_path: Path) -> None:
    assert use(copy_without([extension], tmp_path), [extension]) == ["fetched other later fetched"]


@pytest.mark.outside
def test_the_rest_works_without_any_extension(tmp_path: Path) -> None:
    assert use(copy_without(EXTENSIONS, tmp_path), EXTENSIONS) == ["fetched other later fetched"]


@pytest.mark.stress
@pytest.mark.timeout(240)
@pytest.mark.parametrize("extensions", GROUPS, ids="-".join)
def test_the_specification_is_kept_without_extensions(extensions: list[str], tmp_path: Path) -> None:
    """The specification needs none of them, and the extensions that are left need none of those that are gone."""
    assert passes_the_specification(copy_without(extensions, tmp_path))
