"""The records of the library in the log: no handler of the application changes a call."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import queue
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    Future,
    Guard,
    TimeoutException,
    asynchronous,
    before_retry,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    fallback,
    retry,
    sleep,
    timeout,
)
from faulttolerance._log import _failed
from faulttolerance.instrumentation import Event, set_event_sinks
from faulttolerance.policies import CircuitBreaker
from faulttolerance.testing import virtual_time


class Broken(logging.Handler):
    """A handler, or a filter, that finds no room left on the disk."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.asked += 1
        raise self.error

    def filter(self, record: logging.LogRecord) -> bool:
        self.emit(record)
        return True


@pytest.fixture
def library() -> Iterator[logging.Logger]:
    """Yield the library's logger, at the lowest level."""
    found = logging.getLogger("faulttolerance")
    before = (found.level, list(found.handlers), list(found.filters), found.propagate)
    found.setLevel(logging.DEBUG)
    found.propagate = False
    _failed.clear()
    yield found
    found.setLevel(before[0])
    found.handlers[:], found.filters[:], found.propagate = before[1], before[2], before[3]


@pytest.fixture(params=["handler", "filter"])
def broken(request: pytest.FixtureRequest, library: logging.Logger) -> Broken:
    """A set-up of logging that raises at every record."""
    found = Broken(OSError("no space left on device"))
    if request.param == "handler":
        library.addHandler(found)
    else:
        library.addFilter(found)
    return found


def flaky(*outcomes: object) -> Callable[[], Any]:
    """Return a function that raises or returns one of *outcomes* after the other."""
    waiting = iter(outcomes)

    def function() -> object:
        outcome = next(waiting)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return function


def test_a_broken_log_keeps_no_call_from_recovering(broken: Broken) -> None:
    """Rule R10: a report changes no call."""
    call = retry(max_retries=2, jitter=0)(flaky(ConnectionError(), ConnectionError(), "done"))

    assert call() == "done"
    assert broken.asked >= 3


def test_a_failure_stays_the_failure_that_it_was(broken: Broken) -> None:
    """Time-outs, refusals and the last failure of a retry come out as they are."""

    @timeout(100)
    def slow() -> None:
        sleep(1)

    @bulkhead(1)
    def crowded(again: bool = True) -> None:
        if again:
            crowded(False)

    with virtual_time(), pytest.raises(TimeoutException):
        slow()
    with pytest.raises(BulkheadException):
        crowded()
    with pytest.raises(KeyError):
        retry(max_retries=1, jitter=0)(flaky(KeyError(), KeyError()))()

    assert broken.asked >= 4


def test_a_circuit_opens_and_a_fallback_is_asked_under_a_broken_log(broken: Broken) -> None:
    """Listeners and hooks that raise are logged; a log that raises as well changes nothing either."""

    def complain(*_: object) -> None:
        raise RuntimeError("the listener")

    def tell(event: Event) -> None:
        raise RuntimeError("the sink")

    set_event_sinks([tell])
    circuit_breakers.on_state_change("unlogged", complain)

    @fallback(lambda context: "aside")
    @circuit_breaker_name("unlogged")
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0)
    @before_retry(complain)
    @retry(max_retries=1, jitter=0)
    def function() -> str:
        raise ConnectionError

    assert function() == "aside"
    assert circuit_breakers.state("unlogged") == "open"
    assert broken.asked >= 3


def test_asynchronous_calls_reach_their_end_under_a_broken_log(broken: Broken) -> None:
    """They run on the thread of an event loop, in its tasks, and on threads of the pool."""
    outcomes = flaky(
        ConnectionError(), "loop", ConnectionError(), "task", ConnectionError(), "thread", OSError(), "slow"
    )

    @retry(max_retries=1, jitter=0)
    async def coroutine() -> Any:
        return outcomes()

    @asynchronous
    @retry(max_retries=1, jitter=0)
    async def task() -> Any:
        return outcomes()

    @asynchronous
    @retry(max_retries=1, jitter=0)
    def offloaded() -> Future[Any]:
        return outcomes()  # type: ignore[no-any-return]

    @retry(max_retries=1, delay=1, jitter=0)
    def holds_up_the_loop() -> Any:
        return outcomes()

    async def run() -> list[Any]:
        return [await coroutine(), await task(), await offloaded(), holds_up_the_loop()]

    assert asyncio.run(run()) == ["loop", "task", "thread", "slow"]
    assert broken.asked >= 8


def test_a_configuration_is_in_force_under_a_broken_log(broken: Broken) -> None:
    """A record says that a switch is ignored until a restart; it has no other effect."""
    call = retry(max_retries=3, jitter=0)(flaky(ConnectionError(), "done", ConnectionError(), "never"))
    assert call() == "done"

    configure(properties={"MP_Fault_Tolerance_NonFallback_Enabled": "false", "Retry/maxRetries": 0})

    with pytest.raises(ConnectionError):
        call()


def test_an_exception_of_the_log_is_shown_once(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    """The standard library shows an exception of a handler so: on standard error."""
    call = retry(max_retries=2, jitter=0)(flaky(ConnectionError(), ConnectionError(), "done"))
    call()

    shown = capsys.readouterr().err
    assert shown.count("no space left on device") == 1
    assert "the logger 'faulttolerance'" in shown


def test_control_flow_of_a_handler_passes(library: logging.Logger) -> None:
    """Ctrl-C ends the program, also during a record."""
    library.addHandler(Broken(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        retry(max_retries=2, jitter=0)(flaky(ConnectionError(), "never"))()


def test_a_sink_whose_interest_fails_gets_the_event(library: logging.Logger) -> None:
    """Neither the question to a sink nor its failure decides a call."""
    told: list[Event] = []

    class Sink:
        def interest(self, kind: type[Event], others: Callable[[Any], bool]) -> Callable[[Any], bool]:
            raise OSError

        def __call__(self, event: Event) -> None:
            told.append(event)

    set_event_sinks([Sink(), Sink()])

    assert retry(max_retries=1, jitter=0)(flaky(ConnectionError(), "done"))() == "done"
    assert len(told) == 4


class Kept(logging.Handler):
    """A handler that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def records_of_a_recovery(library: logging.Logger) -> int:
    """Return the number of records of a call that recovers: two at the lowest level."""
    kept = Kept()
    library.addHandler(kept)
    assert retry(max_retries=1, jitter=0)(flaky(ConnectionError(), "done"))() == "done"
    library.removeHandler(kept)
    return len(kept.records)


@pytest.mark.parametrize(
    ("of_library", "of_all", "off", "records"),
    [
        (logging.DEBUG, logging.ERROR, logging.NOTSET, 2),
        (logging.NOTSET, logging.ERROR, logging.NOTSET, 0),
        (logging.NOTSET, logging.DEBUG, logging.NOTSET, 2),
        (logging.NOTSET, logging.DEBUG, logging.DEBUG, 0),
        (logging.ERROR, logging.DEBUG, logging.NOTSET, 0),
        (logging.NOTSET, logging.NOTSET, logging.NOTSET, 2),
    ],
)
def test_levels_are_looked_at_each_time(
    library: logging.Logger, of_library: int, of_all: int, off: int, records: int
) -> None:
    """An operator changes the level while the program runs, of the library or of all loggers."""
    root = logging.getLogger()
    before = root.level, root.manager.disable
    assert records_of_a_recovery(library) == 2
    try:
        library.setLevel(of_library)
        root.setLevel(of_all)
        logging.disable(off)

        assert records_of_a_recovery(library) == records
    finally:
        root.setLevel(before[0])
        logging.disable(before[1])


class Sending(logging.Handler):
    """A handler that sends each line over a connection that is down; it is guarded, as such code should be."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.under_way: list[Future[None]] = []

    @retry(max_retries=1, jitter=0)
    def send(self, line: str) -> None:
        self.sent.append(line)
        raise ConnectionError

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.send(record.getMessage())
        except ConnectionError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        pass


class SendingAside(Sending):
    """A sending handler on a thread of the pool."""

    @asynchronous
    @retry(max_retries=1, jitter=0)
    def send(self, line: str) -> Future[None]:  # type: ignore[override]
        self.sent.append(line)
        raise ConnectionError

    def emit(self, record: logging.LogRecord) -> None:
        self.under_way.append(self.send(record.getMessage()))  # type: ignore[func-returns-value]


@pytest.fixture
def application(library: logging.Logger) -> Iterator[logging.Logger]:
    """Yield the application's logger, whose handlers get the library's records, too."""
    library.propagate = True
    library.setLevel(logging.WARNING)
    root = logging.getLogger()
    before = list(root.handlers)
    yield logging.getLogger("an application")
    root.handlers[:] = before


@pytest.mark.parametrize("kind", [Sending, SendingAside])
def test_a_guarded_handler_does_not_log_itself_to_death(kind: type[Sending], application: logging.Logger) -> None:
    """The lost line is reported once; the loss of that report is not."""
    handler = kind()
    logging.getLogger().addHandler(handler)

    application.warning("one line")
    for call in handler.under_way:  # it grows meanwhile
        call.exception(timeout=20)

    assert len(handler.sent) == 4
    assert handler.sent[:2] == ["one line"] * 2
    assert all("gave up after attempt 2" in line for line in handler.sent[2:])


def test_a_guarded_handler_behind_a_queue_does_not_log_without_end(application: logging.Logger) -> None:
    """Another thread handles the library's records there."""
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    handler = Sending()
    listener = logging.handlers.QueueListener(lines, handler)
    logging.getLogger().addHandler(logging.handlers.QueueHandler(lines))

    application.warning("one line")
    for _ in range(5):
        if lines.empty():
            break
        listener.handle(lines.get())

    assert len(handler.sent) == 4
    assert lines.empty()


def test_a_call_after_a_record_is_logged_again(application: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """The library is silent only while a record of its own is handled."""
    handler = Sending()
    logging.getLogger().addHandler(handler)

    for _ in range(2):
        with pytest.raises(ConnectionError):
            retry(max_retries=0)(flaky(ConnectionError()))()

    assert len(caplog.records) == 2


def test_a_name_of_many_lines_stays_on_the_line_of_its_record(caplog: pytest.LogCaptureFixture) -> None:
    """A name may come from a tenant: it writes no lines of its own. The fields have it unchanged."""
    guard = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=1, failure_ratio=1.0), name="a\r\nERROR: b")
    with caplog.at_level(logging.DEBUG, "faulttolerance"), pytest.raises(ZeroDivisionError):
        guard.call(divmod, 1, 0)
    guard.close()
    record = next(record for record in caplog.records if "opened" in record.getMessage())

    assert record.getMessage().startswith(r"a\r\nERROR: b: circuit breaker opened")
    assert vars(record)["ft_method"] == guard.name
    assert not any({*"\r\n"} & {*record.getMessage()} for record in caplog.records)


def test_a_record_keeps_no_variable_of_a_function_that_is_named_as_a_method_of_handlers(
    application: logging.Logger,
) -> None:
    """The worker of a service may be such a function, which runs until its end."""

    def handle() -> object:
        message = Broken(OSError())
        kept = weakref.ref(message)
        with pytest.raises(ConnectionError):
            retry(max_retries=0)(flaky(ConnectionError()))()
        del message
        return kept()

    assert handle() is None
