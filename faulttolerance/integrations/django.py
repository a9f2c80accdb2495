"""Refusals, time-outs and deadlines of requests in Django; and no retry inside an ``atomic`` block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django import conf  # type: ignore[import-untyped]
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation  # type: ignore[import-untyped]
from django.db import connections  # type: ignore[import-untyped]
from django.http import Http404, HttpRequest, HttpResponse  # type: ignore[import-untyped]
from django.http.multipartparser import MultiPartParserError  # type: ignore[import-untyped]

from .. import TimeoutException
from ..typing import ExceptionSet
from ._inbound import deadline_block, late_failure, longest_in_seconds, time_left
from ._refusals import answer_to
from ._transactions import Failures, failures, refuse_retries

__all__ = ["FaultToleranceMiddleware", "install"]

_ANSWERED = (BadRequest, Http404, MultiPartParserError, PermissionDenied, SuspiciousOperation)
"""Exceptions that Django answers by less than 500."""

_not_retried: list[Failures] = []
"""The failures after which no attempt follows inside an ``atomic`` block, once they were declared."""


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


def install(*, no_retry_on: ExceptionSet = Exception) -> None:
    """Forbid further attempts of any guard while an ``atomic`` block is open on this thread, of any database.

    The effects of a failed attempt are still in the transaction, and another attempt would repeat them; after an error
    of the database the transaction accepts no more queries at all. The failure propagates at once, with a note that
    explains this, and leaves the block, which rolls back. Call the function once, as in ``AppConfig.ready``; the last
    call counts. The block that ``TestCase`` puts around each test does not count.

    Args:
        no_retry_on: The failures that this concerns: ``django.db.Error`` for those of databases alone, ``()`` for none.

    Raises:
        FaultToleranceDefinitionException: If *no_retry_on* is no set of exceptions.
    """
    given = failures("install(no_retry_on)", no_retry_on)
    if not _not_retried:
        refuse_retries("an atomic block of Django", _is_open)
    _not_retried[:] = [given]


def _is_open(failure: BaseException) -> bool:
    return isinstance(failure, _not_retried[0]) and any(map(_is_in_block, connections.all(initialized_only=True)))


def _is_in_block(connection: Any) -> bool:
    # ``in_atomic_block`` is true of the block around a test, too.
    return any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
