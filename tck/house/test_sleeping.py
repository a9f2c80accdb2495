"""Which tests take real time: those of threads, servers and processes, and no others."""

from __future__ import annotations

import ast
from pathlib import Path

TCK = Path(__file__).parents[1]

REAL = ("stress", "surroundings", "fleet", "integrations", "kit", "unit/runtime")
"""Directories of tests whose subject is real threads, loops, servers and processes, and what they are started by."""

ALSO_REAL = {
    "rules/test_c3_reload.py": "imports that wait for one another, in processes",
    "rules/test_coalesce.py": "a signal's handler among threads",
    "rules/test_hedge_struck.py": "threads of the pool that have to end",
    "rules/test_l5_fork.py": "forked processes",
    "rules/test_r11_struck.py": "deadlines of a loop, struck at each step",
    "rules/test_r2a_installed_code.py": "threads whose bodies stand in code of others",
    "unit/strategy/test_left_behind.py": "a body on a thread that nothing ends",
    "unit/strategy/test_verdict_deadline.py": "a body that works beyond its deadline",
    "unit/telemetry/test_connect_trouble.py": "processes that wait for their exporters",
    "unit/telemetry/test_multiprocess.py": "a process that is killed",
    "unit/telemetry/test_prometheus.py": "a Prometheus server",
    "unit/testing/test_virtual_clock.py": "what holds virtual time although it is real",
}
"""Files elsewhere, and why."""


def sleeps(file: Path) -> bool:
    """Whether *file* calls ``time.sleep``."""
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )


def test_only_tests_of_what_is_real_sleep() -> None:
    """The others wait in virtual time, which passes at once."""
    files = {file.relative_to(TCK).as_posix() for file in TCK.rglob("test_*.py") if "time.sleep" in file.read_text()}
    elsewhere = {file for file in files if not file.startswith(tuple(f"{part}/" for part in REAL))}

    assert {file for file in elsewhere if sleeps(TCK / file)} <= ALSO_REAL.keys()
    assert elsewhere >= ALSO_REAL.keys()
