"""Events: their listeners, their threads, and calls that they do not change."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import baggage, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Future,
    Guard,
    RateLimitException,
    TimeoutException,
    asynchronous,
    bulkhead,
    circuit_breaker,
    configure,
    fallback,
    rate_limit,
    retry,
    sleep,
    timeout,
)
from faulttolerance._telemetry import description
from faulttolerance.instrumentation import (
    Event,
    FallbackApplied,
    GaveUp,
    LimitChanged,
    Recovered,
    Rejected,
    RetryScheduled,
    StateChanged,
    TimedOut,
    get_event_sinks,
    set_event_sinks,
)
from faulttolerance.policies import Retry
from faulttolerance.testing import virtual_time
from kit.program import python


@pytest.fixture
def events() -> list[Event]:
    """Yield the list of all events."""
    found: list[Event] = []
    set_event_sinks([found.append])
    return found


@pytest.fixture
def spans() -> Iterator[tuple[Any, InMemorySpanExporter]]:
    """Yield a tracer, and the exporter of its spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("tests"), exporter
    provider.shutdown()


class Flaky:
    """A service that fails a given number of times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("secret")
        return "done"


def test_retries_and_the_recovery_are_events(events: list[Event]) -> None:
    """Each event names the attempt that failed, the delay and the failure."""
    call = retry(max_retries=3, delay=10, jitter=0)(Flaky(2))
    with virtual_time():
        call()

    first, second, last = events
    assert isinstance(first, RetryScheduled)
    assert (first.attempt, first.delay, type(first.failure)) == (1, 0.01, OSError)
    assert isinstance(second, RetryScheduled)
    assert second.attempt == 2
    assert isinstance(last, Recovered)
    assert last.attempts == 3


def test_giving_up_says_why(events: list[Event]) -> None:
    """The event has the reason, the number of attempts, and the failure that the caller gets."""
    call = retry(max_retries=1, jitter=0)(Flaky(9))
    with pytest.raises(OSError, match="secret") as caught:
        call()

    (last,) = [event for event in events if isinstance(event, GaveUp)]
    assert (last.attempts, last.reason) == (2, "max_retries reached")
    assert last.failure is caught.value


def test_time_out_is_an_event(events: list[Event]) -> None:
    """The event has the limit that passed."""

    @timeout(100)
    def slow() -> None:
        sleep(1)

    with virtual_time(), pytest.raises(TimeoutException):
        slow()

    (event,) = events
    assert isinstance(event, TimedOut)
    assert (event.attempt, event.limit) == (1, 0.1)


def test_rejections_say_by_which_policy(events: list[Event]) -> None:
    """Only the guard that refused reports it, not the guards that its exception passes through."""

    @rate_limit(1, window=1000)
    def limited() -> None: ...

    @bulkhead(1)
    def nested() -> None:
        with pytest.raises(BulkheadException):
            nested()
        limited()

    @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0)
    def broken() -> None:
        raise ValueError

    nested()
    with pytest.raises(RateLimitException):
        nested()
    with pytest.raises(ValueError):
        broken()
    with pytest.raises(CircuitBreakerOpenException):
        broken()

    rejected = [event for event in events if isinstance(event, Rejected)]
    assert [event.policy for event in rejected] == ["Bulkhead", "Bulkhead", "RateLimit", "CircuitBreaker"]


def test_state_changes_and_fallbacks_are_events(events: list[Event]) -> None:
    """The states are those of ``circuit_breakers.state``."""

    @fallback(lambda context: "instead")
    @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0)
    def broken() -> str:
        raise ValueError

    assert broken() == "instead"

    changed, applied = events
    assert isinstance(changed, StateChanged)
    assert (changed.old, changed.new) == ("closed", "open")
    assert isinstance(applied, FallbackApplied)
    assert isinstance(applied.failure, ValueError)


def test_only_a_fallback_that_is_called_is_an_event(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """FB1: not a method for other failures, and not a method that does not exist."""

    class Client:
        @fallback("for_keys", "for_all")
        def service(self) -> str:
            raise ValueError

        @fallback("for_keys", "for_all")
        async def awaited(self) -> str:
            raise ValueError

        def for_keys(self, failure: KeyError) -> str:
            return "a key"

        def for_all(self, failure: Exception) -> str:
            return "instead"

    client = Client()
    assert client.service() == asyncio.run(client.awaited()) == "instead"
    assert [type(event) for event in events] == [FallbackApplied] * 2

    events.clear()
    monkeypatch.delattr(Client, "for_all")
    with pytest.raises(FaultToleranceDefinitionException):
        client.service()
    assert not events


def test_a_call_without_trouble_has_no_event(events: list[Event]) -> None:
    """A healthy call pays nothing for events."""

    @retry
    @timeout
    @circuit_breaker
    @bulkhead
    def smooth() -> None: ...

    for _ in range(10):
        smooth()

    assert events == []


def test_control_flow_is_no_giving_up(events: list[Event]) -> None:
    """Rule R0: an interrupted call did not fail."""

    @retry
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert events == []


def test_sink_that_raises_is_logged_once_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The other sinks get the event all the same, and the outcome of the call is the same."""
    found: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("the sink")

    set_event_sinks([broken, found.append])
    call = retry(max_retries=3, jitter=0)(Flaky(3))

    assert call() == "done"
    assert len(found) == 4
    assert len([record for record in caplog.records if "an event sink failed" in record.message]) == 1


def test_sink_may_call_the_breaker_of_its_event() -> None:
    """No lock is held while a sink runs."""
    from faulttolerance import circuit_breaker_name, circuit_breakers

    states = []

    def look(event: Event) -> None:
        if isinstance(event, StateChanged):
            states.append(circuit_breakers.state("watched"))

    set_event_sinks([look])

    @circuit_breaker_name("watched")
    @circuit_breaker(request_volume_threshold=1, failure_ratio=1.0)
    def broken() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        broken()

    assert states == ["open"]


@pytest.mark.parametrize("is_offloaded", [False, True])
def test_sink_gets_no_event_of_its_own_calls_and_others_do(is_offloaded: bool) -> None:
    """A guarded sink whose connection is down would cause events without end."""
    sent, heard = [], []

    @retry(max_retries=1, jitter=0)
    def send(event: Event) -> Future[None]:
        sent.append(type(event))
        raise ConnectionError

    guarded = asynchronous(send) if is_offloaded else send
    under_way = []
    set_event_sinks([lambda event: under_way.append(guarded(event)), lambda event: heard.append(event.method)])
    for _ in range(2):
        assert retry(max_retries=1, jitter=0)(Flaky(1))() == "done"
    for call in under_way:
        assert isinstance(call.exception(20), ConnectionError)

    assert Counter(sent) == {RetryScheduled: 4, Recovered: 4}
    assert len([method for method in heard if method.endswith("send")]) == 8


def test_default_sinks_come_back() -> None:
    """``None`` undoes a setting."""
    default = get_event_sinks()
    set_event_sinks([])
    assert get_event_sinks() == ()
    set_event_sinks(None)

    assert get_event_sinks() == default
    assert len(default) == 2


# Logging


def test_log_records_have_levels_and_fields_and_no_arguments(caplog: pytest.LogCaptureFixture) -> None:
    """Attempts are at DEBUG, the end and an opening circuit at WARNING; neither arguments nor messages are in it."""
    caplog.set_level(logging.DEBUG, "faulttolerance")

    @retry(max_retries=1, jitter=0)
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
    def charge(card: str) -> None:
        raise OSError(card)

    with pytest.raises(OSError):
        charge("a secret")

    levels = [(record.levelname, record.message.split(": ", 1)[1].split(" (")[0]) for record in caplog.records]
    assert levels == [
        ("DEBUG", "attempt 1 failed"),
        ("WARNING", "circuit breaker opened: 2 of 2 failed, last OSError, next probe in 5 s"),
        ("WARNING", levels[2][1]),
    ]
    assert "gave up after attempt 2" in levels[2][1]
    assert not any("a secret" in str(vars(record)) for record in caplog.records)
    last = vars(caplog.records[-1])
    assert (last["ft_attempt"], last["ft_stop_reason"]) == (2, "max_retries reached")
    assert (last["ft_error_type"], last["ft_method"]) == ("OSError", f"{__name__}.{charge.__qualname__}")


def test_failure_that_is_not_retried_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Such a failure is the application's answer, and as frequent as its users are."""

    @retry(abort_on=KeyError)
    def find() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        find()

    assert caplog.records == []


def test_an_open_circuit_is_not_logged_for_every_call(caplog: pytest.LogCaptureFixture) -> None:
    """The log has its opening; calls that it refuses are as frequent as all calls."""

    @retry(max_retries=1, jitter=0)
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
    def charge() -> None:
        raise OSError

    with pytest.raises(OSError):
        charge()
    caplog.clear()

    for _ in range(3):
        with pytest.raises(CircuitBreakerOpenException):
            charge()

    assert caplog.records == []


# Tracing


def test_events_stand_on_the_current_span(spans: tuple[Any, InMemorySpanExporter]) -> None:
    """A trace shows each attempt, with its delay and its failure."""
    tracer, exporter = spans
    call = retry(max_retries=1, delay=10, jitter=0)(Flaky(9))
    with virtual_time(), tracer.start_as_current_span("order"), pytest.raises(OSError, match="secret"):
        call()

    (span,) = exporter.get_finished_spans()
    told = [(event.name, dict(event.attributes)) for event in span.events if event.name.startswith("ft.")]
    assert [name for name, _ in told] == ["ft.retry", "ft.give_up"]
    assert told[0][1]["ft.attempt"] == 1
    assert told[0][1]["ft.delay"] == 0.01
    assert told[0][1]["error.type"] == "OSError"
    assert told[1][1]["ft.stop_reason"] == "max_retries reached"


def test_the_fall_of_a_limit_is_an_event_in_log_and_trace(
    caplog: pytest.LogCaptureFixture, spans: tuple[Any, InMemorySpanExporter]
) -> None:
    """By rule A2: a fall is reported once for all calls that were late together."""
    tracer, exporter = spans
    events: list[Event] = []
    set_event_sinks([*get_event_sinks(), events.append])

    @bulkhead(4, latency=250)
    def late() -> None:
        sleep(1)

    with virtual_time(), caplog.at_level("DEBUG", "faulttolerance"), tracer.start_as_current_span("request"):
        for _ in range(5):
            late()

    name = f"{late.__module__}.{late.__qualname__}"
    assert events == [LimitChanged(name, 4, 1)]
    (record,) = caplog.records
    assert record.getMessage() == f"{name}: limit lowered to 1, was 4"
    assert (record.ft_limit_old, record.ft_limit_new) == (4, 1)  # type: ignore[attr-defined]
    (span,) = exporter.get_finished_spans()
    (event,) = span.events
    assert event.name == "ft.bulkhead.limit"
    assert dict(event.attributes or {}) == {"ft.method": name, "ft.limit.old": 4, "ft.limit.new": 1}


def test_span_that_does_not_record_gets_nothing() -> None:
    """A call without a span is normal, and has nowhere to write its events."""
    call = retry(max_retries=1, jitter=0)(Flaky(1))

    assert call() == "done"


def test_a_context_may_hold_more_than_a_span_that_records(spans: tuple[Any, InMemorySpanExporter]) -> None:
    """Neither baggage nor the span of a caller elsewhere takes an event, and a span that records beside them does."""
    tracer, exporter = spans
    caller = trace.NonRecordingSpan(trace.SpanContext(1, 1, is_remote=True, trace_flags=trace.TraceFlags(1)))
    held = baggage.set_baggage("tenant", "acme")
    for context in (held, trace.set_span_in_context(caller, held)):
        token = attach(context)
        try:
            assert retry(max_retries=1, jitter=0)(Flaky(1))() == "done"
            with tracer.start_as_current_span("request"):
                assert retry(max_retries=1, jitter=0)(Flaky(1))() == "done"
        finally:
            detach(token)

    names = [[event.name for event in span.events] for span in exporter.get_finished_spans()]
    assert names == [["ft.retry", "ft.recovery"]] * 2


def test_a_replaced_function_for_the_current_context_is_asked(
    spans: tuple[Any, InMemorySpanExporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of an application may replace it at any time, as it may replace the function for the current span."""
    tracer, exporter = spans
    assert retry(max_retries=1, jitter=0)(Flaky(1))() == "done"
    with tracer.start_span("request") as span:
        monkeypatch.setattr("opentelemetry.context.get_current", lambda: trace.set_span_in_context(span, Context()))
        assert retry(max_retries=1, jitter=0)(Flaky(1))() == "done"

    names = [[event.name for event in span.events] for span in exporter.get_finished_spans()]
    assert names == [["ft.retry", "ft.recovery"]]


@pytest.mark.parametrize("way", ["def", "async def", "on a thread"])
@pytest.mark.parametrize("ending", ["done", "refused", "timed out", "given up", "replaced"])
def test_a_call_asks_once_for_a_span_where_none_records(monkeypatch: pytest.MonkeyPatch, way: str, ending: str) -> None:
    """The answer is the same for the whole call, and the look-up takes long."""
    asked = []
    monkeypatch.setattr(trace, "get_current_span", lambda: asked.append(1) or trace.INVALID_SPAN)

    def body():  # type: ignore[no-untyped-def]  # whatever way it is called
        attempts.append(1)
        if ending == "timed out":
            sleep(1)
        if ending != "done" or len(attempts) < 3:
            raise OSError
        return "done"

    attempts: list[int] = []
    target = body
    if way == "async def":

        async def target() -> str:  # type: ignore[misc]
            if ending == "timed out":
                await asyncio.sleep(1)
            return body()

    guarded = retry(max_retries=2, jitter=0)(timeout(100)(target))
    if ending == "refused":
        guarded = circuit_breaker(request_volume_threshold=2)(guarded)
    if ending == "replaced":
        guarded = fallback(lambda context: "instead")(guarded)
    if way == "on a thread":
        guarded = asynchronous(guarded)

    def call() -> None:
        with suppress(OSError, TimeoutException, CircuitBreakerOpenException):
            result: Any = guarded()
            if way == "async def":
                clock.run(result)
            elif way == "on a thread":
                result.result()

    with virtual_time() as clock:
        if ending == "refused":
            call()  # opens the circuit, which is told besides
            asked.clear()
        call()

    assert len(asked) == 1


def test_a_call_whose_events_are_logged_asks_once_for_a_span_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each event is made for the log then; the tracer gets only the first one."""
    asked = []
    monkeypatch.setattr(trace, "get_current_span", lambda: asked.append(1) or trace.INVALID_SPAN)

    with caplog.at_level("DEBUG", "faulttolerance"):
        retry(max_retries=2, jitter=0)(Flaky(2))()

    assert len(caplog.records) == 3
    assert len(asked) == 1


def test_sinks_are_asked_once_for_each_event() -> None:
    """A sink without interest in an event does not get it, nor is it asked about a recovery from unheard retries."""
    asked = []

    class Deaf:
        def interest(self, kind: type[Event], others: Callable[[Any], bool]) -> Callable[[Any], bool]:
            return lambda call: asked.append(kind) or others(call)  # type: ignore[func-returns-value]

        def __call__(self, event: Event) -> None:
            pytest.fail(f"told of {event}")

    set_event_sinks([Deaf()])

    retry(max_retries=2, jitter=0)(Flaky(2))()

    assert asked == [RetryScheduled, RetryScheduled]


def test_a_sink_goes_when_it_is_replaced(uncollected: None) -> None:
    """Its questions do not keep it until a garbage collection, which some services never make."""

    class Choosy:
        def interest(self, kind: type[Event], others: Callable[[Any], bool]) -> Callable[[Any], bool]:
            return lambda call: self is not None

        def __call__(self, event: Event) -> None: ...

    sink = Choosy()
    seen = weakref.ref(sink)
    set_event_sinks([sink])
    retry(max_retries=1, jitter=0)(Flaky(1))()
    set_event_sinks(None)
    del sink

    assert seen() is None


@pytest.mark.parametrize(("logged", "traced"), [(False, False), (False, True), (True, False), (True, True)])
def test_text_is_made_only_for_a_log_or_a_span_that_records(
    spans: tuple[Any, InMemorySpanExporter], monkeypatch: pytest.MonkeyPatch, logged: bool, traced: bool
) -> None:
    """The log needs no text for a span that records, and the span none for a log that is on."""
    texts: list[str] = []

    def describe(event: Event) -> Any:
        texts.append(sys._getframe(1).f_code.co_name)
        return description.describe(event)

    monkeypatch.setattr("faulttolerance._telemetry.event_sinks.describe", describe)
    call = retry(max_retries=1, jitter=0)(Flaky(9))
    library = logging.getLogger("faulttolerance")
    library.setLevel(logging.DEBUG if logged else logging.CRITICAL)
    try:
        with spans[0].start_as_current_span("order") if traced else nullcontext(), suppress(OSError):
            call()
    finally:
        library.setLevel(logging.NOTSET)

    assert texts == [*["log"] * logged, *["trace"] * traced] * 2


def test_a_block_asks_again_for_the_span_of_each_attempt(spans: tuple[Any, InMemorySpanExporter]) -> None:
    """The application may begin a span between two of them."""
    tracer, exporter = spans
    guard = Guard(retry=Retry(max_retries=2, jitter=0))
    with suppress(OSError):
        for attempt in guard.attempts():
            with tracer.start_as_current_span("try") if attempt.number > 1 else nullcontext(), attempt:
                raise OSError

    told = [[event.name for event in span.events] for span in exporter.get_finished_spans()]
    assert told == [["ft.retry"], ["ft.give_up", "exception"]]


def test_tracing_can_be_switched_off(spans: tuple[Any, InMemorySpanExporter]) -> None:
    """``configure`` does so at any time."""
    tracer, exporter = spans
    configure(tracing=False)
    with tracer.start_as_current_span("order"):
        retry(max_retries=1, jitter=0)(Flaky(1))()
    configure(tracing=True)
    with tracer.start_as_current_span("order"):
        retry(max_retries=1, jitter=0)(Flaky(1))()

    assert [len(span.events) for span in exporter.get_finished_spans()] == [0, 2]


@pytest.mark.outside
def test_tracing_can_be_switched_off_by_the_environment() -> None:
    """The variable is read when a program begins; ``validate`` does not report it as an unused key."""
    program = (
        "from faulttolerance.instrumentation import get_event_sinks\n"
        "from faulttolerance import validate\n"
        "print(len(get_event_sinks()), validate())"
    )
    done = python(program, environment={**os.environ, "FAULTTOLERANCE_TRACING": "false"})

    assert (done.stdout.strip(), done.stderr) == ("1 []", "")
