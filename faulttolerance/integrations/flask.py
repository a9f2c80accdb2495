"""Refusals, time-outs and deadlines of requests in Flask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from .. import RefusedException, TimeoutException
from ..typing import Duration
from ._inbound import deadline_block, late_failure, longest_in_seconds, time_left
from ._refusals import answer_to, guard_failure_in

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from flask import Flask, Response

__all__ = ["DeadlineMiddleware", "install"]


def install(app: Flask, *, longest: Duration | None = None) -> None:
    """Answer refusals of *app* by 503 or 429 and time-outs by 504, and limit its requests to their callers' time.

    A handler of the application's own for one of the exceptions wins where it is for a narrower class, or is added
    later. Other exceptions stay as they are; without a handler they are a 504 once the request is late.

    Args:
        app: An application that has not begun to serve.
        longest: How long a request may take, until its response begins, whatever its headers say; in milliseconds.

    Raises:
        FaultToleranceDefinitionException: *longest* is no duration.
    """
    longest_in_seconds("install(longest)", longest)
    app.register_error_handler(RefusedException, _answer)
    app.register_error_handler(TimeoutException, _answer)
    handle: Callable[[Any], Any] = app.handle_user_exception
    # A group of nothing but refusals goes to their handler; a handler for groups would be in the way of the others.

    def answer_or_raise(e: Exception) -> Any:
        try:
            return handle(guard_failure_in(e) or e)
        except Exception as unhandled:
            late = late_failure(unhandled)
            if late is None:
                raise
            return handle(late)

    app.handle_user_exception = answer_or_raise  # type: ignore[method-assign]
    app.wsgi_app = DeadlineMiddleware(app.wsgi_app, longest=longest)  # type: ignore[method-assign]


class DeadlineMiddleware:
    """Middleware that limits each request to its caller's time, by ``deadline``; plain WSGI, also without Flask.

    The headers ``grpc-timeout`` and ``X-Request-Timeout-Ms`` state how long. The application is interrupted then, and
    the answer is 504. The deadline ends where the response begins: it does not cut a stream.

    Args:
        app: The WSGI application.
        longest: The upper limit of the headers' time, and the time without a header, in milliseconds; ``None``: no
            limit.
    """

    def __init__(self, app: WSGIApplication, *, longest: Duration | None = None) -> None:
        self._app = app
        self._longest = longest_in_seconds("DeadlineMiddleware(longest)", longest)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        response: Iterable[bytes] | None = None
        has_begun = False

        def begin(*status_and_headers: Any) -> Any:
            nonlocal has_begun
            has_begun = True
            return start_response(*status_and_headers)

        try:
            left = time_left(lambda name: environ.get(f"HTTP_{name.upper().replace('-', '_')}"), self._longest)
            with deadline_block(left):
                response = self._app(environ, begin)
        except TimeoutException as late:
            answer = answer_to(late, environ.get("HTTP_ACCEPT", ""))
            if response is None and answer is not None:  # a response that is there, if late, is sent
                status = f"{answer.status} {HTTPStatus(answer.status).phrase}"
                # Only to replace a response that has begun; the test client of Werkzeug raises it.
                failure = sys.exc_info() if has_begun else None
                start_response(status, [*answer.headers.items()], failure)
                response = [answer.body]
        assert response is not None
        return response


def _answer(failure: Exception) -> Response:
    from flask import Response, request  # here, because the middleware needs no Flask

    answer = answer_to(failure, request.headers.get("Accept", ""))
    assert answer is not None
    return Response(answer.body, answer.status, answer.headers)
