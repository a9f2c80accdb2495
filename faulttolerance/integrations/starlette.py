"""Refusals, time-outs and deadlines of requests in Starlette and FastAPI, which is a kind of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from anyio import CancelScope
from anyio._backends import _asyncio
from anyio.lowlevel import checkpoint_if_cancelled
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import RefusedException, TimeoutException, on_deadline
from ..typing import Duration
from ._inbound import deadline_block, longest_in_seconds, time_left
from ._refusals import answer_to

__all__ = ["DeadlineMiddleware", "install"]


def install(app: Starlette, *, longest: Duration | None = None) -> None:
    """Answer refusals of *app* by 503 or 429 and time-outs by 504, and limit its requests to their callers' time.

    A handler of the application's own for one of the exceptions wins where it is for a narrower class, or is added
    later. Other exceptions, and WebSockets, stay as they are.

    Args:
        app: An application that has not begun to serve.
        longest: How long a request may take, until its response begins, whatever its headers say; in milliseconds.

    Raises:
        FaultToleranceDefinitionException: *longest* is no duration.
    """
    longest_in_seconds("install(longest)", longest)
    for kind in RefusedException, TimeoutException, ExceptionGroup:
        app.add_exception_handler(kind, _answer)
    app.add_middleware(DeadlineMiddleware, longest=longest)


class DeadlineMiddleware:
    """Middleware that limits each request to its caller's time, by ``deadline``; plain ASGI, for other frameworks, too.

    The headers ``grpc-timeout`` and ``X-Request-Timeout-Ms`` state how long. A request that has no response by then is
    cancelled, and answered by 504. The deadline ends where the response begins: it cuts neither a stream nor work that
    runs in the background afterwards.

    Args:
        app: The ASGI application.
        longest: The upper limit of the headers' time, and the time without a header, in milliseconds; ``None``: no
            limit.
    """

    def __init__(self, app: ASGIApp, *, longest: Duration | None = None) -> None:
        self._app = app
        self._longest = longest_in_seconds("DeadlineMiddleware(longest)", longest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        left = time_left(Headers(scope=scope).get, self._longest) if scope["type"] == "http" else None
        if left is None:
            await self._app(scope, receive, send)
            return

        async def refuse(late: TimeoutException) -> None:
            response = _response(late, Headers(scope=scope).get("accept", ""))
            assert response is not None
            await response(scope, receive, send)

        until = _DeadlineUntilResponse(send, refuse)
        try:
            if not left:
                raise TimeoutException("no time left")
            await until.run(self._app, scope, receive, left)
        except TimeoutException as late:
            if until.is_answered:
                raise
            until.is_late = True
            if until.refusal is None:
                await refuse(late)
        finally:
            if until.refusal is not None:
                await until.refusal


class _LateAnswer(asyncio.CancelledError):
    """The end of the code that answers too late, in a task that was not cancelled, too, as of Quart."""


class _DeadlineUntilResponse:
    """The deadline of one request, which ends where the response begins."""

    def __init__(self, send: Send, refuse: Callable[[TimeoutException], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self._refuse = refuse
        self._exits: list[Callable[..., object]] = []
        """Leaves the block, once; it is removed for that, because an exception's traceback would keep it alive."""
        self._task: Any = None
        self._context = copy_context()
        self._cancel_scope = CancelScope()
        self.refusal: asyncio.Task[None] | None = None
        """Sends the response while the request is in a block that anyio shields, such as the wait for a thread."""
        self.is_late = False
        """Whether the request has no time left for a response that has not begun."""
        self.is_answered = False

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, left: float) -> None:
        """Run *app*; raise ``TimeoutException``, or start ``refusal``, where there is no response in *left* seconds."""
        block = deadline_block(left)
        # As a ``with`` statement does, before it enters. This block may be left by another task of the request.
        self._exits.append(block.__exit__)
        await block.__aenter__()  # a deadline of the task, which may have no frame but those of the library
        self._task = asyncio.current_task()
        try:
            with self._cancel_scope, on_deadline(self._expire):
                await app(scope, receive, self._answer)
        except _LateAnswer:
            pass
        except BaseException as failure:
            self._end(failure)
            raise
        self._end()

    async def _answer(self, message: Message) -> None:
        if self.is_late and not self.is_answered:
            await checkpoint_if_cancelled()
            raise _LateAnswer
        if message["type"] == "http.response.start":
            with suppress(TimeoutException):  # nobody was interrupted yet, and the response is there
                self._end()
            self.is_answered = True
        await self._send(message)

    def _end(self, failure: BaseException | None = None) -> None:
        if self._exits:
            kind, trace = (None, None) if failure is None else (type(failure), failure.__traceback__)
            self._exits.pop()(kind, failure, trace)

    def _expire(self) -> None:
        self.is_late = True
        if not self._is_shielded():
            return
        # The cancellation that follows would cut the block, in which the request waits for a thread that uses what it
        # holds, or leaves a dependency of FastAPI; anyio's does not.
        try:
            self._end()
        except TimeoutException as late:
            self._cancel_scope.cancel()
            self.refusal = self._context.run(asyncio.create_task, self._refuse(late))

    def _is_shielded(self) -> bool:
        """Return whether the task is in a block that anyio shields; it has no public name for the scopes of a task."""
        scope = getattr(_asyncio._task_states.get(self._task), "cancel_scope", None)
        while scope is not None and scope is not self._cancel_scope:
            if scope.shield:
                return True
            scope = scope._parent_scope
        return False


async def _answer(request: HTTPConnection, failure: Exception) -> Response:
    response = _response(failure, request.headers.get("accept", "")) if request.scope["type"] == "http" else None
    if response is None:
        raise failure
    return response


def _response(failure: Exception, accept: str) -> Response | None:
    answer = answer_to(failure, accept)
    return None if answer is None else Response(answer.body, answer.status, answer.headers)
