"""Clients of redis-py under a guard: commands that end at the deadline on every thread, and writes that are sent once.

>>> import redis
>>> from faulttolerance import Guard
>>> from faulttolerance.integrations.redis import install
>>> from faulttolerance.policies import Timeout
>>> cache = install(redis.Redis(), Guard(timeout=Timeout("100ms")))
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import redis.asyncio
from redis.asyncio.client import PubSub as AsyncPubSub
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.commands import READ_COMMANDS
from redis.exceptions import BusyLoadingError, ResponseError
from redis.retry import Retry

from .. import Guard, TimeoutException, uninterruptible, veto_retries
from .._shown import one_or_several, shown
from ..exceptions import definition_error
from ._refusals import may_be_of_attempt
from ._time import time_limit

__all__ = ["install"]

C = TypeVar("C", "redis.Redis", "redis.asyncio.Redis")

_READS = READ_COMMANDS | {"PING", "ECHO", "TIME", "INFO", "SCRIPT EXISTS", "SCRIPT LOAD"}


class _Command:
    """The commands of one call: the reason why they may not be sent again, if any, and what became of them.

    Its attempts are methods: a guard knows them at each call, and takes no two commands for the same call.
    """

    __slots__ = ("__weakref__", "due", "failure", "is_watching", "ran", "reason", "send")

    failure: BaseException | None
    """What the attempt has raised."""
    due: int
    """How many answers were not read."""
    ran: int
    """How many may have run, also if all answers were read: an answer that was read too late is lost as well."""

    def __init__(self, send: Callable[[], Any], reason: str, is_watching: bool = False) -> None:
        self.send, self.reason, self.is_watching = send, reason, is_watching
        self.begin()

    def begin(self) -> None:
        self.due, self.ran, self.failure = 0, 0, None

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        self.failure = failure

    def attempt(self) -> Any:
        with self, uninterruptible():  # the time-out of the socket ends it; no exception comes into its locks and pools
            return self.send()

    async def attempt_async(self) -> Any:
        with self:
            return await self.send()

    def forbids_retry(self, failure: BaseException) -> bool:
        """Return whether no attempt may follow *failure*, unless it is of a guard that the fallback calls."""
        is_lost = self.due > 0 or self.is_watching or (self.ran > 0 and isinstance(failure, TimeoutException))
        return is_lost and may_be_of_attempt(failure, self.failure)


_NO_CALL = _Command(int, "")
"""Counts for all commands that no call sends, and forbids nothing."""
_current_command: ContextVar[_Command] = ContextVar("faulttolerance_redis", default=_NO_CALL)
"""The commands that the running call sends."""


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
    names = one_or_several(idempotent)
    if not all(isinstance(name, str) for name in names):
        _refuse("idempotent", idempotent, "names of commands")
    _prepare(client)
    repeatable = _READS.union(name.upper() for name in names)
    one: Any = client
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
    """Replace the pool's connection class by one that counts owed answers, and disable the retries of redis-py."""
    pool, is_asynchronous = client.connection_pool, isinstance(client, redis.asyncio.Redis)
    pool.connection_kwargs["retry"] = (AsyncRetry if is_asynchronous else Retry)(NoBackoff(), 0)
    kind = pool.connection_class
    if issubclass(kind, _ReplyCounter):
        return  # it belongs to another client, too
    pool.connection_class = type(
        f"Guarded{kind.__name__}", (_AsyncReplyCounter if is_asynchronous else _DeadlineConnection, kind), {}
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


def _call(guard: Guard, command: _Command) -> Any:
    token = _current_command.set(command)
    try:
        return guard.call(command.attempt)
    finally:
        _current_command.reset(token)
        command.failure = None


async def _call_async(guard: Guard, command: _Command) -> Any:
    token = _current_command.set(command)
    try:
        return await guard.call_async(command.attempt_async)
    finally:
        _current_command.reset(token)
        command.failure = None


def _veto(failure: BaseException) -> str | None:
    command = _current_command.get()
    return command.reason if command.forbids_retry(failure) else None


veto_retries(_veto)


# Connections. An interruption may come between a command and its answer, which the next command would then read as its
# own.


class _ReplyCounter:
    """The count of a connection: the answers that are due to the commands it has sent."""

    _due = 0
    _connect_callbacks: list[Any]

    def _count_due(self, answers: int, ran: int = 0) -> None:
        self._due = max(0, self._due + answers)
        command = _current_command.get()
        command.due = max(0, command.due + answers)
        command.ran += ran

    def _is_stale(self, stream: object) -> bool:
        """Return whether a connection from the pool has unread answers; a connection of a subscriber may have some."""
        if not self._due or stream is None:
            return False
        owners = (getattr(callback(), "__self__", None) for callback in self._connect_callbacks)
        return not any(isinstance(owner, (PubSub, AsyncPubSub)) for owner in owners)

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """Discard the count of the connection's own commands: the command that it is for was not sent yet."""
        command = _current_command.get()
        before = command.due, command.ran
        try:
            yield
        finally:
            command.due, command.ran = before

    def pack_commands(self, commands: Iterable[Any]) -> Any:
        several = [*commands]
        self._count_due(len(several), len(several))
        return super().pack_commands(several)  # type: ignore[misc]


class _DeadlineConnection(_ReplyCounter):
    """The same for a connection of a synchronous client, of which each step has the time that is left as time-out."""

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
        if self._is_stale(self._sock):
            self.disconnect()
        with self._connecting():
            super().connect()  # type: ignore[misc]

    def disconnect(self, *args: Any, **options: Any) -> None:
        self._due = 0
        super().disconnect(*args, **options)  # type: ignore[misc]

    def send_command(self, *args: Any, **options: Any) -> None:
        self._count_due(1, 1)
        super().send_command(*args, **options)  # type: ignore[misc]

    def check_health(self) -> None:
        try:
            super().check_health()  # type: ignore[misc]
        except BaseException:
            _current_command.get().begin()  # it was not sent
            raise

    def send_packed_command(self, *args: Any, **options: Any) -> None:
        self._hurry()
        super().send_packed_command(*args, **options)  # type: ignore[misc]

    def read_response(self, *args: Any, **options: Any) -> Any:
        self._hurry()
        try:
            answer = super().read_response(*args, **options)  # type: ignore[misc]
        except (ResponseError, BusyLoadingError):
            self._count_due(-1, -1)
            raise
        self._count_due(-1)
        return answer

    def _hurry(self) -> None:
        if self._sock is not None:
            self._sock.settimeout(time_limit(self.socket_timeout))


class _AsyncReplyCounter(_ReplyCounter):
    """The same for a connection of an asynchronous client, which ends by the cancellation of its task."""

    _writer: Any

    async def connect(self) -> None:
        if self._is_stale(self._writer):
            await self.disconnect()
        with self._connecting():
            await super().connect()  # type: ignore[misc]

    async def disconnect(self, *args: Any, **options: Any) -> None:
        self._due = 0
        await super().disconnect(*args, **options)  # type: ignore[misc]

    async def send_command(self, *args: Any, **options: Any) -> None:
        self._count_due(1, 1)
        await super().send_command(*args, **options)  # type: ignore[misc]

    async def check_health(self) -> None:
        try:
            await super().check_health()  # type: ignore[misc]
        except BaseException:
            _current_command.get().begin()  # it was not sent
            raise

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            answer = await super().read_response(*args, **options)  # type: ignore[misc]
        except (ResponseError, BusyLoadingError):
            self._count_due(-1, -1)
            raise
        self._count_due(-1)
        return answer
