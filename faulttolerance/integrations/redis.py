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
from redis.exceptions import BusyLoadingError, ResponseError
from redis.retry import Retry

from .. import Guard, uninterruptible
from .._shown import one_or_several, shown
from ..exceptions import definition_error
from ._sending import SendRecord, current_record
from ._time import time_limit

__all__ = ["install"]

C = TypeVar("C", "redis.Redis", "redis.asyncio.Redis")

_READS = READ_COMMANDS | {"PING", "ECHO", "TIME", "INFO", "SCRIPT EXISTS", "SCRIPT LOAD"}


class _Command(SendRecord):
    """The commands of one call.

    Its attempts are methods: a guard knows them at each call, and takes no two commands for the same call.
    """

    def __init__(self, send: Callable[[], Any], reason: str | None, is_watching: bool = False) -> None:
        super().__init__(reason)
        self.send, self.is_watching = send, is_watching

    def attempt(self) -> Any:
        with self, uninterruptible():  # the time-out of the socket ends it; no exception comes into its locks and pools
            return self.send()

    async def attempt_async(self) -> Any:
        with self:
            return await self.send()

    def __enter__(self) -> None:
        self.is_running, self.is_sent, self.failure = True, False, None

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        is_answered = isinstance(failure, (ResponseError, BusyLoadingError))
        self.is_sent = self.is_watching or (self.is_sent and not is_answered)
        self.is_running, self.failure = False, failure


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
    one: Any = client
    is_client = isinstance(client, (redis.Redis, redis.asyncio.Redis)) and client.connection is None
    # Instrumentation of others may have wrapped the method of this client, too.
    if not is_client or getattr(one, "single_connection_client", None) or one.execute_command.__module__ == __name__:
        _refuse("client", client, "a Redis or asyncio.Redis of redis-py, with a pool of connections, unguarded")
    if not isinstance(guard, Guard):
        _refuse("guard", guard, "a Guard")
    names = one_or_several(idempotent)
    if not all(isinstance(name, str) for name in names):
        _refuse("idempotent", idempotent, "names of commands")
    _prepare(client)
    repeatable = _READS.union(name.upper() for name in names)
    call = _call_async if isinstance(client, redis.asyncio.Redis) else _call
    execute, pipeline = one.execute_command, one.pipeline

    def execute_command(*args: Any, **options: Any) -> Any:
        return call(guard, _Command(partial(execute, *args, **options), _reason(args[:1], repeatable)))

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
            return call(guard, _Command(run_again, reason, pipe.watching))

        pipe.execute = execute
        return pipe

    one.execute_command, one.pipeline = execute_command, guarded_pipeline
    return client


def _refuse(parameter: str, got: object, allowed: str) -> None:
    raise definition_error(f"install({parameter})", f"is {shown(got)}", got, allowed)


def _prepare(client: Any) -> None:
    """Replace the connection class of the pool by a guarded one, and disable the retries of redis-py."""
    pool, is_asynchronous = client.connection_pool, isinstance(client, redis.asyncio.Redis)
    pool.connection_kwargs["retry"] = (AsyncRetry if is_asynchronous else Retry)(NoBackoff(), 0)
    kind = pool.connection_class
    guarded = _AsyncGuardedConnection if is_asynchronous else _GuardedConnection
    if issubclass(kind, guarded):
        return  # it belongs to another client, too
    pool.connection_class = type(f"Guarded{kind.__name__}", (guarded, kind), {})
    if hasattr(pool, "timeout") and not is_asynchronous:
        wait = property(
            lambda self: time_limit(vars(self)["timeout"]), lambda self, value: vars(self).update(timeout=value)
        )
        pool.__class__ = type(f"Guarded{type(pool).__name__}", (type(pool),), {"timeout": wait})
    pool.reset()


def _reason(names: Iterable[str | bytes], repeatable: Container[str]) -> str | None:
    """Return why commands may not be sent again; ``None`` where they may."""
    texts = (name.decode() if isinstance(name, bytes) else name for name in names)
    writes = next((name for name in texts if name.upper() not in repeatable), None)
    if writes is None:
        return None
    return f"{writes} may have run, and its answer is lost: name it in idempotent= if it may run twice"


def _call(guard: Guard, command: _Command) -> Any:
    with command.current():
        return guard.call(command.attempt)


async def _call_async(guard: Guard, command: _Command) -> Any:
    with command.current():
        return await guard.call_async(command.attempt_async)


# Connections. What they send for themselves, to connect or to check their health, counts for no command.


class _GuardedConnection:
    """A connection of a synchronous client: each step has the time that is left as its time-out.

    The handler of a signal may raise between a command and its answer, which the next command would read as its own.
    """

    _due = 0
    """How many answers were not read."""
    _packed = 1
    """How many commands are sent next."""
    _connect_callbacks: list[Any]
    _sock: Any
    socket_timeout: float | None
    socket_connect_timeout: float | None

    def _connect(self) -> Any:
        own = self.socket_connect_timeout, self.socket_timeout
        try:
            self.socket_connect_timeout, self.socket_timeout = map(time_limit, own)
            return super()._connect()  # type: ignore[misc]
        finally:
            self.socket_connect_timeout, self.socket_timeout = own

    def connect(self) -> None:
        if self._due and self._sock is not None:
            self.disconnect()
        with SendRecord(None).current():
            super().connect()  # type: ignore[misc]

    def disconnect(self, *args: Any, **options: Any) -> None:
        super().disconnect(*args, **options)  # type: ignore[misc]
        self._due = 0

    def pack_commands(self, commands: Iterable[Any]) -> Any:
        several = [*commands]
        self._packed = len(several)
        return super().pack_commands(several)  # type: ignore[misc]

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        answers, self._packed = self._packed, 1
        if check_health:
            with SendRecord(None).current():
                self.check_health()  # type: ignore[attr-defined]
        if _is_sent_by_call() or not self._connect_callbacks:  # a subscriber has some, and reads more than answers
            self._due += answers
        self._hurry()
        super().send_packed_command(command, check_health=False)  # type: ignore[misc]

    def read_response(self, *args: Any, **options: Any) -> Any:
        self._hurry()
        try:
            answer = super().read_response(*args, **options)  # type: ignore[misc]
        except ResponseError:
            self._due = max(0, self._due - 1)
            raise
        self._due = max(0, self._due - 1)
        return answer

    def _hurry(self) -> None:
        if hasattr(self._sock, "settimeout"):  # it is connected, and no fake of tests
            self._sock.settimeout(time_limit(self.socket_timeout))


class _AsyncGuardedConnection:
    """A connection of an asynchronous client, which ends by the cancellation of its task."""

    async def connect(self) -> None:
        with SendRecord(None).current():
            await super().connect()  # type: ignore[misc]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if check_health:
            with SendRecord(None).current():
                await self.check_health()  # type: ignore[attr-defined]
        _is_sent_by_call()
        await super().send_packed_command(command, check_health=False)  # type: ignore[misc]


def _is_sent_by_call() -> bool:
    """Record that the commands of the running call may have arrived; return whether there is one."""
    command = current_record.get(None)
    if not isinstance(command, _Command):
        return False
    command.is_sent = True
    return True
