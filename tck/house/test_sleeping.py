"""The tests that take real time: those of threads, servers and processes, and no others."""

from __future__ import annotations

import ast
from pathlib import Path

TCK = Path(__file__).parents[1]

REAL = ("fleet/", "integrations/", "kit/", "surroundings/")
"""Folders of tests whose subject is real threads, loops, servers and processes, and the tools that start them."""

STRESS = "_stress.py"
"""The end of the names of files whose tests press for seconds."""

ALSO_REAL = {
    "asynchronous/test_offload.py": "bodies on threads of the pool",
    "asynchronous/test_pool.py": "threads of the pool",
    "call/test_struck.py": "deadlines of a loop, struck at each step",
    "coalesce/test_calls.py": "a signal's handler among threads",
    "configuration/test_reload.py": "imports that wait for one another, in processes",
    "configuration/test_reload_on_signal.py": "processes that get signals",
    "deadline/test_clock.py": "the system's time",
    "deadline/test_on_deadline.py": "threads that are at work when their deadline passes",
    "hedge/test_struck.py": "threads of the pool that have to end",
    "telemetry/test_exporters_in_trouble.py": "processes that wait for their exporters",
    "telemetry/test_prometheus.py": "a Prometheus server",
    "telemetry/test_prometheus_processes.py": "a process that is killed",
    "testing/test_virtual_clock.py": "what holds virtual time although it is real",
    "timeout/test_async_exception.py": "an exception that is sent to a thread",
    "timeout/test_installed_code.py": "threads whose bodies stand in code of others",
    "timeout/test_interruption.py": "bodies that are interrupted on their threads",
    "timeout/test_left_behind.py": "a body on a thread that nothing ends",
    "timeout/test_one_step.py": "threads between whose steps nobody else runs",
    "timeout/test_safe_point.py": "threads that are looked at in the middle of a call",
    "timeout/test_too_late.py": "a body that works beyond its deadline",
}
"""Files elsewhere, and the reason."""


def sleeps(file: Path) -> bool:
    """Return whether *file* calls ``time.sleep``."""
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )


def test_only_tests_of_real_time_sleep() -> None:
    """Other tests wait in virtual time, which passes at once."""
    files = {file.relative_to(TCK).as_posix() for file in TCK.rglob("test_*.py") if "time.sleep" in file.read_text()}
    elsewhere = {file for file in files if not file.startswith(REAL) and not file.endswith(STRESS)}

    assert {file for file in elsewhere if sleeps(TCK / file)} <= ALSO_REAL.keys()
    assert elsewhere >= ALSO_REAL.keys()
