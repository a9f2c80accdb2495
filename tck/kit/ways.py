"""Every way to call a guarded function, and the results of one scenario for a caller, a scrape and the log.

A body is written once, as a coroutine function that waits by ``await run.sleep(...)`` only, and so is the scenario that
calls it. ``Way.declare`` guards the body by the same policies, given as the keywords of ``Guard``, as decorators or
as a ``Guard``; ``Run`` drives the scenario, on a loop where the way needs one, and keeps what was seen.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any, NamedTuple, TypeAlias

import faulttolerance
from faulttolerance import Guard, Interrupted, circuit_breakers
from faulttolerance._guard.declare import registry
from faulttolerance.policies import Timeout

from .clock import Clock
from .convention import Invoke
from .stacked import stacked

__all__ = ["WAYS", "Body", "Policies", "Run", "Scene", "Way"]

Policies: TypeAlias = Mapping[str, Any]
Body: TypeAlias = Callable[["Run"], Coroutine[Any, Any, Any]]
Scene: TypeAlias = Callable[["Run"], Coroutine[Any, Any, None]]

_ORDER = (
    "coalesce", "fallback", "deadline", "retry", "exponential_backoff", "fibonacci_backoff", "custom_backoff",
    "honor_retry_after", "retry_when", "before_retry", "retry_budget", "hedge", "circuit_breaker", "adaptive_throttle",
    "fail_when",
    "rate_limit", "fleet_wide", "timeout", "bulkhead",
)  # fmt: skip


_OF_FUNCTIONS = ("fallback", "coalesce", "partition_by", "deadline")
"""Policies that ask for results or arguments, or stand around whole calls."""


_OF_GUARDS = frozenset(signature(Guard).parameters)


class Declared(NamedTuple):
    """A guarded function."""

    method: Callable[[], Any]
    """The way to call it."""
    name: str
    """That of its guard."""
    close: Callable[[], None]
    """The way to forget the guard."""


class Way(NamedTuple):
    """One way to guard a function and call it."""

    name: str
    convention: str
    """The convention by which its body is called; see ``convention``."""
    guard: str = ""
    """The use of a ``Guard``: ``call``, ``decorator``, ``name``, ``block``; none: the decorators of the policies."""

    @property
    def is_on_loop(self) -> bool:
        """Whether its body is a coroutine."""
        return self.convention in ("asyncio", "task")

    @property
    def is_detached(self) -> bool:
        """Whether an attempt that does not end is left behind at its deadline."""
        return self.convention in ("offloaded", "task")

    @property
    def queues(self) -> bool:
        """Whether calls may wait for a permit."""
        return self.convention != "blocking"

    def takes(self, policies: Policies) -> bool:
        """Return whether a function can have these in this way: a block has no result and no arguments (rule G2)."""
        results = ("result" in policies[name] for name in ("retry_when", "fail_when") if name in policies)
        if self.guard == "block" and (any(results) or not policies.keys().isdisjoint(_OF_FUNCTIONS)):
            return False
        if "hedge" in policies and (self.convention == "blocking" or self.guard == "block"):
            return False
        return not self.guard or policies.keys() <= _OF_GUARDS

    def declare(self, body: Callable[..., Any], policies: Policies, clock: Clock) -> Declared:
        """Return *body*, guarded by *policies*."""
        plain = Invoke(self.convention, clock).body(body)
        if not self.guard:
            guarded = stacked(*(_decorator(name, policies[name]) for name in _ORDER if name in policies))(plain)
            return Declared(guarded, f"{guarded.__module__}.{guarded.__qualname__}", lambda: None)
        guard = Guard(**{name: _value(name, given) for name, given in policies.items()}, name="guarded")
        if self.guard == "call":
            call = guard.call if self.convention == "blocking" else guard.call_async
            return Declared(lambda: call(plain), guard.name, guard.close)
        if self.guard == "block":
            run = _in_awaited_blocks if self.is_on_loop else _in_blocks
            return Declared(partial(run, guard, plain), guard.name, guard.close)
        decorate = guard if self.guard == "decorator" else faulttolerance.apply_guard(guard.name)
        return Declared(decorate(plain), guard.name, guard.close)


WAYS = (
    Way("def", "blocking"),
    Way("async-def", "asyncio"),
    Way("asynchronous-def", "offloaded"),
    Way("asynchronous-async-def", "task"),
    Way("Guard.call", "blocking", "call"),
    Way("Guard.call_async", "asyncio", "call"),
    Way("guard-def", "blocking", "decorator"),
    Way("guard-async-def", "asyncio", "decorator"),
    Way("apply_guard-def", "blocking", "name"),
    Way("apply_guard-async-def", "asyncio", "name"),
    Way("block", "blocking", "block"),
    Way("async-block", "asyncio", "block"),
)
"""All ways; the others are compared to the first one."""


def _in_blocks(guard: Guard, body: Callable[[], Any]) -> Any:
    """Run *body* in the blocks of a loop."""
    result = None
    for attempt in guard.attempts():
        with attempt:
            result = body()
    return result


async def _in_awaited_blocks(guard: Guard, body: Callable[[], Any]) -> Any:
    """Run *body* in the blocks of a loop, and await it."""
    result = None
    async for attempt in guard.attempts():
        async with attempt:
            result = await body()
    return result


def _decorator(name: str, given: Any) -> Callable[[Any], Any]:
    decorate = getattr(faulttolerance, name)
    return decorate(**given) if isinstance(given, Mapping) else decorate(given)  # type: ignore[no-any-return]


def _value(name: str, given: Any) -> Any:
    kind = getattr(faulttolerance, "".join(word.capitalize() for word in name.split("_")))
    return kind(**given) if isinstance(given, Mapping) else kind(given)


# Results

_REASON = re.compile(r"(?<=it was not interrupted: ).*")
"""Threads and coroutines have reasons of their own."""
_NUMBER = re.compile(r"\d+\.\d+(?= s\b)")
_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
_INTERRUPTION = "interruption"


def shown(error: BaseException | None, name: str) -> Any:
    """Return an exception with its causes and notes, without seconds in notes, and with ``G`` as name of the guard.

    Notes of nested guards use the last part of its name.
    """
    if error is None:
        return None
    if isinstance(error, (Interrupted, *_CANCELLED)):
        return _INTERRUPTION
    notes = tuple(
        _REASON.sub("#", _NUMBER.sub("#", note)).replace(name, "G").replace(f" of {name.rpartition('.')[2]},", " of G,")
        for note in getattr(error, "__notes__", ())
    )
    return (type(error).__name__, str(error).replace(name, "G"), notes, shown(error.__cause__, name))


class _Handler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seen: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.levelname, _NUMBER.sub("#", record.getMessage())))


class Run:
    """One scenario in one way."""

    def __init__(self, way: Way, clock: Clock, policies: Callable[[Run], Policies], body: Body) -> None:
        self.way = way
        self.clock = clock
        self.attempts = 0
        self.left: list[float | None] = []
        """The answers of ``remaining()`` in each attempt and beside it, of the calls that were made alone."""
        self.outcomes: list[Any] = []
        self._invoke = Invoke(way.convention, clock)
        self._calls: list[Any] = []
        self._is_over = False
        self.counts: dict[Any, int] = {}
        """The counts, but for those that only a queue has, and for levels and times."""
        self.state: str | None = None
        self.log: list[tuple[str, str]] = []

        async def service() -> Any:
            if not self._is_over:
                self.attempts += 1
            self.look()
            return await body(self)

        self.method, self.name, self._close = way.declare(service, policies(self), clock)
        self._has_breaker = "circuit_breaker" in policies(self)

    # For bodies and handlers

    def look(self) -> None:
        """Record the value of ``remaining()``."""
        left = faulttolerance.remaining()
        if self._is_over:
            return
        self.left.append(None if left is None else round(left, 3))

    async def sleep(self, seconds: float) -> None:
        """Wait, in a body, until it is interrupted."""
        await self._invoke.sleep(seconds)

    def work(self, seconds: float) -> None:
        """Work; no interruption ends it, and no other task runs meanwhile."""
        self.clock.work(seconds)

    # For scenarios

    async def call(self) -> None:
        """Call, and record the outcome."""
        await self._note(self.method)

    async def call_within(self, seconds: float) -> None:
        """Call under the deadline of an enclosing guard, and record the outcome."""
        outer = Guard(timeout=Timeout(seconds * 1000), name="outer")
        try:
            if self.way.convention == "blocking":
                await self._note(lambda: outer.call(self.method))
            else:
                await self._note(lambda: outer.call_async(self.method))
        finally:
            outer.close()

    async def call_cancelled(self, seconds: float) -> None:
        """Call, and end it from outside after so long; a plain call by the deadline of an enclosing one."""
        if self.way.convention == "blocking":
            await self.call_within(seconds)
        else:
            future = self._begin()
            await asyncio.sleep(seconds)
            future.cancel()
            await self._note(lambda: future)
        if self.outcomes[-1] == _INTERRUPTION or self.outcomes[-1][0] == "TimeoutException":
            self.outcomes[-1] = "cancelled"

    async def hold(self, calls: int) -> None:
        """Begin calls that go on beside the next ones."""
        self._calls += [self._begin() for _ in range(calls)]
        await self.passes(0.001)
        self.attempts, self.left = 0, []

    async def passes(self, seconds: float) -> None:
        """Wait between calls."""
        if self.way.convention == "blocking":
            self.clock.sleep(seconds)
        else:
            await asyncio.sleep(seconds)

    def _begin(self) -> Any:
        if self.way.convention == "blocking":
            return self.clock.start(self.method)
        made = self.method()
        return asyncio.ensure_future(made) if asyncio.iscoroutine(made) else made

    async def _note(self, call: Callable[[], Any]) -> None:
        try:
            made = call()
            self.outcomes.append(("returned", made if self.way.convention == "blocking" else await made))
        except BaseException as error:
            self.outcomes.append(shown(error, self.name))

    def drive(self, scenario: Scene) -> Run:
        """Run *scenario*; keep and return all that can be seen afterwards."""
        with _logged() as log:
            try:
                if self.way.convention == "blocking":
                    self._drive_blocking(scenario)
                else:
                    self.clock.run(self._drive_on_loop(scenario))
            finally:
                self._close()
                del self.method, self._close  # or a guard whose handler refers to this run would live for ever
        self.log = [
            (level, text.replace(self.name, "G"))
            for level, text in log
            # The end of a body that was left behind, and events of the enclosing guard, are none of the call.
            if not text.startswith(("dropped the exception of a call", "outer: "))
        ]
        return self

    def _drive_blocking(self, scenario: Scene) -> None:
        try:
            scenario(self).send(None)
        except StopIteration:
            pass
        else:
            raise AssertionError("the scenario waits for a loop; in a plain call there is none")
        self._read()
        self.clock.sleep(1000)  # the calls beside it end

    async def _drive_on_loop(self, scenario: Scene) -> None:
        await scenario(self)
        self._read()
        await asyncio.sleep(1000)
        await asyncio.gather(*map(_awaitable, self._calls), return_exceptions=True)

    def _counts(self) -> Iterator[Mapping[Any, int]]:
        """Yield the counts of each guard of this name, without resolving its values or checking its callbacks again.

        Only guards whose name may be that of the scenario are read: there are thousands of others.
        """
        for resolver in list(registry.resolvers()):
            if self.name.endswith(registry.name_of(resolver)):
                for cls in resolver.classes():
                    state: Any = resolver.state(cls)
                    if state is not None and resolver.name_for(cls) == self.name:
                        yield state.counts()

    def _read(self) -> None:
        self._is_over = True
        (counts,) = [counts for counts in self._counts() if any(counts.values())] or [{}]
        self.counts = {
            (metric, tags): count
            for (metric, tags), count in counts.items()
            if count and not any(word in metric for word in ("executions", "state", "waiting", "abandoned"))
        }
        self.state = circuit_breakers.state(self.name) if self._has_breaker else None


async def _awaitable(call: Any) -> Any:
    return await call


@contextmanager
def _logged() -> Iterator[list[tuple[str, str]]]:
    logger, handler = logging.getLogger("faulttolerance"), _Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.seen
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
