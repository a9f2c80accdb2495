"""The tests that each command runs, and the tests that run beside them."""

from __future__ import annotations

import os
import re
import runpy
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from kit.program import python
from kit.tiers import OneAlone

ROOT = Path(__file__).parents[2]

CONFTEST = """
    from kit import tiers

    def pytest_addoption(parser):
        parser.addoption("--tier", action="append", default=[])

    def pytest_configure(config):
        for name in ("outside", "stress", "alone"):
            config.addinivalue_line("markers", name)
        config.pluginmanager.register(tiers.Tiers(config))
"""
TESTS = """
    import pytest

    def test_plain(): ...

    @pytest.mark.outside
    def test_outside(): ...

    @pytest.mark.stress
    def test_stress(): ...
"""


RUNS = [
    ([], ["plain"], "outside, stress"),
    (["--tier=default", "--tier=outside"], ["outside", "plain"], "stress"),
    (["--tier=stress"], ["stress"], "default, outside"),
    (["--tier=all"], ["outside", "plain", "stress"], ""),
    (["test_some.py"], ["outside", "plain", "stress"], ""),
    (["-m", "stress"], ["stress"], ""),
    (["-n1"], ["plain"], "outside, stress"),
]
"""Options, the tests that run, and the tiers that the end names."""


@pytest.mark.outside
def test_a_run_has_the_tiers_that_are_named(tmp_path: Path) -> None:
    """A plain run has the default tier; paths and marks have all named tests; the end names the tiers left out."""
    (tmp_path / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    (tmp_path / "test_some.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tck'}\ntestpaths = test_some.py\n")
    runs = [["-v", "-p", "xdist", *options] for options, _, _ in RUNS]
    program = f"import pytest\nfor options in {runs!r}: print('exit', int(pytest.main(options)))"

    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take longer to load than the tests to run
    told = python(program, folder=tmp_path, environment=environment).stdout.split("exit ")

    for (options, ran, left_out), output, status in zip(RUNS, told, told[1:], strict=False):
        assert status[0] == "0", (options, output)
        assert sorted(set(re.findall(r"test_some.py::test_(\w+)", output))) == ran, options
        missing = re.search(r"Tiers that did not run: (.*) \(", output)
        assert (missing[1] if missing else "") == left_out, options


def test_the_test_command_runs_two_tiers_unless_it_is_given_others() -> None:
    """A path or a tier replaces them."""
    tiers = runpy.run_path(str(ROOT / ".ci" / "bootstrap.py"))["_tiers"]

    assert tiers([]) == ["--tier=default", "--tier=outside"]
    assert tiers(["-q"]) == ["--tier=default", "--tier=outside", "-q"]
    assert tiers(["--tier", "stress", "-q"]) == ["--tier=stress", "-q"]
    assert tiers(["tck/retry", "-q"]) == ["tck/retry", "-q"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")
def test_a_test_that_runs_alone_waits_for_others_and_others_wait_for_it(tmp_path: Path) -> None:
    """A test that waits to be alone is not overtaken by tests that begin later."""
    turns = OneAlone(tmp_path)
    running: list[str] = []
    seen: list[list[str]] = []
    begun = threading.Event()

    def run(name: str, exclusive: bool) -> None:
        begun.set()
        with turns._turn(exclusive=exclusive):
            running.append(name)
            seen.append(list(running))
            running.remove(name)

    with turns._turn(exclusive=False):
        running.append("first")
        run("beside", exclusive=False)
        begun.clear()
        alone = threading.Thread(target=run, args=("alone", True))
        alone.start()
        begun.wait(10)
        running.remove("first")
    alone.join(10)

    assert seen == [["first", "beside"], ["alone"]]
