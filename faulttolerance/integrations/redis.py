"""Clients of redis-py under a guard: commands that end at the deadline on every thread, and writes that are sent once.

>>> import redis
>>> from faulttolerance import Guard
>>> from faulttolerance.integrations.redis import install
>>> from faulttolerance.policies import Timeout
>>> cache = install(redis.Redis(), Guard(timeout=Timeout("100ms")))
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any, TypeVar

import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.commands import READ_COMMANDS
from redis.retry import Retry

from .. import Guard, uninterruptible, veto_retries
from ..exceptions import definition_error
from ._redis_connections import AsyncReplyCounter, Command, DeadlineConnection, ReplyCounter, current_command
from ._time import time_limit

__all__ = ["install"]

C = TypeVar("C", "redis.Redis", "redis.asyncio.Redis")

_READS = READ_COMMANDS | {"PING", "ECHO", "TIME", "INFO", "SCRIPT EXISTS", "SCRIPT LOAD"}


def install(client: C, guard: Guard, *, idempotent: Iterable[str] = ()) -> C:
    """Run each command and each pipeline of *client* as a call of *guard*, and return *client* itself.

    A command of a synchronous client ends at the nearest deadline by the time-out of its socket, on every thread. A
    connection of which not all answers were read, for whatever reason, is closed before it is used again. redis-py
    makes no retries any more, the guard does. Where the answer to a sent command was lost, and the command does more
    than read, no attempt follows, whatever ``retry_on`` says. Publish and subscribe run as usual.

    Args:
        client: A client that nobody uses yet; its pool is changed, and drops the connections that it has.
        guard: A guard for this server: its state is about that server.
        idempotent: Further commands that may be sent again though they may have been carried out: ``["SET", "DEL"]``.

    Raises:
        FaultToleranceDefinitionException: If *client* is none of redis-py, has one connection for all, or is guarded
            already; if *guard* is none; if *idempotent* has anything but names.
    """
    is_client = isinstance(client, (redis.Redis, redis.asyncio.Redis)) and client.connection is None
    if not is_client or getattr(client, "single_connection_client", False) or "execute_command" in vars(client):
        _refuse("client", client, "a Redis or asyncio.Redis of redis-py, with a pool of connections, unguarded")
    if not isinstance(guard, Guard):
        _refuse("guard", guard, "a Guard")
    names = [idempotent] if isinstance(idempotent, str) else [*idempotent]
    if not all(isinstance(name, str) for name in names):
        _refuse("idempotent", names, "names of commands")
    _prepare(client)
    repeatable = _READS.union(name.upper() for name in names)
    one: Any = client
    call = _call_async if isinstance(client, redis.asyncio.Redis) else _call
    execute, pipeline = one.execute_command, one.pipeline

    def execute_command(*args: Any, **options: Any) -> Any:
        return call(guard, Command(_reason(args[:1], repeatable)), partial(execute, *args, **options))

    def guarded_pipeline(*args: Any, **options: Any) -> Any:
        pipe: Any = pipeline(*args, **options)
        run = pipe.execute

        def execute(raise_on_error: bool = True) -> Any:
            stack: list[Any] = [*pipe.command_stack]
            scripts: set[Any] = {*pipe.scripts}

            def run_again() -> Any:
                pipe.command_stack, pipe.scripts = [*stack], {*scripts}  # each end of a run clears them
                return run(raise_on_error)

            reason = _reason([args[0] for args, _ in stack], repeatable)
            if pipe.watching:
                reason = "its keys are no longer watched: watch them again"
            return call(guard, Command(reason, pipe.watching), run_again)

        pipe.execute = execute
        return pipe

    one.execute_command, one.pipeline = execute_command, guarded_pipeline
    return client


def _refuse(parameter: str, got: object, allowed: str) -> None:
    raise definition_error(f"install({parameter})", f"is {got!r}", got, allowed)


def _prepare(client: Any) -> None:
    """Replace the pool's connection class by one that counts owed answers, and disable the retries of redis-py."""
    pool, is_asynchronous = client.connection_pool, isinstance(client, redis.asyncio.Redis)
    pool.connection_kwargs["retry"] = (AsyncRetry if is_asynchronous else Retry)(NoBackoff(), 0)
    kind = pool.connection_class
    if issubclass(kind, ReplyCounter):
        return  # it belongs to another client, too
    pool.connection_class = type(
        f"Guarded{kind.__name__}", (AsyncReplyCounter if is_asynchronous else DeadlineConnection, kind), {}
    )
    if hasattr(pool, "timeout") and not is_asynchronous:
        wait = property(
            lambda self: time_limit(vars(self)["timeout"]), lambda self, value: vars(self).update(timeout=value)
        )
        pool.__class__ = type(f"Guarded{type(pool).__name__}", (type(pool),), {"timeout": wait})
    pool.reset()


def _reason(names: Iterable[str | bytes], repeatable: Container[str]) -> str:
    """Return why commands may not be sent again; empty where they may."""
    texts = (name.decode() if isinstance(name, bytes) else name for name in names)
    writes = next((name for name in texts if name.upper() not in repeatable), None)
    if writes is None:
        return ""
    return f"{writes} may have run, and its answer is lost: name it in idempotent= if it may run twice"


def _call(guard: Guard, command: Command, function: Callable[[], Any]) -> Any:
    def attempt() -> Any:
        command.due = 0
        with uninterruptible():  # the time-out of the socket ends it, and no exception comes into its locks and pools
            return function()

    token = current_command.set(command)
    try:
        return guard.call(attempt)
    finally:
        current_command.reset(token)


async def _call_async(guard: Guard, command: Command, function: Callable[[], Any]) -> Any:
    async def attempt() -> Any:
        command.due = 0
        return await function()

    token = current_command.set(command)
    try:
        return await guard.call_async(attempt)
    finally:
        current_command.reset(token)


def _veto(failure: BaseException) -> str | None:
    command = current_command.get()
    return command.reason if command is not None and (command.due or command.is_watching) else None


veto_retries(_veto)
