"""One scenario, every way to call: plain, in an event loop, on a thread of the pool, as a task.

A test writes a body once, as a coroutine function that waits by ``await invoke.sleep(...)`` only. ``invoke.body`` makes
of it what the convention asks for, so that policies written above it guard a ``def``, an ``async def``, or one of their
``@asynchronous`` kind; ``invoke(...)`` calls it and gives the outcome.

    @retry(max_retries=5)
    @invoke.body
    async def work(self) -> None: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

import faulttolerance
from faulttolerance import Future, Interrupted, asynchronous, completed_future

from .clock import Clock

__all__ = ["CONVENTIONS", "INTERRUPTION", "Invoke", "conventions"]

Body: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

CONVENTIONS = ("blocking", "asyncio", "offloaded", "task")
"""``def``; ``async def``; ``@asynchronous def -> Future``; ``@asynchronous async def``."""

INTERRUPTION = (Interrupted, asyncio.CancelledError)
"""The exceptions by which a body learns that it is to stop: on a thread, and in a task."""

_RESULT_SECONDS = 30


class Invoke:
    """Calls guarded methods in one of the conventions."""

    def __init__(self, convention: str, clock: Clock) -> None:
        self.convention = convention
        self.is_on_loop = convention in ("asyncio", "task")
        """Whether bodies are coroutines."""
        self.is_detached = convention in ("offloaded", "task")
        """Whether an attempt that does not end is left behind at its deadline."""
        self._clock = clock

    def body(self, function: Body) -> Any:
        """Return the unguarded method for the test's policies, as the convention asks for it."""
        if self.convention == "asyncio":
            return function
        if self.convention == "task":
            return asynchronous(function)

        if self.convention == "blocking":

            def body(*args: Any, **kwargs: Any) -> Any:
                return _driven(function(*args, **kwargs))

            return _named_after(function, body)

        def offloaded(*args: Any, **kwargs: Any) -> Future[Any]:
            return completed_future(_driven(function(*args, **kwargs)))

        return asynchronous(_named_after(function, offloaded))

    async def sleep(self, seconds: float) -> None:
        """Wait so long, in a body."""
        if self.is_on_loop:
            await asyncio.sleep(seconds)
        else:
            faulttolerance.sleep(seconds)

    def __call__(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call *method*; return its result, or raise its exception."""
        if self.convention == "blocking":
            return method(*args)
        if self.convention == "offloaded":
            return method(*args).result(_RESULT_SECONDS)

        async def main() -> Any:
            return await method(*args)

        return self._clock.run(main())

    def outcome(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call *method*; return its result, or the class of its exception."""
        try:
            return self(method, *args)
        except Exception as error:
            return type(error)


def _driven(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits for a loop to its end; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("the body waits for a loop; on a thread it has none")


def _named_after(function: Body, body: Callable[..., Any]) -> Callable[..., Any]:
    """Copy only the name of *function* to *body*, which is no coroutine function and must not seem to wrap one."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(body, name, getattr(function, name))
    return body


def conventions(**marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Run a test in the conventions given only, each under the mark of its own entry.

    @conventions(blocking=pytest.mark.tck("X.sync"), offloaded=pytest.mark.tck("X.async"))
    """
    given = [pytest.param(convention, marks=mark, id=convention) for convention, mark in marks.items()]
    return pytest.mark.parametrize("invoke", given, indirect=True)
