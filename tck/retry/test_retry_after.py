"""Failures that say how long to wait, and the delays that follow (rule T1)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import formatdate
from itertools import pairwise
from typing import Any, NoReturn

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    FaultToleranceException,
    Guard,
    circuit_breaker,
    explain,
    fallback,
    honor_retry_after,
    retry,
    retry_when,
)
from faulttolerance.policies import HonorRetryAfter, RateLimit, Retry, Timeout
from faulttolerance.testing import configured, virtual_time
from kit import Clock, Invoke


class Response:
    """The parts of a response that a failure of an HTTP client carries; false, as that of requests is."""

    def __init__(self, headers: Any) -> None:
        self.headers = headers

    def __bool__(self) -> bool:
        return False


class Busy(Exception):
    """The callee is busy."""

    def __init__(self, after: object = None, **attributes: Any) -> None:
        super().__init__(after)
        self.response = Response({"Retry-After": after} if after is not None else {})
        vars(self).update(attributes)


class Hostile:
    """Headers that raise."""

    def get(self, name: str) -> NoReturn:
        raise ZeroDivisionError("a mistake")


def attempts_of(
    invoke: Invoke,
    clock: Clock,
    failure: Callable[[], BaseException],
    honors: Callable[[Any], Any] = honor_retry_after,
    **parameters: Any,
) -> tuple[list[float], Any]:
    """Return the seconds between the attempts of a call that always fails, and its outcome."""
    began: list[float] = []

    @retry(**{"max_retries": 2, "jitter": 0, **parameters})
    @invoke.body
    async def service() -> None:
        began.append(clock.monotonic())
        raise failure()

    with pytest.raises(type(failure())) as raised:
        invoke(honors(service))
    return [round(later - sooner, 3) for sooner, later in pairwise(began)], raised.value


# Sources of the delay


def metadata(entry: str, value: bytes) -> Callable[[], Any]:
    return lambda: (("content-type", "application/grpc"), (entry, value))


def field(number: int, content: bytes) -> bytes:
    """A field of a message of protobuf."""
    return bytes([number << 3 | 2, len(content)]) + content


RETRY_INFO = field(1, b"\x08\x02\x10\x80\xca\xb5\xee\x01")  # 2 s and 500,000,000 ns
MINUS_ONE = b"\xff" * 9 + b"\x01"
STATUS = (
    b"\x08\x0e"
    + field(2, b"busy")
    + field(3, field(1, b"type.googleapis.com/google.rpc.Help") + field(2, b""))
    + field(3, field(1, b"type.googleapis.com/google.rpc.RetryInfo") + field(2, RETRY_INFO))
)


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (lambda: Busy("7"), 7),
        (lambda: Busy(" 1.5 "), 1.5),
        (lambda: Busy(3), 3),
        (lambda: Busy(b"4"), 4),
        (lambda: Busy(response=Response({"retry-after": "2"})), 2),
        (lambda: Busy(headers={"Retry-After": "6"}), 6),
        (lambda: Busy(response=None, headers={"Retry-After": "6"}), 6),
        (lambda: Busy(trailing_metadata=metadata("google.rpc.retryinfo-bin", RETRY_INFO)), 2.5),
        (lambda: Busy(trailing_metadata=metadata("grpc-status-details-bin", STATUS)), 2.5),
        (lambda: CircuitBreakerOpenException("open", 8.0), 8),
        (lambda: Busy("0"), 0.1),
        (lambda: Busy("-5"), 0.1),
        (lambda: Busy(trailing_metadata=metadata("google.rpc.retryinfo-bin", field(1, b"\x10" + MINUS_ONE))), 0.1),
        (lambda: Busy(), 0.1),
        (lambda: ConnectionError(), 0.1),
        (lambda: CircuitBreakerOpenException("open"), 0.1),
    ],
)
def test_the_delay_of_a_failure_replaces_a_shorter_one(
    failure: Callable[[], BaseException], seconds: float, invoke: Invoke, clock: Clock
) -> None:
    """Rule T1: by our refusals, headers of HTTP clients, gRPC's RetryInfo; failures that say less change nothing."""
    delays, _ = attempts_of(invoke, clock, failure, delay=100)

    assert delays == [seconds] * 2


def test_a_longer_delay_stays(invoke: Invoke, clock: Clock) -> None:
    """Rule T1: a declared delay that is longer holds."""
    assert attempts_of(invoke, clock, lambda: Busy("2"), delay=5000)[0] == [5, 5]


def test_a_date_is_compared_with_the_time_on_the_wall() -> None:
    """Rule T1: under virtual time the wall clock goes on from where the real one stood."""
    for usegmt in (True, False):
        with virtual_time() as clock:
            date = formatdate(time.time() + 2000, usegmt=usegmt)  # noqa: TID251
            clock.advance(500)
            began: list[float] = []

            @honor_retry_after(max_delay=0)
            @retry(max_retries=1, delay=0, jitter=0, max_duration=0)
            def service() -> None:
                began.append(clock.monotonic())  # noqa: B023
                raise Busy(date)  # noqa: B023

            with pytest.raises(Busy):
                service()

        assert 1495 < began[1] - began[0] < 1505


def test_a_refused_result_may_have_the_time_to_wait(invoke: Invoke, clock: Clock) -> None:
    """Rule T1: a response of 429 that was returned and not raised does so."""
    if invoke.convention == "offloaded":
        pytest.skip("the result of its policies is a future")
    began: list[float] = []

    @retry_when(result=lambda response: len(began) < 3)
    @honor_retry_after
    @retry(max_retries=3, delay=0, jitter=0)
    @invoke.body
    async def service() -> Response:
        began.append(clock.monotonic())
        return Response({"Retry-After": "5"})

    invoke(service)

    assert began[2] - began[0] == pytest.approx(10)


def test_a_rate_limit_of_our_own_is_waited_for(clock: Clock) -> None:
    """Rule T1: the refusal says when the next call is admitted, and that call is."""
    guard = Guard(
        retry=Retry(max_retries=1, delay=0, jitter=0),
        honor_retry_after=HonorRetryAfter(),
        rate_limit=RateLimit(1, window="3s"),
    )

    began = clock.monotonic()

    assert [guard.call(clock.monotonic) - began for _ in range(3)] == pytest.approx([0, 3, 6])


def test_jitter_never_goes_below_the_delay_of_a_failure(invoke: Invoke, clock: Clock) -> None:
    """Rule T1: callers with the same moment spread behind it."""
    delays, _ = attempts_of(invoke, clock, lambda: Busy("2"), delay=0, jitter=500, max_retries=20)

    assert min(delays) >= 2
    assert max(delays) <= 2.5
    assert len(set(delays)) > 10


@pytest.mark.parametrize(
    "hostile",
    ["nan", "inf", "1e400", "-1", "soon", "", "9" * 5000, "1_0", "٣", "Mon, 99 Foo 2020", "\x00", b"\xff\xfe"],
)
def test_a_hostile_header_never_replaces_the_failure(
    hostile: object, invoke: Invoke, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule T1: a header without seconds or a date counts as none, without an error in the log."""
    delays, failure = attempts_of(invoke, clock, lambda: Busy(hostile), delay=100)

    assert delays == ([] if hostile == "9" * 5000 else [0.1, 0.1])  # endless digits say more than is allowed
    assert type(failure) is Busy
    assert [one.exc_text for one in caplog.records if one.exc_info] == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"response": Response(Hostile())},
        {"response": Response(7)},
        {"trailing_metadata": lambda: 1 / 0},
        {"trailing_metadata": lambda: 7},
        {"trailing_metadata": lambda: None},
        *({"trailing_metadata": metadata("grpc-status-details-bin", STATUS[:end])} for end in range(len(STATUS))),
        {"trailing_metadata": metadata("grpc-status-details-bin", b"\xff" * 40)},
        {"trailing_metadata": metadata("google.rpc.retryinfo-bin", b"\x08\xff\xff\xff\xff\x7f")},
        {"trailing_metadata": metadata("google.rpc.retryinfo-bin", "text")},  # type: ignore[arg-type]
    ],
)
def test_a_failure_that_cannot_be_read_says_nothing(
    attributes: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule T1: an exception of the reader is logged at most once."""
    for _ in range(2):
        delays, _ = attempts_of(Invoke("blocking", clock), clock, lambda: Busy(**attributes), delay=100)

        assert delays == [0.1, 0.1]
    assert len([one for one in caplog.records if one.exc_info]) in (0, 2)  # once for each of two functions


# Delays that are too long


def test_more_than_max_delay_ends_the_retries(invoke: Invoke, clock: Clock) -> None:
    """Rule T1: the failure comes out at once, and its note says why."""
    delays, failure = attempts_of(invoke, clock, lambda: Busy("61"))

    assert delays == []
    (note,) = failure.__notes__
    assert "1 attempt in" in note
    assert "no more, because the failure asks for a longer wait than max_delay of honor_retry_after" in note
    assert attempts_of(invoke, clock, lambda: Busy("60"))[0] == [60, 60]
    assert attempts_of(invoke, clock, lambda: Busy("61"), honor_retry_after(max_delay=0))[0] == [61, 61]


def test_more_than_max_duration_leaves_ends_the_retries(invoke: Invoke, clock: Clock) -> None:
    """Rule T1: as a delay would end them, and with a note also after a single attempt."""
    delays, failure = attempts_of(invoke, clock, lambda: Busy("20"), max_duration=30_000)

    assert delays == [20]
    assert "no more, because the failure asks for a wait beyond max_duration" in failure.__notes__[0]
    delays, failure = attempts_of(invoke, clock, lambda: Busy("30"), max_duration=30_000)
    assert delays == []
    assert "1 attempt in" in failure.__notes__[0]


def test_more_than_an_enclosing_deadline_leaves_ends_the_retries(clock: Clock) -> None:
    """Rule T1: nobody would get the result of the next attempt."""
    attempts = []

    @honor_retry_after
    @retry(delay=0, jitter=0)
    def service() -> None:
        attempts.append(None)
        raise Busy("20")

    began = clock.monotonic()
    with pytest.raises(Busy) as raised:
        Guard(timeout=Timeout("10s")).call(service)

    assert len(attempts) == 1
    assert clock.monotonic() - began < 0.1
    assert "enclosing deadline" in raised.value.__notes__[0]


def test_a_failure_that_says_too_much_is_replaced(invoke: Invoke) -> None:
    """Rule T1: the fallback is asked at once."""

    @fallback(lambda context: "substitute")
    @honor_retry_after(max_delay="1s")
    @retry
    @invoke.body
    async def service() -> None:
        raise Busy("5")

    assert invoke(service) == "substitute"


# A function of the application


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda failure: 3, [3, 3]),
        (lambda failure: 0.5, [0.5, 0.5]),
        (lambda failure: timedelta(seconds=4), [4, 4]),
        (lambda failure: failure.args[0], [7, 7]),
        (lambda failure: None, [0.1, 0.1]),
        (lambda failure: -3, [0.1, 0.1]),
        (lambda failure: timedelta(-3), [0.1, 0.1]),
        (lambda failure: float("-inf"), [0.1, 0.1]),
        (lambda failure: float("inf"), []),
    ],
)
def test_read_takes_the_failure_and_gives_the_time(
    answer: Callable[[Any], Any], expected: list[float], invoke: Invoke, clock: Clock
) -> None:
    """Rule T1: it returns seconds, a timedelta or nothing, and nothing else is read."""
    delays, _ = attempts_of(
        invoke, clock, lambda: Busy(7, headers={"Retry-After": "9"}), honor_retry_after(read=answer), delay=100
    )

    assert delays == expected


@pytest.mark.parametrize("answer", [lambda failure: 1 / 0, lambda failure: "3", lambda failure: 10**400, bool])
def test_read_that_fails_is_logged_once_and_says_nothing(
    answer: Callable[[Any], Any], invoke: Invoke, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Rules T1 and T3: the delay of retry counts, and the failure goes its way."""
    delays, failure = attempts_of(invoke, clock, lambda: Busy("9"), honor_retry_after(read=answer), delay=100)

    assert delays == [0.1, 0.1]
    assert "3 attempts" in failure.__notes__[0]
    (record,) = (one for one in caplog.records if one.exc_info)
    assert "an error in `read` of @honor_retry_after; the failure sets no delay" in record.getMessage()


def test_read_is_asked_only_about_failures_that_are_retried(invoke: Invoke, clock: Clock) -> None:
    """Rule T1: neither about failures that are not retried nor where no attempt is left."""
    asked: list[BaseException] = []

    def read(failure: Any) -> float:
        asked.append(failure)
        return 1.0

    attempts_of(invoke, clock, KeyError, honor_retry_after(read=read), retry_on=Busy)
    assert asked == []
    attempts_of(invoke, clock, Busy, honor_retry_after(read=read), max_retries=1)
    assert len(asked) == 1


def sleep_not() -> None:
    """Return at once."""


async def later(failure: Any) -> float:
    await asyncio.sleep(0)
    return 3.0


def test_read_may_be_awaited_where_calls_are(invoke: Invoke, clock: Clock) -> None:
    """Rules T1 and T3: elsewhere a coroutine function is an error of the definition."""
    honors = honor_retry_after(read=later)
    if invoke.convention == "blocking":
        with pytest.raises(FaultToleranceDefinitionException, match=r"@HonorRetryAfter\(read\) is later, a coroutine"):
            honors(retry(sleep_not))
    elif invoke.convention != "offloaded":  # nothing but a loop runs ``asyncio.sleep``
        assert attempts_of(invoke, clock, Busy, honors)[0] == [3, 3]


# Declaring


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (lambda: honor_retry_after(max_delay=-1), "@HonorRetryAfter(max_delay) is -1; allowed: a duration >= 0"),
        (lambda: honor_retry_after(read=5), "@HonorRetryAfter(read) is 5; allowed: a function"),
    ],
)
def test_wrong_values_are_refused(decorate: Callable[[], Any], words: str) -> None:
    """Rule T1: the decorator refuses them."""
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        decorate()(lambda: None)

    assert words in str(refused.value)


def test_it_needs_a_retry() -> None:
    """Rule T1: without a retry it would do nothing, and says so at the first call."""
    alone = honor_retry_after(lambda: None)

    with pytest.raises(FaultToleranceDefinitionException, match="is used without @Retry"):
        alone()


def test_it_is_configured_like_anything_else(clock: Clock) -> None:
    """Rule T1: the longest wait, the function, and the switch have keys."""

    @honor_retry_after
    @retry(max_retries=1, delay=0, jitter=0)
    def service() -> None:
        raise Busy("9")

    def seconds() -> float:
        began = clock.monotonic()
        with pytest.raises(Busy):
            service()
        return clock.monotonic() - began

    assert seconds() == pytest.approx(9)
    with configured({"HonorRetryAfter/maxDelay": "8s"}):
        assert seconds() == 0
        assert "maxDelay = 8s" in explain(service)
    with configured({"HonorRetryAfter/read": f"{__name__}.one_second"}):
        assert seconds() == pytest.approx(1)
    with configured({"HonorRetryAfter/enabled": "false"}):
        assert seconds() == 0


def one_second(failure: BaseException) -> float:
    return 1.0


def test_a_breaker_s_refusal_is_waited_for(invoke: Invoke, clock: Clock) -> None:
    """Rule T1: the call outlives the open circuit."""
    attempts = []

    @honor_retry_after
    @retry(max_retries=3, delay=0, jitter=0)
    @circuit_breaker(request_volume_threshold=1, delay=4000)
    @invoke.body
    async def service() -> str:
        attempts.append(clock.monotonic())
        if len(attempts) == 1:
            raise ConnectionError
        return "served"

    assert invoke(service) == "served"
    assert attempts[1] - attempts[0] == pytest.approx(4)


def test_results_that_are_refused_for_ever_come_out_as_ever(invoke: Invoke) -> None:
    """Rule T1: the exception that stands for the last result says nothing of time, and is no mistake."""
    if invoke.convention == "offloaded":
        pytest.skip("the result of its policies is a future")

    @retry_when(result=lambda result: True)
    @honor_retry_after
    @retry(max_retries=1, delay=0, jitter=0)
    @invoke.body
    async def service() -> int:
        return 7

    with pytest.raises(FaultToleranceException) as raised:
        invoke(service)
    assert raised.value.result == 7


# With real clients


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Yield a server that answers with 429 and the given headers, one after the other, then with 200."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    headers: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            busy = headers.pop(0) if headers else ""
            self.send_response(429 if busy else 200)
            if busy:
                self.send_header("Retry-After", busy)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", headers
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


@pytest.mark.outside
@pytest.mark.parametrize("raises", [True, False])
def test_httpx_waits_as_the_server_says(server: tuple[str, list[str]], raises: bool) -> None:
    """Rule T1: in seconds and as a date, raised by ``raise_for_status`` or returned; one failure later it is served."""
    httpx = pytest.importorskip("httpx")
    url, headers = server

    def get(client: Any) -> int:
        response = client.get(url)
        if raises:
            response.raise_for_status()
        return response  # type: ignore[no-any-return]

    with virtual_time() as clock, httpx.Client() as client:
        headers += ["3", formatdate(time.time() + 20, usegmt=True)]  # noqa: TID251
        guarded = honor_retry_after(retry(max_retries=2, delay=0, jitter=0)(get))
        if not raises:
            guarded = retry_when(result=lambda response: response.status_code == 429)(guarded)
        began = clock.monotonic()
        response = guarded(client)
        waited = clock.monotonic() - began

    assert response.status_code == 200
    assert 18 < waited < 22


@pytest.mark.outside
def test_urllib_waits_as_the_server_says(server: tuple[str, list[str]]) -> None:
    """Rule T1: the failure itself has the headers, as the failure of aiohttp does."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    url, headers = server
    headers += ["3"]

    @honor_retry_after
    @retry(max_retries=1, delay=0, jitter=0, retry_on=HTTPError)
    def get() -> int:
        try:
            with urlopen(url) as response:
                return int(response.status)
        except HTTPError as error:
            error.close()
            raise

    with virtual_time() as clock:
        began = clock.monotonic()
        assert get() == 200
        assert clock.monotonic() - began == pytest.approx(3, abs=0.1)


@pytest.mark.outside
def test_asynchronous_httpx_waits_as_the_server_says(server: tuple[str, list[str]]) -> None:
    """Rule T1: the same in a coroutine."""
    httpx = pytest.importorskip("httpx")
    url, headers = server
    headers += ["1"]

    @honor_retry_after
    @retry(max_retries=1, delay=0, jitter=0, retry_on=httpx.HTTPStatusError)
    async def get() -> int:
        async with httpx.AsyncClient() as client:
            response = await client.get(url)
            return int(response.raise_for_status().status_code)

    began = time.monotonic()
    assert asyncio.run(get()) == 200
    assert time.monotonic() - began >= 1
