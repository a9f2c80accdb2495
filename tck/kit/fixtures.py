"""Fixtures for all tests: virtual time, and a check that nothing is held when a call has ended."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

import pytest

from faulttolerance import Guard
from faulttolerance._deadline.threads.chain import effective_entry, this_thread
from faulttolerance._guard.declare import registry
from faulttolerance._guard_value.guard import missing_guard_faults
from faulttolerance._strategy.circuit_breaker import HalfOpen
from faulttolerance.policies import Bulkhead, Timeout
from faulttolerance.testing import virtual_time
from kit import Clock, Invoke, VirtualClock
from kit.garbage import collect_garbage

GiveUp: TypeAlias = Callable[..., BaseException]


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Time that passes once everybody waits for it."""
    with virtual_time() as virtual:
        yield VirtualClock(virtual)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disable garbage collection within the test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@contextmanager
def others_hidden(module: ModuleType | None = None) -> Iterator[None]:
    """Hide the existing guards but those of *module* and its kit: operations on all guards look at each."""
    collect_garbage()  # guards that are garbage would stay, as what is hidden is kept out of later collections
    # Hidden guards are kept alive: a guard that is freed must be in the registry.
    alive = {reference: guard for reference in list(registry._guards) if (guard := reference()) is not None}
    known = {name: each for name, each in sys.modules.items() if each is module or (module and name.startswith("kit."))}
    own = [value._resolver for each in known.values() for value in vars(each).values() if isinstance(value, Guard)]
    hidden = {
        reference: registry._guards.pop(reference)
        for reference, guard in alive.items()
        if guard not in own and not (isinstance(guard, FunctionType) and guard.__module__ in known)
    }
    yield
    registry._guards.update(hidden)
    alive.clear()


@pytest.fixture
def alone() -> Iterator[None]:
    """Hide the guards of other tests: each reload looks at each, which takes long where all is traced."""
    with others_hidden():
        yield


@pytest.fixture(scope="module", autouse=True)
def module_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the guards of other modules from the tests of one: there are thousands, and each reset looks at them."""
    with others_hidden(request.module):
        yield
    if next(missing_guard_faults(), None) is not None:  # kept out of collections while it lived, and garbage since
        collect_garbage(everywhere=True)


@pytest.fixture
def struck_coroutines_collected() -> Iterator[None]:
    """Collect coroutines that were never awaited, while the test's filter still ignores their warnings."""
    yield
    gc.collect()


@pytest.fixture
def held() -> Callable[..., list[str]]:
    """Return a function that lists what is held anywhere: permits, places in queues, probes, deadlines of this thread.

    With a word, such as "permits", it lists nothing else.
    A body on another thread may be about to end; it gets two seconds of real time.
    """

    def look(word: str = "") -> list[str]:
        patience = 400
        while (found := [one for one in look_once() if word in one]) and patience:
            patience -= 1
            threading.Event().wait(0.005)
        return found

    def look_once() -> list[str]:
        found = []
        for state in registry.every_state():
            bulkhead = state.strategies.get(Bulkhead)
            if bulkhead is not None and bulkhead.held:
                found.append(f"{len(bulkhead.held)} permits of {state.name}")
            if bulkhead is not None and len(bulkhead.waiting):
                found.append(f"{len(bulkhead.waiting)} places in the queue of {state.name}")
            era = state.circuit_breaker.state if state.circuit_breaker is not None else None
            if isinstance(era, HalfOpen) and era.probes:
                found.append(f"{len(era.probes)} probes of {state.name}")
        if effective_entry(this_thread.deadlines.innermost) is not None:
            found.append("a deadline of this thread")
        return found

    return look


@pytest.fixture
def give_up(invoke: Invoke, clock: Clock) -> GiveUp:
    """Return a function that begins a call, ends it from outside after some seconds, and returns the exception.

    A plain call is ended by the deadline of an enclosing one, which the call itself sees as control flow.
    """

    def in_a_task(method: Callable[..., Any], seconds: float) -> BaseException:
        async def main() -> BaseException:
            call = asyncio.ensure_future(method()) if invoke.convention == "asyncio" else method()
            await asyncio.sleep(seconds)
            assert call.cancel()
            try:
                result = await call
            except BaseException as error:
                return error
            raise AssertionError(f"returned {result!r}")

        return clock.run(main())

    def blocking(method: Callable[..., Any], seconds: float) -> BaseException:
        with pytest.raises(TimeoutError) as raised:
            Guard(timeout=Timeout(seconds * 1000)).call(method)
        return raised.value

    def offloaded(method: Callable[..., Any], seconds: float) -> BaseException:
        future = method()
        clock.sleep(seconds)
        assert future.cancel(True)
        return _failure_of(future)

    return {"blocking": blocking, "offloaded": offloaded}.get(invoke.convention, in_a_task)


def _failure_of(future: Any) -> BaseException:
    try:
        result = future.result(10)
    except BaseException as error:
        return error
    raise AssertionError(f"returned {result!r}")
