"""Tests of requests alone: its time-outs, streams, sessions of many threads."""

from __future__ import annotations

import gzip
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.util import Timeout as Urllib3Timeout

from faulttolerance import TimeoutException, deadline, remaining
from faulttolerance.integrations.requests import GuardedAdapter, RequestTimeout
from faulttolerance.policies import Bulkhead, Retry, Timeout
from faulttolerance.testing import no_wait, virtual_time
from kit.backend import Answer, Backend, backend

pytestmark = pytest.mark.outside

BUSY = Answer(503, b"busy")
RETRY = Retry(max_retries=9, delay=0, jitter=0, retry_on=requests.RequestException)


@pytest.fixture(scope="module")
def running() -> Iterator[Backend]:
    with backend() as made:
        yield made


@pytest.fixture
def served(running: Backend) -> Iterator[Backend]:
    """Yield a backend that serves."""
    running.will(Answer())
    with no_wait():
        yield running
    running.release()


def opened(adapter: BaseAdapter) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", adapter)
    return session


class _Seen(BaseAdapter):
    """Sends nothing, and records the time-outs that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[Any] = []

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        self.timeouts.append(options["timeout"])
        response = requests.Response()
        response.status_code, response.request, response.url = 200, request, str(request.url)
        response._content = b""
        return response

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, (2.0, None, None)),
        (5, (2.0, 5, 5)),
        ((1, None), (2.0, 1, None)),
        (Urllib3Timeout(total=1, read=7), (1, Urllib3Timeout.DEFAULT_TIMEOUT, 7)),
        (Urllib3Timeout(total=9), (2.0, Urllib3Timeout.DEFAULT_TIMEOUT, Urllib3Timeout.DEFAULT_TIMEOUT)),
    ],
)
def test_the_time_out_is_at_most_the_remaining_time_in_all(given: Any, expected: tuple[Any, ...]) -> None:
    """A given time-out stays if it is shorter, and without a deadline."""
    seen = _Seen()
    with virtual_time(), opened(GuardedAdapter(adapter=seen, bulkhead=Bulkhead(1))) as session:
        session.get("http://shop.example", timeout=given)
        with deadline("2s"):
            session.get("http://shop.example", timeout=given)

    before, within = seen.timeouts
    assert before is given
    assert repr(within) == repr(Urllib3Timeout(total=expected[0], connect=expected[1], read=expected[2]))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_failing_answer_is_a_stream_like_any_other(served: Backend, method: str) -> None:
    served.will(BUSY)
    adapter = GuardedAdapter(adapter=HTTPAdapter(pool_maxsize=1, pool_block=True), timeout=Timeout("30s"))
    with opened(adapter) as session:
        for _ in range(2):
            with session.request(method, served.url, stream=True) as response:
                assert b"".join(response.iter_content(2)) == b"busy"


def test_the_body_of_a_failing_answer_has_the_time_that_its_headers_left(served: Backend) -> None:
    """On another thread than the main one a silent server would hold the call for up to its time-out once more."""
    limits = []

    class Late(HTTPAdapter):
        def send(self, *args: Any, **options: Any) -> requests.Response:
            response = super().send(*args, **options)
            sock: Any = response.raw._fp.fp.raw._sock  # type: ignore[union-attr]
            limits.extend([sock.gettimeout(), sock.gettimeout])
            time.sleep(0.1)
            return response

    served.will(BUSY)
    with opened(GuardedAdapter(adapter=Late(), timeout=Timeout("30s"))) as session:
        assert session.get(served.url).content == b"busy"
    assert limits[1]() <= limits[0] - 0.1


@pytest.mark.parametrize(
    ("given", "expected"), [(None, None), (60, 60), ((3, 60), 60), (Urllib3Timeout(connect=3, read=60), 60)]
)
def test_the_body_has_the_read_time_out_of_the_client_alone(served: Backend, given: Any, expected: float) -> None:
    """The rest of the guard's time-out would end a download whose server pauses for a while."""
    served.will(Answer(holds="silence"))
    with opened(GuardedAdapter(timeout=Timeout("20s"))) as session:
        with session.get(served.url, stream=True, timeout=given) as response:
            alone = response.raw._fp.fp.raw._sock.gettimeout()
        with deadline("30s"), session.get(served.url, stream=True, timeout=given) as response:
            assert 20 < response.raw._fp.fp.raw._sock.gettimeout() <= 30
    assert alone == expected


@pytest.mark.parametrize("place", range(1, 5))
def test_the_first_requests_of_two_threads_may_find_their_pool_together(place: int) -> None:
    """The second comes before one of the lines that the first runs, here by a tracer of lines."""
    adapter = HTTPAdapter(pool_block=True)
    request = requests.Request("GET", "http://shop.example").prepare()
    lines = []

    def second(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_name != "pool_in_time":
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == place:
                sys.settrace(None)
                adapter.get_connection_with_tls_context(request, True)
        return second

    before = sys.gettrace()
    with opened(GuardedAdapter(adapter=adapter)):
        sys.settrace(second)
        try:
            pool = adapter.get_connection_with_tls_context(request, True)
        finally:
            sys.settrace(before)
    assert (len(lines), pool.block) == (place, True)


LINES = b"".join(b"line %d\n" % number for number in range(20_000))
GZIPPED = gzip.compress(random.Random(7).randbytes(100_000))
AS_GZIP = (("Content-Encoding", "gzip"),)


ONCE = Retry(max_retries=1, delay=0, jitter=0, retry_on=requests.RequestException)
WAYS: dict[str, Callable[[requests.Response], Iterable[bytes]]] = {
    "content": lambda response: [response.content],
    "parts": lambda response: response.iter_content(1_000),
    "all parts": lambda response: response.iter_content(None),
    "lines": lambda response: response.iter_lines(),
    "raw": lambda response: [response.raw.read(), response.raw.read(), b"%d" % response.raw.tell()],
    "decoded": lambda response: [response.raw.read(decode_content=True), b"%d" % response.raw.closed],
    "amounts": lambda response: (b"%s," % response.raw.read(amount) for amount in (10, 70_000, 3, 70_000, 70_000)),
    "raw parts": lambda response: response.raw.stream(1_000, decode_content=True),
    "data": lambda response: [response.raw.data],
}


@pytest.mark.parametrize(
    "answer",
    {
        "short": Answer(503, b"busy"),
        "long": Answer(503, LINES),
        "empty": Answer(503, b""),
        "the last": Answer(503, b"busy", (("Connection", "close"),)),
        "gzip": Answer(503, gzip.compress(b"busy"), AS_GZIP),
        "long gzip": Answer(503, GZIPPED, AS_GZIP),
        "chunked": Answer(503, b"busy", chunked=True),
        "long chunked": Answer(503, LINES, chunked=True),
        "empty chunked": Answer(503, b"", chunked=True),
        "gzip chunked": Answer(503, GZIPPED, AS_GZIP, chunked=True),
        "no gzip": Answer(503, b"no gzip", AS_GZIP),
        "broken": Answer(503, LINES, dies="body"),
        "broken chunked": Answer(503, LINES, dies="body", chunked=True),
        "HEAD": Answer(503, LINES),
    }.items(),
    ids=lambda answer: answer[0],
)
def test_a_failing_answer_is_read_in_every_way_as_without_a_guard(served: Backend, answer: tuple[str, Answer]) -> None:
    """Each way gives the whole body of a stream, or fails as usual, and frees the connection."""
    served.will(answer[1])
    method = "HEAD" if answer[0] == "HEAD" else "GET"
    got: list[tuple[str, bytes, type[Exception] | None]] = []
    for is_guarded in (False, True):
        sends = HTTPAdapter(pool_maxsize=1, pool_block=True)
        guarded = GuardedAdapter(adapter=sends, retry=ONCE, timeout=Timeout("30s"))
        with opened(guarded if is_guarded else sends) as session:
            for way, read in WAYS.items():
                with session.request(method, served.url, stream=True, timeout=30) as response:
                    parts, failure = _read(read, response)
                got.append((way, b"".join(parts) if failure is None else b"", failure))

    assert got[len(WAYS) :] == got[: len(WAYS)]


def _read(
    read: Callable[[requests.Response], Iterable[bytes]], response: requests.Response
) -> tuple[list[bytes], type[Exception] | None]:
    """Return the parts of the body that came out, and the class of the failure that ended it."""
    parts: list[bytes] = []
    try:
        for part in read(response):
            parts.append(part)  # noqa: PERF402  # the parts before a failure count
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        return parts, type(error)
    return parts, None


def test_a_session_of_many_threads(served: Backend) -> None:
    """There are more threads than connections; every second answer fails."""
    served.will(*[BUSY, Answer()] * 80)
    patient = Retry(max_retries=80, delay=0, jitter=0, retry_on=requests.RequestException)  # one may get all that fail
    sends = HTTPAdapter(pool_maxsize=2, pool_block=True)
    adapter = GuardedAdapter(adapter=sends, retry=patient, timeout=Timeout("30s"))
    got: list[str] = []
    with opened(adapter) as session:

        def ask() -> None:
            for _ in range(10):
                got.append(session.get(served.url).text)  # noqa: PERF401  # each thread adds its own

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert got == ["served"] * 80
    assert served.connections <= 2


def test_a_wait_for_a_connection_that_times_out_leaves_the_pool_alone(served: Backend) -> None:
    """The request that has the connection is served, and so is the next one; a POST that waited was not sent."""
    served.will(Answer(waits=True), Answer())
    sends = HTTPAdapter(pool_maxsize=1, pool_block=True)
    again = Retry(max_retries=1, delay=0, jitter=0, retry_on=TimeoutException)
    patient = opened(GuardedAdapter(adapter=sends, timeout=Timeout("30s")))
    hasty = opened(GuardedAdapter(adapter=sends, timeout=Timeout("100ms"), retry=again))
    with patient, hasty, ThreadPoolExecutor(2) as threads:
        slow = threads.submit(patient.get, served.url)
        while not served.received:
            time.sleep(0.001)
        on_a_thread = threads.submit(hasty.post, served.url).exception()
        with pytest.raises(RequestTimeout) as on_the_main_thread:
            hasty.post(served.url)
        with pytest.raises(TimeoutException), deadline("100ms"):
            patient.get(served.url)
        served.release()
        assert (slow.result().text, patient.get(served.url).text) == ("served", "served")
    for late in (on_a_thread, on_the_main_thread.value):
        assert isinstance(late, RequestTimeout)
        assert "2 attempts" in getattr(late.__cause__, "__notes__", [""])[-1]
    assert served.methods == ["GET", "GET"]


class _SlowPool(HTTPConnectionPool):
    """Takes a connection after a while, and records the remaining time and the time-out of the request then."""

    times: ClassVar[list[tuple[Any, Any]]] = []

    def _get_conn(self, timeout: float | None = None) -> Any:
        time.sleep(0.01)
        return super()._get_conn(timeout)

    def _make_request(self, *args: Any, timeout: Any, **options: Any) -> Any:
        self.times.append((remaining(), self._get_timeout(timeout).total))
        return super()._make_request(*args, timeout=timeout, **options)


def test_the_time_out_after_a_wait_for_a_connection_is_at_most_the_remaining_time(served: Backend) -> None:
    sends = HTTPAdapter(pool_maxsize=1, pool_block=True)
    sends.poolmanager.pool_classes_by_scheme = {"http": _SlowPool}
    with opened(GuardedAdapter(adapter=sends, retry=ONCE)) as session, deadline("30s"):
        session.get(served.url)
    ((left, total),) = _SlowPool.times
    assert total <= left
