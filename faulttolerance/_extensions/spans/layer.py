"""A span of OpenTelemetry for each attempt, if ``configure(tracing="spans")`` is set (rule O1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from ..._call.bound_policies import NUMBER
from ..._deadline.threads.roles import CALLER, register
from ..._deadline.uninterruptible import undisturbed
from ..._event import error_type
from ..._log import log_guard_error
from ..._shown import escaped

_FAILED = "some of its spans are missing, because tracing failed"


def spanned(function: Callable[..., Any], name: str, is_awaited: bool) -> Callable[..., Any]:
    """Return *function* with a span for each call, a child of the current span (rule O1).

    Args:
        function: The function that each attempt calls.
        name: The name of the method, and of its spans.
        is_awaited: Whether an attempt awaits the function's result; if not, a span lasts until a returned future is
            done.
    """
    name = escaped(name)  # a text that cannot be encoded would end the export of a whole batch of spans

    @register(CALLER)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _Span(name, kwargs.pop(NUMBER, 1)) as span:
            span.result = function(*args, **kwargs)
            return span.result

    @register(CALLER)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with _Span(name, kwargs.pop(NUMBER, 1)):
            return await function(*args, **kwargs)

    return awaited if is_awaited else call


class _Span:
    """A block with one span, which is stored before it is started: a signal handler may raise at any moment."""

    def __init__(self, name: str, attempt: int) -> None:
        self._name = name
        self._attempt = attempt
        self._span: Any = None
        self._detach: Callable[[], object] = bool
        self.result: object = None

    def __enter__(self) -> Self:
        """Start the span, and make it current."""
        from opentelemetry import context, trace

        attributes: dict[str, str | int] = {"ft.method": self._name, "ft.attempt": self._attempt}
        try:
            with undisturbed():  # a deadline would leave the span started, and current
                self._span = trace.get_tracer("faulttolerance").start_span(self._name, attributes=attributes)
                self._detach = partial(context.detach, context.attach(trace.set_span_in_context(self._span)))
        except Exception as error:  # noqa: BLE001  # of a sampler or a processor
            log_guard_error(self._name, _FAILED, error)
        except BaseException as error:
            self.__exit__(None, error)
            raise
        return self

    def __exit__(self, _: object, failure: BaseException | None, *trace: object) -> None:
        """Restore the previous current span, and end this span unless a future is still pending."""
        detach, self._detach = self._detach, bool
        try:
            with undisturbed():
                detach()
                listen = getattr(self.result, "add_done_callback", None)
                if failure is None and callable(listen):
                    listen(self._end_with)
                else:
                    self._end(failure)
        except Exception as error:  # noqa: BLE001  # of a processor, or of an attribute of the result
            log_guard_error(self._name, _FAILED, error)

    def _end_with(self, future: Any) -> None:
        try:
            failure = future.exception()
        except BaseException as error:  # noqa: BLE001  # including a cancellation
            failure = error
        self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        if failure is not None:
            from opentelemetry.trace import StatusCode

            span.set_attribute("error.type", error_type(failure))
            span.set_status(StatusCode.ERROR)  # without a description: messages belong to the application
        span.end()
