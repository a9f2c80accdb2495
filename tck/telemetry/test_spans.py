"""A child span for each attempt, where it is configured (rule O1)."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from faulttolerance import (
    FaultToleranceDefinitionException,
    Future,
    Guard,
    RateLimitException,
    TimeoutException,
    asynchronous,
    completed_future,
    configure,
    fallback,
    retry,
    sleep,
    testing,
    timeout,
    validate,
)
from faulttolerance.policies import RateLimit, Retry
from faulttolerance.testing import virtual_time
from kit import VirtualClock
from kit.scenario import Differs
from kit.scenarios import SCENARIOS
from kit.ways import WAYS, Run, Way


class Traced:
    """A tracer, and the spans that ended."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.provider = provider
        self.span: Callable[[str], Any] = provider.get_tracer("tests").start_as_current_span
        self._exporter = exporter

    @property
    def spans(self) -> list[ReadableSpan]:
        return [*self._exporter.get_finished_spans()]

    def attempts(self, name: str) -> list[tuple[Any, StatusCode]]:
        """Return the numbers and the outcomes of the spans called *name*."""
        return [(number_of(span), span.status.status_code) for span in self.spans if span.name == name]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int:
    return span.parent.span_id if span.parent is not None else 0


def number_of(span: ReadableSpan) -> Any:
    return (span.attributes or {})["ft.attempt"]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)  # in place of a provider of the whole process
    configure(tracing="spans")
    yield Traced(provider, exporter)
    testing.reset()
    provider.shutdown()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_each_attempt_is_a_span(way: Way, traced: Traced) -> None:
    """The span has the method's name, its number and its failure, in every way of calling."""

    async def fails_twice(run: Run) -> str:
        if run.attempts < 3:
            raise ConnectionError("a secret")
        return "done"

    with virtual_time() as virtual, traced.span("order"):
        run = Run(way, VirtualClock(virtual), lambda run: {"retry": {"max_retries": 3, "jitter": 0}}, fails_twice)
        run.drive(Run.call)

    *attempts, order = traced.spans
    assert [(span.name, dict(span.attributes or {})) for span in attempts] == [
        (run.name, {"ft.method": run.name, "ft.attempt": 1, "error.type": "ConnectionError"}),
        (run.name, {"ft.method": run.name, "ft.attempt": 2, "error.type": "ConnectionError"}),
        (run.name, {"ft.method": run.name, "ft.attempt": 3}),
    ]
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert "a secret" not in repr([(span.status.description, span.events) for span in attempts])
    assert {parent_of(span) for span in attempts} == {id_of(order)}


def test_a_fallback_method_after_spans_of_retries_gets_the_arguments_of_the_call(traced: Traced) -> None:
    class Service:
        @retry(max_retries=2, delay=0, jitter=0)
        @fallback(fallback_method="instead")
        def load(self, number: int) -> int:
            raise OSError("down")

        def instead(self, number: int) -> int:
            return -number

    assert Service().load(number=7) == -7
    assert len(traced.spans) == 3


@pytest.mark.parametrize("name", list(SCENARIOS)[::4])
def test_spans_change_no_outcome(name: str, traced: Traced) -> None:
    """Outcomes, attempts, counts and the log are those of a call without spans, in each way of calling."""
    scenario = SCENARIOS[name]
    policies = scenario.policies(Run(WAYS[0], None, lambda _: {}, scenario.body))  # type: ignore[arg-type]

    def drive(way: Way, tracing: str) -> Run:
        testing.reset()
        configure(tracing=tracing)
        with virtual_time() as virtual:
            return Run(way, VirtualClock(virtual), scenario.policies, scenario.body).drive(scenario.scene)

    for way in WAYS[:4]:
        if way.takes(policies):
            with_spans, without = drive(way, "spans"), drive(way, "events")
            differs = scenario.difference(way) or Differs("")
            for aspect in {"outcomes", "attempts", "left", "counts", "state", "log"}.difference(differs.leaves_out):
                assert getattr(with_spans, aspect) == getattr(without, aspect), (way.name, aspect)


def failing(when: str) -> SpanProcessor:
    """Return a processor whose method *when* raises."""

    def fail(*_: object, **__: object) -> None:
        raise OSError("no room for spans")

    processor = SpanProcessor()
    setattr(processor, when, fail)
    return processor


@pytest.mark.parametrize("when", ["on_start", "on_end"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_span_processor_that_raises_changes_no_outcome(
    way: Way, when: str, traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that succeeded is not made again."""
    caplog.set_level(logging.CRITICAL, "faulttolerance")  # a record would keep the guard, for tests that validate all

    async def fails_once(run: Run) -> str:
        if run.attempts < 2:
            raise ConnectionError
        return "done"

    traced.provider.add_span_processor(failing(when))
    with virtual_time() as virtual:
        run = Run(way, VirtualClock(virtual), lambda run: {"retry": {"max_retries": 3, "jitter": 0}}, fails_once)
        run.drive(Run.call)

    assert (run.outcomes, run.attempts) == ([("returned", "done")], 2)


def test_a_span_processor_that_raises_is_logged_once(traced: Traced, caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt would otherwise add the same record."""
    traced.provider.add_span_processor(failing("on_end"))

    @retry
    def unheard() -> int:
        return 1

    unheard()
    unheard()

    assert ["tracing failed" in record.message for record in caplog.records] == [True]


def test_spans_of_a_body_are_inside_the_span_of_its_attempt(traced: Traced) -> None:
    """Spans of clients are children of their attempt; a guarded call inside begins with its first attempt."""

    @retry(max_retries=1, jitter=0)
    def connect() -> None:
        with traced.span("socket"):
            pass

    @retry(max_retries=1, delay=0, jitter=0, retry_on=KeyError)
    def charge(moods: list[type[Exception] | None]) -> None:
        connect()
        if mood := moods.pop():
            raise mood

    charge([None, KeyError])

    spans = {id_of(span): span for span in traced.spans}
    paths = []
    for socket in traced.spans:
        if socket.name == "socket":
            connect_span = spans[parent_of(socket)]
            charge_span = spans[parent_of(connect_span)]
            paths.append((connect_span.name, number_of(connect_span), number_of(charge_span)))
    name = f"{__name__}.test_spans_of_a_body_are_inside_the_span_of_its_attempt.<locals>.connect"
    assert paths == [(name, 1, 1), (name, 1, 2)]


def test_a_span_lasts_until_the_future_is_done(traced: Traced) -> None:
    """A body may return before its work is over, and the work may fail after that."""
    future: Future[str] = Future()

    @asynchronous
    def later() -> Future[str]:
        return future

    waiting = later()
    assert traced.spans == []
    future.set_exception(ConnectionError())

    with pytest.raises(ConnectionError):
        waiting.result(5)
    assert [status for _, status in traced.attempts(f"{__name__}.{later.__qualname__}")] == [StatusCode.ERROR]


def test_an_interrupted_attempt_has_a_span_that_ends(traced: Traced) -> None:
    """The span is not left current: the next spans are children of the caller's again."""

    @timeout(100)
    def hang() -> None:
        sleep(60)

    with virtual_time(), traced.span("order"):
        with pytest.raises(TimeoutException):
            hang()
        with traced.span("after"):
            pass

    hung, after, order = traced.spans
    assert hung.status.status_code is StatusCode.ERROR
    assert parent_of(after) == id_of(order)


def test_an_attempt_that_is_refused_has_no_span(traced: Traced) -> None:
    """Its body does not run; the event is on the current span."""
    guard = Guard(rate_limit=RateLimit(1), retry=Retry(max_retries=1, jitter=0, delay=0), name="refuses")

    with traced.span("order"):
        guard.call(int)
        with pytest.raises(RateLimitException):
            guard.call(int)

    assert traced.attempts("refuses") == [(1, StatusCode.UNSET)]
    assert [event.name for event in traced.spans[-1].events] == [
        "ft.rejection",
        "ft.retry",
        "ft.rejection",
        "ft.give_up",
    ]
    guard.close()


def test_spans_come_and_go_with_the_configuration(traced: Traced) -> None:
    """The change holds at once, also for functions that were called before."""

    @retry
    def call() -> None: ...

    name = f"{__name__}.{call.__qualname__}"
    call()
    configure(tracing="events")
    call()
    configure(tracing="off")
    call()
    configure(tracing="spans")
    call()

    assert traced.attempts(name) == [(1, StatusCode.UNSET)] * 2


def test_a_body_that_catches_everything_ends_its_span(traced: Traced) -> None:
    """An attempt in a task that is cancelled ends with that task."""

    @asynchronous
    @timeout(50)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "late"

    async def main() -> None:
        with pytest.raises(TimeoutException):
            await stubborn()
        assert traced.spans == []
        await asyncio.sleep(2)

    with virtual_time() as clock:
        clock.run(main())

    assert traced.attempts(f"{__name__}.{stubborn.__qualname__}") == [(1, StatusCode.UNSET)]


@pytest.mark.parametrize("word", ["events", "spans", "off", "true", "False", ""])
def test_the_environment_switches_spans_on_too(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTTOLERANCE_TRACING", word)

    assert validate() == []


def test_spans_that_nothing_can_make_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install, and no setting changes."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    with pytest.raises(FaultToleranceDefinitionException, match=r"pip install \"faulttolerance\[opentelemetry\]\""):
        configure(tracing="spans")


def test_interruptions_leave_no_span_behind(traced: Traced) -> None:
    """No deadline at the beginning or the end of a span leaves one."""

    @timeout(1)
    def busy() -> None:
        for _ in range(50):
            with traced.span("inner"):
                pass

    for _ in range(100):
        with traced.span("order"), suppress(TimeoutException):
            busy()

    assert not trace.get_current_span().is_recording()
    assert len(traced.attempts(f"{__name__}.{busy.__qualname__}")) == 100


def test_a_completed_future_ends_its_span_at_once(traced: Traced) -> None:
    @asynchronous
    def now() -> Future[int]:
        return completed_future(1)

    assert now().result(5) == 1
    assert traced.attempts(f"{__name__}.{now.__qualname__}") == [(1, StatusCode.UNSET)]


@pytest.mark.parametrize("tracing", ["spans", "events"])
def test_a_guard_whose_name_no_encoding_can_write_has_spans_that_can_be_exported(tracing: str, traced: Traced) -> None:
    """A name of a file may hold such a character; exporters encode many spans at once."""
    configure(tracing=tracing)
    guard = Guard(retry=Retry(max_retries=1, delay=0, jitter=0), name="copy of \udce9t\u00e9")
    with traced.span("order"), suppress(ZeroDivisionError):
        guard.call(lambda: 1 / 0)
    guard.close()

    texts = [span.to_json(indent=None) for span in traced.spans]
    assert any(r"copy of \\udce9t" in text for text in texts)
    assert not any(r" \udce9" in text for text in texts)
