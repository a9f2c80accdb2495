"""Tools of tests that stop or move the clock: freezegun and time-machine. The library measures on a real one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from kit.program import LIBRARY
from kit.surroundings import needs, run

pytestmark = pytest.mark.outside

TOOLS = "".join(f"import {name}\n" for name in ("asyncio", "freezegun", "time_machine") if find_spec(name))

PREAMBLE = """
import time
from faulttolerance import asynchronous, circuit_breaker, retry, sleep, timeout

@retry(max_retries=1, delay=20, jitter=20)
def fails():
    raise OSError

@timeout(50)
def computes():
    while True:
        pass

@timeout(50)
def sleeps():
    sleep(60)

@timeout(50)
def waits():
    time.sleep(60)

@asynchronous
@timeout(50)
def offloaded():
    sleep(60)

@circuit_breaker(request_volume_threshold=1, failure_ratio=1.0, delay="50ms")
def broken(fails):
    if fails:
        raise OSError
    return "mended"

def outcome(function, *arguments):
    try:
        return function(*arguments)
    except BaseException as error:
        return type(error).__name__
"""

CALLS = """
print(outcome(fails))
print(outcome(computes), outcome(waits), outcome(sleeps), outcome(lambda: offloaded().result()))
print(outcome(broken, True), outcome(broken, False))
sleep(0.1)
print(outcome(broken, False))
"""

STOPPED = {
    "freezegun": ("import freezegun", 'with freezegun.freeze_time("2030-01-01"):'),
    "freezegun-leaps": (
        "import freezegun",
        'with freezegun.freeze_time("2030-01-01", auto_tick_seconds=3600):',
    ),
    "time-machine": ("import time_machine", 'with time_machine.travel("2030-01-01", tick=False):'),
}

EXPECTED = [
    "OSError",
    "TimeoutException TimeoutException TimeoutException TimeoutException",
    "OSError CircuitBreakerOpenException",
    "mended",
]


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.fixture(params=STOPPED)
def stopped(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return the statements that import the tool and that stop the clock."""
    imported, stops = STOPPED[request.param]
    needs(imported.removeprefix("import "))
    return imported, stops


def test_delays_and_deadlines_pass_while_the_clock_is_stopped(stopped: tuple[str, str]) -> None:
    """A retry continues after its delay, a deadline is a ``TimeoutException``, a circuit's delay ends."""
    imported, stops = stopped

    assert run(f"{imported}\n{PREAMBLE}\n{stops}\n{indented(CALLS)}", after=TOOLS + LIBRARY) == EXPECTED


def test_the_clock_may_be_stopped_when_the_library_is_imported(stopped: tuple[str, str]) -> None:
    """The library does not keep the clock of the tool, and works afterwards as well."""
    imported, stops = stopped

    assert run(f"{imported}\n{stops}\n    import faulttolerance\n{PREAMBLE}\n{CALLS}", after=TOOLS) == EXPECTED


def test_the_clock_may_be_stopped_and_go_on_again_within_virtual_time(stopped: tuple[str, str]) -> None:
    """Neither takes the other's clock; the real one is in use again in the end."""
    imported, stops = stopped
    program = (
        f"{imported}\n{PREAMBLE}\nfrom faulttolerance.testing import virtual_time\n"
        f"""
with virtual_time() as clock:
    {stops}
        began = clock.monotonic()
        sleep(3600)
        print(clock.monotonic() - began)
{stops}
    with virtual_time() as clock:
        sleep(3600)
print(outcome(sleeps))
"""
    )

    imports = f"{TOOLS}{LIBRARY}; import faulttolerance.testing"
    assert run(program, after=imports) == ["3600.0", "TimeoutException"]


def test_coroutines_go_on_under_freezegun_where_it_leaves_their_loop_alone() -> None:
    """Without that, event loops ask the stopped clock, and no timer of theirs is ever due."""
    needs("freezegun")

    assert run(
        f"import freezegun, asyncio\n{PREAMBLE}"
        """
@timeout(50)
async def waits():
    await asyncio.sleep(60)

@retry(max_retries=1, delay=20, jitter=0)
async def fails():
    raise OSError

async def main():
    for function in (waits, fails):
        try:
            await function()
        except Exception as error:
            print(type(error).__name__)

with freezegun.freeze_time("2030-01-01", real_asyncio=True):
    asyncio.run(main())
"""
    ) == ["TimeoutException", "OSError"]
