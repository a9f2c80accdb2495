"""Code declares its part in interruptions itself; no name of a file, a function or a variable matters."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import pytest

from faulttolerance import (
    Future,
    Guard,
    asynchronous,
    bulkhead,
    circuit_breaker,
    completed_future,
    fallback,
    rate_limit,
    retry,
    timeout,
)
from faulttolerance._call import attempt
from faulttolerance._deadline.threads import roles, safe_point
from faulttolerance._deadline.threads.chain import this_thread
from faulttolerance._platform.atomic import stack_of
from faulttolerance.policies import Timeout

Seen = tuple[bool, int, int, str | None]


def look() -> Seen:
    """Return what a stack shows: whether the caller of the body is known, the deadlines there, and those that exist."""
    frame = sys._getframe(1)
    stack = stack_of(frame)
    caller = next(step for step in stack if roles.is_ours(step))
    links, entry = 0, this_thread.deadlines.innermost
    while entry is not None:
        links, entry = links + 1, entry[1]
    is_known = roles.is_attempt(caller) or roles.calls_guarded_function(caller)
    found = sum(map(roles.has_deadline, stack))
    return is_known, found, links, safe_point.reason_unsafe(stack, 1000.0, exact=True)


def body() -> Seen:
    return look()


def completed() -> Future[Seen]:
    return completed_future(look())


async def coroutine() -> Seen:
    return look()


class Base:
    @timeout(60_000)
    def method(self) -> Seen:
        return look()


class Derived(Base):
    @retry
    def method(self) -> Seen:
        return super().method()


def at_the_second_attempt() -> Seen:
    failures = [OSError()]

    @retry(delay=0, jitter=0)
    @timeout(60_000)
    def fail_once() -> Seen:
        if failures:
            raise failures.pop()
        return look()

    return fail_once()


async def through_guard() -> Seen:
    return await Guard(timeout=Timeout(60_000)).call_async(body)


def under_all_policies() -> Seen:
    guarded: Callable[[], Seen] = body
    for policy in (fallback(lambda _: body()), retry, circuit_breaker, rate_limit(9), bulkhead(2), timeout(60_000)):
        guarded = policy(guarded)
    return guarded()


WAYS: dict[str, tuple[int, Callable[[], Seen]]] = {
    "a deadline": (1, lambda: timeout(60_000)(body)()),
    "one that interrupts nothing": (1, lambda: timeout(60_000, interrupt=False)(body)()),
    "no deadline": (0, lambda: retry(body)()),
    "all policies": (1, under_all_policies),
    "the second attempt": (1, at_the_second_attempt),
    "one in another": (2, lambda: timeout(60_000)(lambda: timeout(50_000)(body)())()),
    "a guard of its own": (1, lambda: Guard(timeout=Timeout(60_000)).call(body)),
    "the same, elsewhere": (1, lambda: asyncio.run(through_guard())),
    "below a subclass": (0, lambda: Derived().method()),
    "elsewhere": (1, lambda: asynchronous(timeout(60_000)(completed))().result()),
    "a coroutine": (0, lambda: asyncio.run(timeout(60_000)(coroutine)())),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_body_declares_its_role(way: str) -> None:
    """Each deadline of the thread is known by its frame, and the caller of the body is known as such."""
    deadlines, call = WAYS[way]

    assert call() == (True, deadlines, deadlines, None)


@pytest.mark.parametrize("way", ["a deadline", "a coroutine"])
def test_names_tell_nothing(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a function and all its variables may be renamed, and the same code is interrupted."""
    deadlines, call = WAYS[way]

    def under_other_names(register: Callable[[int], Callable[[Any], Any]], role: int) -> Callable[[Any], Any]:
        def rename(function: FunctionType) -> Any:
            code = function.__code__
            local, free, cells = (
                tuple(f"renamed_{name}" for name in names)
                for names in (code.co_varnames, code.co_freevars, code.co_cellvars)
            )
            renamed = code.replace(
                co_filename="elsewhere.py", co_name="other", co_varnames=local, co_freevars=free, co_cellvars=cells
            )
            copy = FunctionType(renamed, function.__globals__, "other", function.__defaults__, function.__closure__)
            copies.append(copy)
            return register(role)(copy)

        return rename

    copies: list[FunctionType] = []
    monkeypatch.setattr(attempt, "register", partial(under_other_names, attempt.register))

    assert call() == (True, deadlines, deadlines, None)
    assert copies
