"""Refusals, time-outs and deadlines of requests in Django; and no retry inside an ``atomic`` block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django import conf  # type: ignore[import-untyped]
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation  # type: ignore[import-untyped]
from django.http import Http404, HttpRequest, HttpResponse  # type: ignore[import-untyped]
from django.http.multipartparser import MultiPartParserError  # type: ignore[import-untyped]

from .. import TimeoutException
from ._django_atomic import install as install
from ._inbound import deadline_block, late_failure, longest_in_seconds, time_left
from ._refusals import answer_to

__all__ = ["FaultToleranceMiddleware", "install"]

_ANSWERED = (BadRequest, Http404, MultiPartParserError, PermissionDenied, SuspiciousOperation)
"""Exceptions that Django answers by less than 500."""


class FaultToleranceMiddleware:
    """Middleware that answers refusals by 503 or 429 and time-outs by 504, and limits requests to their callers' time.

    It stands in ``MIDDLEWARE``, under WSGI and ASGI. It answers refusals of views and of middleware below it, so put it
    first, or below middleware that has to see every response. Other exceptions stay as they are; what Django would
    answer by 500 is a 504 once the request is late.

    The headers ``grpc-timeout`` and ``X-Request-Timeout-Ms`` state how long a request may take until its response
    begins. The setting ``FAULTTOLERANCE_LONGEST`` states how long at most, in milliseconds or as text, such as
    ``"5s"``.

    Raises:
        FaultToleranceDefinitionException: The setting is no duration.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        longest = getattr(conf.settings, "FAULTTOLERANCE_LONGEST", None)
        self._longest = longest_in_seconds("settings.FAULTTOLERANCE_LONGEST", longest)
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer one request."""
        if self._is_async:
            return self._answer(request)
        response = None
        try:
            with self._within(request):
                response = self._get_response(request)
        except TimeoutException as late:
            if response is None:  # a response that is there, if late, is sent
                response = _refuse(request, late)
        return response

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        response = None
        try:
            async with self._within(request):
                response = await self._get_response(request)
        except TimeoutException as late:
            if response is None:
                response = _refuse(request, late)
        return response

    def _within(self, request: Any) -> Any:
        return deadline_block(time_left(request.headers.get, self._longest))

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the answer to a view's exception that is a refusal or a time-out, or is too late."""
        answer = _refuse(request, exception)
        if answer is not None or isinstance(exception, _ANSWERED):
            return answer
        late = late_failure(exception)
        return None if late is None else _refuse(request, late)


def _refuse(request: Any, failure: Exception) -> Any:
    answer = answer_to(failure, request.headers.get("Accept", ""))
    return None if answer is None else HttpResponse(answer.body, status=answer.status, headers=answer.headers)
