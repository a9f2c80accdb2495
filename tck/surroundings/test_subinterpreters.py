"""Interpreters beside the main one in a process: they can be closed after guarded calls of any kind."""

from __future__ import annotations

import sys

import pytest

from kit.surroundings import run

pytestmark = pytest.mark.outside

CALLS = """
import faulttolerance, time
from faulttolerance import *

@timeout(100)
def wait():
    time.sleep(0.3)

@retry(max_retries=1, delay=10)
def fails():
    raise OSError

@asynchronous
def offloaded():
    return completed_future(7)

for function in (wait, fails):
    try:
        function()
    except Exception as error:
        print(type(error).__name__, *error.__notes__, flush=True)
print(offloaded().exception(10), flush=True)
"""

LIVES = 2 if sys.version_info >= (3, 13) else 1
"""Earlier releases of CPython crash where asyncio is imported in a second one."""

CLOSED = """
import sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    make = lambda: interpreters.create({kind!r})
    execute = interpreters.exec
else:
    import _xxsubinterpreters as interpreters
    make = lambda: interpreters.create(isolated={isolated})
    execute = interpreters.run_string

for _ in range({lives}):
    one = make()
    failed = execute(one, {calls!r})
    assert failed is None, failed
    interpreters.destroy(one)
print("closed")
"""


def calls_in(kind: str, calls: str = CALLS) -> list[str]:
    program = CLOSED.format(kind=kind, isolated=kind == "isolated", calls=calls, lives=LIVES)
    return run(program, "-W", "ignore", isolated=kind == "isolated")


def batched(life: list[str]) -> list[list[str]]:
    return [life[number : number + 3] for number in range(0, len(life), 3)]


def test_an_isolated_interpreter_can_be_closed_after_guarded_calls() -> None:
    """No thread of the library runs there: deadlines end late, and no call runs on another thread."""
    *life, closed = calls_in("isolated")

    assert closed == "closed"
    for waited, failed, offloaded in batched(life):
        assert waited.startswith("TimeoutException it ended 0.")
        assert failed.startswith("OSError faulttolerance: 2 attempts")
        assert "interpreter" in offloaded
        if sys.version_info >= (3, 12):
            assert waited.endswith("it ran in an isolated sub-interpreter")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="_xxsubinterpreters of 3.11 crashes by itself there")
def test_an_offloaded_call_in_an_isolated_interpreter_fails_at_once() -> None:
    """No retry follows: no thread would end its delay, and the caller would wait for ever."""
    retried = CALLS.replace("@asynchronous", '@retry(delay="10ms")\n@asynchronous')

    *life, closed = calls_in("isolated", retried)

    assert closed == "closed"
    assert ["isolated sub-interpreter" in line for line in life] == [True, False, True] * LIVES


@pytest.mark.skipif(sys.version_info < (3, 12), reason="_xxsubinterpreters of 3.11 crashes by itself there")
def test_an_interpreter_that_shares_its_memory_can_be_closed_after_guarded_calls() -> None:
    """Interpreters of mod_wsgi are such; its threads end before it does."""
    *life, closed = calls_in("legacy")

    assert closed == "closed"
    assert [line.split()[0] for line in life] == ["TimeoutException", "OSError", "None"] * LIVES


@pytest.mark.skipif(sys.version_info < (3, 12), reason="_xxsubinterpreters of 3.11 crashes by itself there")
def test_no_handler_of_a_signal_is_registered_beside_the_main_interpreter() -> None:
    """No signal arrives there, and mod_wsgi logs every attempt with its stack."""
    recorded = "import signal; signal.signal = lambda number, handler: print('registered', number)\n"

    *life, closed = calls_in("legacy", recorded + CALLS)

    assert closed == "closed"
    assert [line.split()[0] for line in life] == ["TimeoutException", "OSError", "None"] * LIVES
