"""Tasks of trio: a call that has to wait needs asyncio and says so, other calls work."""

from __future__ import annotations

import pytest

from kit import surroundings
from kit.program import LIBRARY
from kit.surroundings import needs

pytestmark = pytest.mark.outside

PREAMBLE = """
import trio
from faulttolerance import (
    Guard,
    asynchronous,
    bulkhead,
    circuit_breaker,
    coalesce,
    completed_future,
    deadline,
    fallback,
    hedge,
    rate_limit,
    retry,
    sleep,
    timeout,
)
from faulttolerance.policies import Bulkhead, Timeout

bodies = []

def outcome_in(start):
    async def main():
        try:
            return await start()
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
    return main
"""


def run(program: str) -> list[str]:
    """Run *program* where trio and the library are imported."""
    return surroundings.run(program, after=f"{LIBRARY}; import trio")


@pytest.fixture(autouse=True)
def needs_trio() -> None:
    needs("trio")


POLICIES = (
    "retry",
    "retry(max_retries=2, delay=0)",
    "timeout(500)",
    "bulkhead(3)",
    "fallback(lambda c: 'aside')\n@retry",
    "hedge(delay=10)",
)


@pytest.mark.parametrize("imports", ["", "import asyncio"])
def test_a_coroutine_that_may_have_to_wait_is_refused_before_its_body_runs(imports: str) -> None:
    """No call is retried, counted or replaced: the program is wrong."""
    calls = (
        f"""
@{policy}
async def charge():
    bodies.append(1)
    raise OSError

print(trio.run(outcome_in(charge)), bodies)
"""
        for policy in POLICIES
    )
    lines = run(imports + PREAMBLE + "".join(calls))

    refusal = "FaultToleranceException: __main__.charge needs asyncio, and was called in a task of trio []"
    assert lines == [refusal] * len(POLICIES)


def test_handles_and_futures_are_refused_before_they_wait() -> None:
    """Both kinds of ``@asynchronous`` are; a future that is done needs no wait."""
    lines = run(
        PREAMBLE
        + """
@asynchronous
@retry
async def charge():
    bodies.append(1)

@asynchronous
def compute():
    sleep(60)

@asynchronous
@retry(delay=0)
def succeed(failures=[1]):
    if failures:
        raise OSError(failures.pop())
    return completed_future("done")

print(trio.run(outcome_in(charge)), bodies)
print(trio.run(outcome_in(compute)))

async def main():
    future = succeed()
    print(await trio.to_thread.run_sync(future.result), await future)

trio.run(main)
"""
    )

    assert lines == [
        "FaultToleranceException: an `@asynchronous async def` needs asyncio, and was called in a task of trio []",
        "FaultToleranceException: awaiting a future needs asyncio, and was called in a task of trio",
        "done done",
    ]


def test_a_request_with_a_deadline_is_refused_in_a_server_of_trio() -> None:
    """Hypercorn has such workers; a request without a deadline passes unchanged."""
    needs("starlette")
    lines = run(
        PREAMBLE
        + """
from faulttolerance.integrations.starlette import DeadlineMiddleware

async def app(*request):
    return "answered"

async def serve(headers):
    await DeadlineMiddleware(app)({"type": "http", "headers": headers}, None, None)

for headers in ([], [(b"x-request-timeout-ms", b"500")]):
    print(trio.run(outcome_in(lambda: serve(headers))))
"""
    )

    assert lines[0] == "None"
    assert lines[1].startswith("FaultToleranceException: ")
    assert lines[1].endswith(" needs asyncio, and was called in a task of trio")


def test_policies_that_never_wait_work() -> None:
    """Circuit breaker, rate limit and fallback decide at once."""
    lines = run(
        PREAMBLE
        + """
@circuit_breaker(request_volume_threshold=2)
async def fails():
    await trio.sleep(0.001)
    raise OSError

@fallback(lambda context: f"aside for {type(context.failure).__name__}")
@rate_limit(1)
async def seldom():
    return "done"

for function in (fails, fails, fails, seldom, seldom):
    print(trio.run(outcome_in(function)).partition(":")[0])
"""
    )

    assert lines == ["OSError", "OSError", "CircuitBreakerOpenException", "done", "aside for RateLimitException"]


def test_functions_are_guarded_on_the_threads_of_trio() -> None:
    """They are threads like any other."""
    lines = run(
        PREAMBLE
        + """
@retry(max_retries=1, delay=10)
@timeout(50)
def rest():
    bodies.append(1)
    sleep(60)

async def main():
    return await trio.to_thread.run_sync(rest)

print(trio.run(outcome_in(main)).partition(":")[0], len(bodies))
"""
    )

    assert lines == ["TimeoutException 2"]


def test_asyncio_is_as_always_where_trio_is_merely_imported() -> None:
    """The running task decides, and not the imported modules."""
    lines = run(
        PREAMBLE
        + """
import asyncio

@retry(max_retries=1, delay=10)
@timeout(50)
@bulkhead(2)
async def rest():
    await asyncio.sleep(60)

print(asyncio.run(outcome_in(rest)()).partition(":")[0])
"""
    )

    assert lines == ["TimeoutException"]


def test_guards_are_refused_as_functions_are() -> None:
    """By rule O3: ``Guard.call_async`` of either kind, and guarded functions, with policies that may have to wait."""
    lines = run(
        PREAMBLE
        + """
guard = Guard(name="shop", timeout=Timeout(500), bulkhead=Bulkhead(2))

async def charge():
    bodies.append(1)

def compute():
    bodies.append(1)
    sleep(60)

for start in (lambda: guard.call_async(charge), lambda: guard.call_async(compute), guard(charge)):
    print(trio.run(outcome_in(start)), bodies)
"""
    )

    assert [line.partition(" needs asyncio")[2] for line in lines] == [
        ", and was called in a task of trio []",
        ", and was called in a task of trio []",
        ", and was called in a task of trio []",
    ]


def test_a_call_that_has_to_follow_another_is_refused_in_words() -> None:
    """By rule O3: the leader of shared calls waits for no other call."""
    lines = run(
        PREAMBLE
        + """
@coalesce
async def load():
    await trio.sleep(0.5)
    return "loaded"

async def several():
    async def one():
        print(await outcome_in(load)())
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(one)

trio.run(several)
"""
    )

    refusal = "a call that may have to wait for another needs asyncio, and was called in a task of trio"
    assert lines == [f"FaultToleranceException: {refusal}", "loaded"]


def test_the_error_of_a_coroutine_that_no_loop_runs_says_that_it_needs_asyncio() -> None:
    """By rule O3: other libraries step coroutines themselves; a coroutine that never waits works there as well."""
    lines = surroundings.run(
        """
from faulttolerance import Guard, asynchronous, circuit_breaker, retry, timeout
from faulttolerance.policies import Timeout

bodies = []

async def charge():
    bodies.append(1)
    raise OSError("lost")

def outcome(guarded):
    bodies.clear()
    try:
        guarded().send(None)
    except BaseException as error:
        return f"{type(error).__name__}: {error}", len(bodies)

for decorate in (timeout(500), asynchronous, lambda f: retry(asynchronous(timeout(f))), circuit_breaker,
                 retry(delay=100, jitter=0), retry(max_retries=1, delay=0, jitter=0)):
    print(*outcome(decorate(charge)))
print(*outcome(lambda: Guard(timeout=Timeout(500)).call_async(charge)))
""",
        after=LIBRARY,
    )

    hint = "needs asyncio, and was called where no event loop of asyncio runs"
    assert lines[0] == f"FaultToleranceException: __main__.charge {hint} 0"
    assert lines[1] == lines[2] == f"FaultToleranceException: an `@asynchronous async def` {hint} 0"
    assert lines[3] == "OSError: lost 1"
    assert lines[4] == f"FaultToleranceException: waiting for the next attempt {hint} 1"
    assert lines[5] == "OSError: lost 2"
    assert lines[6].startswith("FaultToleranceException: ")
    assert lines[6].endswith(f"{hint} 0")


def test_the_error_of_a_coroutine_that_no_task_runs_names_the_remedy() -> None:
    """By rule O3: Twisted's reactor of asyncio runs a loop, but steps coroutines itself."""
    lines = surroundings.run(
        """
import asyncio
from faulttolerance import Guard, asynchronous, bulkhead, circuit_breaker, coalesce, deadline, hedge, retry, timeout

bodies = []

async def charge():
    bodies.append(1)
    raise OSError("lost")

async def serve():
    bodies.append(1)
    await asyncio.sleep(0)

async def block():
    with deadline(100):
        bodies.append(1)

def plain():
    bodies.append(1)

queueing, shared = bulkhead(1, waiting_task_queue=1)(serve), coalesce(serve)
guard, handle = Guard(), asynchronous(serve)

def outcome(guarded):
    bodies.clear()
    try:
        guarded().send(None)
    except BaseException as error:
        return f"{type(error).__name__}: {error}", len(bodies)

def drive(done):
    one, other = queueing(), shared()
    one.send(None), other.send(None)
    for guarded in (timeout(500)(charge), hedge(charge), block, handle, queueing, shared,
                    lambda: guard.call_async(plain), retry(delay=100, jitter=0)(charge),
                    circuit_breaker(charge), retry(max_retries=1, delay=0, jitter=0)(charge), bulkhead(1)(charge)):
        print(*outcome(guarded))
    one.close(), other.close()
    bodies.clear()
    done.set_result(handle())

async def main():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(drive, done)
    await (await done)
    print(bodies)

asyncio.run(main())
""",
        after=LIBRARY,
    )

    hint = "needs a task of asyncio, and was called outside of one: pass the call to asyncio.ensure_future(), "
    assert [hint in line for line in lines] == [True] * 8 + [False] * 4
    assert [line[-1] for line in lines[:8]] == [*"00000001"]
    assert lines[8:] == ["OSError: lost 1", "OSError: lost 2", "OSError: lost 1", "[1, 1]"]


def test_deadlines_are_refused() -> None:
    """Rule O3: deadlines of blocks and of calls are refused before any code runs."""
    lines = run(
        PREAMBLE
        + """
@deadline(100)
async def bounded():
    bodies.append(1)

async def block():
    with deadline(100):
        bodies.append(2)

async def awaited_block():
    async with deadline(100):
        bodies.append(3)

for start in (bounded, block, awaited_block):
    print(trio.run(outcome_in(start)).partition("needs")[2], bodies)
"""
    )

    assert lines == [" asyncio, and was called in a task of trio []"] * 3
