"""Connections of redis-py that respect the time that is left, and count the answers that they are owed.

An interruption may come between a command and its answer, which the next command would then read as its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from redis.asyncio.client import PubSub as AsyncPubSub
from redis.client import PubSub
from redis.exceptions import BusyLoadingError, ResponseError

from ._time import time_limit


class Command:
    """The commands of one call: the reason why they may not be sent again, if any, and how many answers are due."""

    __slots__ = ("due", "is_watching", "reason")

    def __init__(self, reason: str, is_watching: bool = False) -> None:
        self.reason, self.is_watching, self.due = reason, is_watching, 0


current_command: ContextVar[Command | None] = ContextVar("faulttolerance_redis", default=None)
"""The commands that the running call sends."""


class ReplyCounter:
    """The count of a connection: the answers that are due to the commands it has sent."""

    _due = 0
    _connect_callbacks: list[Any]

    def _count_due(self, answers: int) -> None:
        self._due = max(0, self._due + answers)
        command = current_command.get()
        if command is not None:
            command.due = max(0, command.due + answers)

    def _is_stale(self, stream: object) -> bool:
        """Return whether a connection from the pool has unread answers; a connection of a subscriber may have some."""
        if not self._due or stream is None:
            return False
        owners = (getattr(callback(), "__self__", None) for callback in self._connect_callbacks)
        return not any(isinstance(owner, (PubSub, AsyncPubSub)) for owner in owners)

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """Discard the count of the connection's own commands: the command that it is for was not sent yet."""
        command = current_command.get()
        due = command.due if command is not None else 0
        try:
            yield
        finally:
            if command is not None:
                command.due = due

    def pack_commands(self, commands: Iterable[Any]) -> Any:
        several = [*commands]
        self._count_due(len(several))
        return super().pack_commands(several)  # type: ignore[misc]


class DeadlineConnection(ReplyCounter):
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
        self._count_due(1)
        super().send_command(*args, **options)  # type: ignore[misc]

    def send_packed_command(self, *args: Any, **options: Any) -> None:
        self._hurry()
        super().send_packed_command(*args, **options)  # type: ignore[misc]

    def read_response(self, *args: Any, **options: Any) -> Any:
        self._hurry()
        try:
            answer = super().read_response(*args, **options)  # type: ignore[misc]
        except (ResponseError, BusyLoadingError):
            self._count_due(-1)
            raise
        self._count_due(-1)
        return answer

    def _hurry(self) -> None:
        if self._sock is not None:
            self._sock.settimeout(time_limit(self.socket_timeout))


class AsyncReplyCounter(ReplyCounter):
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
        self._count_due(1)
        await super().send_command(*args, **options)  # type: ignore[misc]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            answer = await super().read_response(*args, **options)  # type: ignore[misc]
        except (ResponseError, BusyLoadingError):
            self._count_due(-1)
            raise
        self._count_due(-1)
        return answer
