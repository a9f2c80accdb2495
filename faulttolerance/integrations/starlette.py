"""Refusals, time-outs and deadlines of requests in Starlette and FastAPI, which is a kind of it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
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
        else:
            await _DeadlineUntilResponse(self._app, scope, receive, send).run(left)


class _LateAnswer(asyncio.CancelledError):
    """The end of the code that answers too late, in a task that was not cancelled, too, as of Quart."""


class _DeadlineUntilResponse:
    """The deadline of one request, which ends where the response begins."""

    def __init__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._app, self._scope, self._receive, self._send = app, scope, receive, send
        self._block = ExitStack()
        """Leaves the block of the deadline, once."""
        self._task: Any = None
        self._context = copy_context()
        self._cancel_scope = CancelScope()
        self._refusal: asyncio.Task[None] | None = None
        """Sends the response while the request is in a block that anyio shields, such as the wait for a thread."""
        self._is_late = False
        """Whether the request has no time left for a response that has not begun."""
        self._is_answered = False

    async def run(self, left: float) -> None:
        """Run the application; refuse the request if there is no response in *left* seconds."""
        try:
            await self._run(left)
        except TimeoutException as late:
            if self._is_answered:
                raise
            self._is_late = True
            if self._refusal is None:
                await self._refuse(late)
        finally:
            if self._refusal is not None:
                await self._refusal

    async def _run(self, left: float) -> None:
        block = deadline_block(left)
        # As a ``with`` statement does, before it enters. This block may be left by another task of the request.
        self._block.push(block)
        await block.__aenter__()  # a deadline of the task, which may have no frame but those of the library
        self._task = asyncio.current_task()
        with self._block, suppress(_LateAnswer), self._cancel_scope, on_deadline(self._expire):
            await self._app(self._scope, self._receive, self._answer)

    async def _answer(self, message: Message) -> None:
        if self._is_late and not self._is_answered:
            await checkpoint_if_cancelled()
            raise _LateAnswer
        if message["type"] == "http.response.start":
            with suppress(TimeoutException):  # nobody was interrupted yet, and the response is there
                self._block.close()
            self._is_answered = True
        await self._send(message)

    async def _refuse(self, late: TimeoutException) -> None:
        response = _response(late, Headers(scope=self._scope).get("accept", ""))
        assert response is not None
        await response(self._scope, self._receive, self._send)

    def _expire(self) -> None:
        self._is_late = True
        if not self._is_shielded():
            return
        # The cancellation that follows would cut the block, in which the request waits for a thread that uses what it
        # holds, or leaves a dependency of FastAPI; anyio's does not.
        try:
            self._block.close()
        except TimeoutException as late:
            self._cancel_scope.cancel()
            self._refusal = self._context.run(asyncio.create_task, self._refuse(late))

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
