"""Clients of HTTP with guards, each against a backend on a real socket: httpx, both of its clients, and requests."""

from __future__ import annotations

import asyncio
import gzip
import io
import pickle
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    RateLimitException,
    RefusedException,
    TimeoutException,
    circuit_breakers,
    deadline,
    remaining,
)
from faulttolerance.exceptions import ThrottleException
from faulttolerance.instrumentation import RetryScheduled
from faulttolerance.integrations import httpx as for_httpx, requests as for_requests
from faulttolerance.integrations._http import origin_of
from faulttolerance.integrations._time import time_limit
from faulttolerance.policies import (
    BeforeRetry,
    Bulkhead,
    CircuitBreaker,
    Coalesce,
    Fallback,
    Hedge,
    HonorRetryAfter,
    PartitionBy,
    RateLimit,
    Retry,
    Timeout,
)
from faulttolerance.testing import captured_events, no_wait, virtual_time
from kit.backend import Answer, Backend, backend
from kit.counted_key import CountedKey
from kit.crowd import on_thread
from kit.redis_server import free_port

pytestmark = pytest.mark.outside

ONE: Any = {"limits": httpx.Limits(max_connections=1), "verify": ssl.create_default_context()}
"""One connection; and certificates are read once, which takes a while."""
BUSY = Answer(503, b"busy")
DEAD = Answer(dies="before")


class Got(NamedTuple):
    """A response with its body."""

    status: int
    text: str


class Client:
    """One way to send requests, with one connection at most to each host."""

    family: type[Exception]
    """The base class that users of the client catch."""
    timeout: type[Exception]
    failures: type[Exception]
    """The family, and failing answers."""
    module: Any

    def open(self, *guards: Guard, inner: Any = None, **options: Any) -> Client:
        """Make the client, whose transport is given *guards* and *options*."""
        raise NotImplementedError

    def send(self, method: str, url: str, body: Any = None, **options: Any) -> Got:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def get(self, url: str, **options: Any) -> Got:
        return self.send("GET", url, **options)

    def status(self, url: str) -> int:
        """Return the status of an answer whose body is not read."""
        raise NotImplementedError


class Httpx(Client):
    family, timeout, failures, module = httpx.TransportError, httpx.TimeoutException, httpx.HTTPError, for_httpx

    def open(self, *guards: Guard, inner: Any = None, **options: Any) -> Client:
        sends = inner or httpx.HTTPTransport(**ONE)
        self.transport = for_httpx.GuardedTransport(*guards, transport=sends, **options)
        self.client = httpx.Client(transport=self.transport, timeout=30)
        return self

    def send(self, method: str, url: str, body: Any = None, **options: Any) -> Got:
        response = self.client.request(method, url, content=body, **options)
        return Got(response.status_code, response.text)

    def status(self, url: str) -> int:
        with self.client.stream("GET", url) as response:
            return response.status_code

    def close(self) -> None:
        self.client.close()


class AsyncHttpx(Client):
    family, timeout, failures, module = httpx.TransportError, httpx.TimeoutException, httpx.HTTPError, for_httpx

    def open(self, *guards: Guard, inner: Any = None, **options: Any) -> Client:
        self.runner = asyncio.Runner()
        sends = inner or httpx.AsyncHTTPTransport(**ONE)
        self.transport = for_httpx.AsyncGuardedTransport(*guards, transport=sends, **options)
        self.client = httpx.AsyncClient(transport=self.transport, timeout=30)
        return self

    def send(self, method: str, url: str, body: Any = None, **options: Any) -> Got:
        if hasattr(body, "__next__"):
            body = _async(body)
        response = self.runner.run(self.client.request(method, url, content=body, **options))
        return Got(response.status_code, response.text)

    def status(self, url: str) -> int:
        async def streamed() -> int:
            async with self.client.stream("GET", url) as response:
                return response.status_code

        return self.runner.run(streamed())

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


class Requests(Client):
    family, timeout, failures = requests.RequestException, requests.Timeout, requests.RequestException
    module = for_requests

    def open(self, *guards: Guard, inner: Any = None, **options: Any) -> Client:
        sends = inner or HTTPAdapter(pool_maxsize=1, pool_block=True)
        self.transport = for_requests.GuardedAdapter(*guards, adapter=sends, **options)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", self.transport)
        return self

    def send(self, method: str, url: str, body: Any = None, **options: Any) -> Got:
        options.setdefault("timeout", 30)
        options["allow_redirects"] = options.pop("follow_redirects", False)
        response = self.session.request(method, url, data=body, **options)
        return Got(response.status_code, response.text)

    def status(self, url: str) -> int:
        with self.session.get(url, stream=True) as response:
            return response.status_code

    def close(self) -> None:
        self.session.close()


async def _async(parts: Any) -> Any:
    for part in parts:
        yield part


@pytest.fixture(params=[Httpx, AsyncHttpx, Requests], ids=lambda kind: kind.__name__)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Yield a client that a test opens."""
    made = request.param()
    with no_wait():
        yield made
    made.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Backend]:
    with backend() as made:
        yield made


@pytest.fixture
def served(running: Backend) -> Iterator[Backend]:
    """Yield a backend that serves."""
    running.will(Answer())
    yield running
    running.release()


RETRY = Retry(max_retries=2, delay=0, jitter=0)
GUARD = Guard(retry=RETRY)


# Requests that are sent again


def test_a_failing_answer_is_asked_for_again_on_the_same_connection(client: Client, served: Backend) -> None:
    """The response is read and closed before the retry: the pool has one connection, and no other one is made."""
    served.will(BUSY, Answer(502), Answer())
    got = client.open().get(served.url)

    assert got == (200, "served")
    assert served.methods == ["GET"] * 3
    assert served.connections == 1


def test_the_last_response_comes_out(client: Client, served: Backend) -> None:
    """The last response can be read, and its connection is free afterwards; nothing else is invented."""
    client.open(retry=RETRY)
    for status in (429, 502, 503, 504):
        served.will(Answer(status, b"busy"))

        assert client.get(served.url) == (status, "busy")
        assert served.methods == ["GET"] * 3
        assert served.connections == 1


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_other_answers_are_answers(client: Client, served: Backend, method: str) -> None:
    """These answers are neither retried nor counted, with a body or without one."""
    client.open(circuit_breaker=CircuitBreaker(request_volume_threshold=1), retry=RETRY)
    for status in (200, 204, 304, 400, 404, 409, 500, 501):
        served.will(Answer(status))

        assert client.send(method, served.url).status == status
        assert served.methods == [method]


def test_a_connection_that_ended_between_requests_is_made_anew(client: Client, served: Backend) -> None:
    """This happens when the backend is restarted between two requests."""
    served.will(Answer(dies="after"), Answer())
    client.open()

    assert [client.get(served.url) for _ in range(3)] == [(200, "served")] * 3


def test_an_idempotent_request_is_sent_again(client: Client, served: Backend) -> None:
    client.open(retry=RETRY)
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "put"):
        served.will(DEAD, BUSY, Answer())

        assert client.send(method, served.url, b"body" if method.upper() == "PUT" else None) == (200, "served")
        assert served.methods == [method.upper()] * 3
        assert len({received.body for received in served.received}) == 1


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_request_that_may_be_done_already_is_not_sent_again(client: Client, served: Backend, method: str) -> None:
    """This holds after an answer and without one."""
    client.open(retry=RETRY)
    served.will(BUSY, Answer())

    assert client.send(method, served.url, b"body") == (503, "busy")
    assert served.methods == [method]

    served.will(DEAD, Answer())
    with pytest.raises(client.family) as raised:
        client.send(method, served.url, b"body")

    assert not isinstance(raised.value, RefusedException)
    assert (
        f"no more, because a {method} without Idempotency-Key may have been done already" in raised.value.__notes__[0]
    )
    assert served.methods == [method]


def test_a_key_or_an_option_makes_a_request_repeatable(client: Client, served: Backend) -> None:
    served.will(DEAD, BUSY, Answer())
    got = client.open(retry=RETRY).send("POST", served.url, b"body", headers={"idempotency-key": "7"})
    client.close()

    assert got == (200, "served")
    assert served.methods == ["POST"] * 3

    served.will(DEAD, BUSY, Answer())
    got = client.open(retry=RETRY, methods={"post"}).send("POST", served.url, b"body")

    assert got == (200, "served")
    assert [received.body for received in served.received] == [b"body"] * 3


@pytest.mark.parametrize("parts", [None, (b"a", b"b")])
def test_a_request_that_never_left_is_sent_again_whatever_its_method_and_body(client: Client, parts: Any) -> None:
    """The connection was refused, so no stream was read and no POST was done."""
    port = free_port()
    with ExitStack() as stack:
        begun: list[Backend] = []

        def start(context: Any) -> None:
            begun.append(stack.enter_context(backend(port=port)))

        client.open(retry=Retry(max_retries=1, jitter=0), before_retry=BeforeRetry(start))
        got = client.send("POST", f"http://127.0.0.1:{port}", iter(parts) if parts else b"ab")

        assert got == (200, "served")
        assert [received.body for received in begun[0].received] == [b"ab"]


@pytest.mark.parametrize("answer", [BUSY, DEAD])
def test_a_body_that_can_be_read_once_is_sent_once(client: Client, served: Backend, answer: Answer) -> None:
    """A generator is empty when it is sent again, whatever the method."""
    client.open(retry=RETRY)
    served.will(answer, Answer())
    try:
        got = client.send("PUT", served.url, (part for part in (b"a", b"b")))
    except client.family:
        assert answer is DEAD
    else:
        assert got == (503, "busy")

    assert [received.body for received in served.received] == [b"ab"]


@pytest.mark.parametrize("client", [Httpx, Requests], indirect=True)
def test_a_file_is_sent_whole_or_once(client: Client, served: Backend) -> None:
    """Requests can read it again from its old position; httpx cannot, and does not."""
    served.will(DEAD, BUSY, Answer())
    file = io.BytesIO(b"head body")
    client.open(retry=RETRY)
    if isinstance(client, Requests):
        file.seek(5)
        assert client.send("PUT", served.url, file) == (200, "served")
    else:
        with pytest.raises(client.family):
            client.send("PUT", served.url, file)

    sent = [received.body for received in served.received]
    assert sent == ([b"body"] * 3 if isinstance(client, Requests) else [b"head body"])


def test_a_failing_answer_that_breaks_off_is_requested_again(client: Client, served: Backend) -> None:
    served.will(BUSY._replace(dies="body"), Answer())

    assert client.open(retry=RETRY).get(served.url) == (200, "served")
    assert served.methods == ["GET"] * 2


@pytest.mark.parametrize(
    "answer",
    [
        Answer(503, b"x" * 70_000, holds="silence"),
        Answer(503, b"busy", holds="drops"),
    ],
    ids=["too long", "too slow"],
)
def test_the_guard_does_not_wait_for_the_whole_of_a_failing_answer(
    client: Client, served: Backend, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stream not more than 64 KiB and a second are read before the next attempt; no connection is lost."""
    monkeypatch.setattr(for_httpx, "_MAX_BODY_SECONDS", 0.1)
    served.will(answer)
    client.open(retry=RETRY)

    assert [client.status(served.url), client.status(served.url)] == [503, 503]
    assert served.methods == ["GET"] * 6
    served.will(Answer())
    assert client.get(served.url).status == 200


def test_a_failing_answer_that_is_long_is_whole_for_the_caller(client: Client, served: Backend) -> None:
    """The last answer comes out whole, both its parts read by the guard and the rest, also if it is compressed."""
    body = bytes(range(32, 127)) * 5_000
    served.will(Answer(503, body))
    client.open(retry=RETRY)

    assert client.get(served.url) == (503, body.decode())
    served.will(Answer(503, gzip.compress(body), (("Content-Encoding", "gzip"),)))
    assert client.get(served.url) == (503, body.decode())


def test_a_guard_ends_with_the_headers(client: Client, served: Backend) -> None:
    """A body that breaks off is the client's failure: no retry follows, and no failure is counted."""
    served.will(Answer(dies="body"))
    client.open(retry=RETRY, circuit_breaker=CircuitBreaker(request_volume_threshold=1), bulkhead=Bulkhead(1))
    for _ in range(2):
        with pytest.raises(client.family) as raised:
            client.get(served.url)
        assert not isinstance(raised.value, RefusedException)

    assert served.methods == ["GET"] * 2
    served.will(Answer())
    assert client.get(served.url) == (200, "served")


def test_failures_that_are_named_are_those_that_are_retried(client: Client, served: Backend) -> None:
    """``retry_on`` and ``abort_on`` work as everywhere, but no request is sent again that may not be."""
    served.will(BUSY, Answer())
    client.open(retry=Retry(max_retries=2, jitter=0, retry_on=TimeoutException))
    assert client.get(served.url) == (503, "busy")
    client.close()

    served.will(BUSY, Answer())
    client.open(retry=Retry(max_retries=2, jitter=0, retry_on=BaseException))
    assert client.send("POST", served.url) == (503, "busy")
    client.close()

    served.will(BUSY, Answer())
    client.open(retry=Retry(max_retries=2, jitter=0, abort_on=(httpx.HTTPStatusError, requests.HTTPError)))
    assert client.get(served.url) == (503, "busy")
    assert served.methods == ["GET"]


def test_other_statuses_may_be_failures(client: Client, served: Backend) -> None:
    served.will(Answer(500), BUSY)

    assert client.open(retry=RETRY, statuses=[500]).get(served.url) == (503, "busy")
    assert served.methods == ["GET"] * 2


def test_retries_wait_as_the_server_says(client: Client, served: Backend) -> None:
    """The longest wait is 30 s, or ``honor_retry_after``; a longer one ends the retries."""
    served.will(BUSY._replace(headers=(("Retry-After", "7"),)), Answer())
    client.open(retry=RETRY)
    with captured_events() as events:
        assert client.get(served.url) == (200, "served")

    assert [event.delay for event in events if isinstance(event, RetryScheduled)] == [7.0]

    served.will(BUSY._replace(headers=(("retry-after", "31"),)), Answer())
    assert client.get(served.url) == (503, "busy")
    client.close()

    served.will(BUSY._replace(headers=(("Retry-After", "31"),)), Answer())
    client.open(retry=RETRY, honor_retry_after=HonorRetryAfter(max_delay="1m"))
    assert client.get(served.url) == (200, "served")


# One state for each origin


def test_an_origin_that_is_down_refuses_only_its_own_requests(client: Client, served: Backend) -> None:
    """Users of the client and users of the library can catch the exception."""
    dead = f"http://127.0.0.1:{free_port()}"
    client.open(name="origins", circuit_breaker=CircuitBreaker(request_volume_threshold=2, delay="10s"))
    for _ in range(2):
        with pytest.raises(client.family) as failed:
            client.get(f"{dead}/tea")
        assert not isinstance(failed.value, RefusedException)
    with pytest.raises(client.family) as refused:
        client.get(f"{dead}/milk")

    assert type(refused.value) is client.module.CircuitOpen
    assert isinstance(refused.value, CircuitBreakerOpenException)
    assert refused.value.retry_after == pytest.approx(10, abs=3)
    assert str(refused.value.request.url).startswith(dead)  # type: ignore[attr-defined]
    assert isinstance(refused.value.__cause__, CircuitBreakerOpenException)
    assert client.get(served.url) == (200, "served")
    assert circuit_breakers.state("origins", key=dead) == "open"
    assert circuit_breakers.state("origins", key=served.url) == "closed"


def test_failing_answers_open_the_circuit_and_mistakes_do_not(client: Client, served: Backend) -> None:
    served.will(BUSY)
    client.open(
        name="judged",
        circuit_breaker=CircuitBreaker(request_volume_threshold=2, failure_ratio=1.0, fail_on=client.failures),
    )

    def broken() -> Iterator[bytes]:
        raise ZeroDivisionError
        yield b""

    for _ in range(4):
        with pytest.raises(ZeroDivisionError):
            client.send("PUT", served.url, broken())
    assert circuit_breakers.state("judged", key=served.url) == "closed"

    assert [client.send("POST", served.url).status for _ in range(2)] == [503, 503]
    with pytest.raises(CircuitBreakerOpenException):
        client.send("POST", served.url)


def test_a_rate_limit_is_one_for_each_origin(client: Client, served: Backend) -> None:
    with backend() as other:
        client.open(rate_limit=RateLimit(2, window="1h"))
        assert [client.get(url).status for url in (served.url, other.url) * 2] == [200] * 4
        for url in (served.url, other.url) * 2:
            with pytest.raises(client.module.RateLimited):
                client.get(url)


def test_a_key_is_fitted_to_the_requests_once(client: Client, served: Backend) -> None:
    """Later requests call it, and nothing else."""
    key = CountedKey(lambda origin, request: origin)
    client.open(partition_by=PartitionBy(key))
    client.get(served.url)
    fitted = key.inspected
    assert [client.get(served.url).status for _ in range(5)] == [200] * 5

    assert (key.called, key.inspected) == (6, fitted)


def test_redirects_pass_the_guard_of_each_origin(client: Client, served: Backend) -> None:
    with backend(BUSY) as other:
        served.will(Answer(302, headers=(("Location", f"{other.url}/there"),)))
        client.open(name="redirected", circuit_breaker=CircuitBreaker(request_volume_threshold=1))

        assert client.get(served.url, follow_redirects=True) == (503, "busy")
        with pytest.raises(client.module.CircuitOpen):
            client.get(served.url, follow_redirects=True)
        assert [received.path for received in other.received] == ["/there"]
        assert circuit_breakers.state("redirected", key=other.url) == "open"
        assert circuit_breakers.state("redirected", key=served.url) == "closed"


def test_a_fallback_answers_instead(client: Client, served: Backend) -> None:
    """The fallback returns a response of the client; the failed response is closed."""

    def cached(context: Any) -> Any:
        assert str(context.failure.response.request.url).startswith(served.url)
        if client.module is for_httpx:
            return httpx.Response(200, content=b"yesterday's")
        response = requests.Response()
        response.status_code, response.raw = 200, io.BytesIO(b"yesterday's")
        return response

    client.open(fallback=Fallback(cached))
    served.will(BUSY, Answer())

    assert client.send("POST", served.url) == (200, "yesterday's")
    assert client.send("POST", served.url) == (200, "served")


def test_a_guard_that_a_fallback_calls_makes_its_own_retries(client: Client, served: Backend) -> None:
    """That the request may not be sent again concerns the request alone."""
    store, failures = Guard(retry=RETRY), [ValueError("not yet"), OSError("not yet")]

    def read() -> bytes:
        if failures:
            raise failures.pop()
        return b"yesterday's"

    def cached(context: Any) -> Any:
        body = store.call(read)
        if client.module is for_httpx:
            return httpx.Response(200, content=body)
        response = requests.Response()
        response.status_code, response.raw = 200, io.BytesIO(body)
        return response

    client.open(fallback=Fallback(cached))
    served.will(BUSY)

    assert client.send("POST", served.url) == (200, "yesterday's")


def test_a_post_that_fails_as_no_coroutine_may_is_not_sent_again() -> None:
    """Python replaces the exception on its way to the guard."""
    sent: list[Any] = []

    def fail(request: Any) -> Any:
        sent.append(request)
        raise StopIteration

    client = AsyncHttpx().open(inner=httpx.MockTransport(fail), retry=RETRY)
    with pytest.raises(RuntimeError):
        client.send("POST", "http://shop.example")
    client.close()

    assert len(sent) == 1


@pytest.mark.parametrize("kind", [Httpx, AsyncHttpx])
def test_an_error_as_a_discarded_response_is_closed_changes_nothing(kind: Any) -> None:
    class Long(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield bytes(70_000)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield bytes(70_000)

        def close(self) -> None:
            raise ValueError("closed badly")

        async def aclose(self) -> None:
            raise ValueError("closed badly")

    answers = [httpx.Response(503, stream=Long()), httpx.Response(200, content=b"served")]
    client = kind().open(inner=httpx.MockTransport(lambda request: answers.pop(0)))

    with no_wait():
        assert client.send("GET", "http://shop.example") == (200, "served")
    client.close()


def test_a_guard_serves_several_transports(served: Backend) -> None:
    """A circuit that is open for one client is open for all."""
    served.will(BUSY)
    shared = Guard(
        name="shared",
        partition_by=PartitionBy(lambda origin, request: origin),
        circuit_breaker=CircuitBreaker(request_volume_threshold=3, delay="1m"),
    )
    clients = [kind().open(shared) for kind in (Httpx, AsyncHttpx, Requests)]
    try:
        assert [client.send("POST", served.url).status for client in clients] == [503] * 3
        for client in clients:
            with pytest.raises(client.module.CircuitOpen):
                client.get(served.url)
    finally:
        for client in clients:
            client.close()
        shared.close()


# In time


def test_a_time_out_holds_on_every_thread(client: Client, served: Backend) -> None:
    """The client ends by itself at the deadline of the attempt (rule S3), and its connection is not lost."""
    served.will(Answer(waits=True), Answer())
    client.open(timeout=Timeout("300ms"), retry=RETRY)
    failure, elapsed = on_thread(lambda: client.send("POST", served.url))

    assert type(failure) is client.module.RequestTimeout
    assert isinstance(failure, client.timeout)
    assert isinstance(failure, TimeoutException)
    assert elapsed < 10
    assert client.get(served.url) == (200, "served")


def test_each_attempt_has_its_time_and_none_loses_a_connection(client: Client, served: Backend) -> None:
    """An interrupt ends attempts on the main thread; a POST that timed out may have arrived."""
    client.open(timeout=Timeout("300ms"), retry=RETRY)
    served.will(Answer(waits=True), Answer())
    assert client.get(served.url) == (200, "served")

    served.will(Answer(waits=True), Answer())
    with pytest.raises(client.module.RequestTimeout):
        client.send("POST", served.url)
    assert served.methods == ["POST"]


def test_a_time_out_says_why_no_attempt_followed(client: Client, served: Backend) -> None:
    """As any other failure does; the client's exception is not the one that the guard raised."""
    client.open(timeout=Timeout("100ms"), retry=RETRY)
    served.will(Answer(waits=True), Answer())
    with pytest.raises(client.module.RequestTimeout) as raised:
        client.send("POST", served.url)

    assert "a POST without Idempotency-Key may have been done already" in raised.value.__notes__[-1]


def test_an_enclosing_deadline_ends_the_client_too(client: Client, served: Backend) -> None:
    client.open(retry=RETRY).get(served.url)  # a connection that the deadline finds half made is left to the collector
    served.will(Answer(waits=True))

    def ask() -> None:
        with deadline("150ms"):
            client.get(served.url)

    failure, elapsed = on_thread(ask)

    assert isinstance(failure, TimeoutException)
    assert elapsed < 10


@pytest.mark.parametrize("client", [Httpx, Requests], indirect=True)  # a coroutine is cancelled
def test_at_an_enclosing_deadline_the_client_raises_its_time_out_and_ours(client: Client, served: Backend) -> None:
    """The code between the client and the deadline catches the same exception as at the guard's own time-out."""
    client.open(retry=RETRY).get(served.url)  # a connection that the deadline finds half made is left to the collector
    served.will(Answer(waits=True))
    caught: list[Exception] = []

    def ask() -> None:
        with deadline("150ms"):
            try:
                client.get(served.url)
            except client.timeout as failure:
                caught.append(failure)
                raise

    on_thread(ask)

    assert [type(failure) for failure in caught] == [client.module.RequestTimeout]


@pytest.mark.parametrize("limit", ["4294967400ms", "360000000000s"])
def test_a_deadline_beyond_every_time_out_of_a_socket_is_no_limit(client: Client, served: Backend, limit: str) -> None:
    """A caller may send it with a request; a socket takes 2 ** 32 ms for 0, and thousands of years for a mistake."""
    client.open(bulkhead=Bulkhead(1)).get(served.url)
    served.will(Answer(waits=True))
    answer = threading.Timer(0.4, served.release)
    answer.start()
    with deadline(limit):
        assert client.get(served.url, timeout=None).status == 200
    answer.join()


def test_a_shorter_time_out_of_the_client_stays(client: Client, served: Backend) -> None:
    served.will(Answer(waits=True))
    client.open(timeout=Timeout("1m"))
    with pytest.raises(client.timeout) as raised:
        client.get(served.url, timeout=0.1)

    assert not isinstance(raised.value, TimeoutException)


class _Late(httpx.HTTPTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        threading.Event().wait(remaining())
        return response


class _AsyncLate(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        threading.Event().wait(remaining())
        return response


class _LateAdapter(HTTPAdapter):
    def send(self, *args: Any, **options: Any) -> requests.Response:
        response = super().send(*args, **options)
        threading.Event().wait(remaining())
        return response


def test_a_response_that_comes_too_late_is_closed_and_a_post_is_not_sent_again(client: Client, served: Backend) -> None:
    """The server has done the request: a POST stays one POST. The only connection of the pool is free again."""
    inner: Any = {
        Httpx: lambda: _Late(**ONE),
        AsyncHttpx: lambda: _AsyncLate(**ONE),
        Requests: lambda: _LateAdapter(pool_maxsize=1, pool_block=True),
    }[type(client)]()  # type: ignore[index]
    client.open(inner=inner, timeout=Timeout("200ms", interrupt=False), retry=Retry(max_retries=1, delay=0, jitter=0))
    for method in ("POST", "GET"):
        with pytest.raises(client.module.RequestTimeout):
            client.send(method, served.url)
    assert served.methods == ["POST", "GET", "GET"]


# Errors and names


@pytest.mark.parametrize("module", [for_httpx, for_requests])
def test_exceptions_of_the_clients_pickle(module: Any) -> None:
    for kind, base, args in (
        (module.RequestTimeout, TimeoutException, ("shop: timed out",)),
        (module.CircuitOpen, CircuitBreakerOpenException, ("shop: circuit is open", 3.0)),
        (module.RateLimited, RateLimitException, ("shop: too many", 3.0)),
        (module.BulkheadFull, BulkheadException, ("shop: full", 0.0, "waited")),
        (module.Throttled, ThrottleException, ("shop: throttled",)),
        (module.RefusedRequest, RefusedException, ("shop: no",)),
    ):
        error = kind(*args)
        copy = pickle.loads(pickle.dumps(error))

        assert isinstance(error, base)
        assert (type(copy), copy.args, str(copy)) == (kind, args, str(base(*args)))
        assert type(kind.__new__(kind)) is kind


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"statuses": 503}, "(statuses) is 503; allowed: a set of numbers from 100 to 599"),
        ({"statuses": [99]}, "(statuses) is [99]; allowed: a set of numbers from 100 to 599"),
        ({"statuses": [True]}, "(statuses) is [True]; allowed: a set of numbers from 100 to 599"),
        ({"methods": "GET"}, "(methods) is 'GET'; allowed: a set of names, such as GET"),
        ({"methods": [7]}, "(methods) is [7]; allowed: a set of names, such as GET"),
        ({"guard": 7}, "(guard) is 7; allowed: a Guard, or policies by name, such as retry=Retry(...)"),
        ({"guard": Hedge(delay=10)}, "(hedge) would send a request twice that may be sent only once; allowed: none"),
        ({"coalesce": Coalesce()}, "(coalesce) would share a response that only one caller can read; allowed: none"),
        ({"guard": GUARD, "retry": RETRY}, " got a guard, and also retry; allowed: a guard or the others"),
        ({"guard": GUARD, "name": "shop"}, " got a guard, and also name; allowed: a guard or the others"),
    ],
)
@pytest.mark.parametrize(
    "kind", [for_httpx.GuardedTransport, for_httpx.AsyncGuardedTransport, for_requests.GuardedAdapter]
)
def test_options_without_a_meaning_are_refused(kind: Any, options: dict[str, Any], words: str) -> None:
    if isinstance(hedge := options.get("guard"), Hedge):
        options = {"guard": Guard(hedge=hedge)}
    with pytest.raises(FaultToleranceDefinitionException) as raised:
        kind(**options)

    assert str(raised.value) == f"{kind.__name__}{words}"


@pytest.mark.parametrize(
    ("kind", "sends"),
    [
        (for_httpx.GuardedTransport, {"transport": httpx.AsyncHTTPTransport(verify=ONE["verify"])}),
        (for_httpx.AsyncGuardedTransport, {"transport": httpx.HTTPTransport(verify=ONE["verify"])}),
        (for_requests.GuardedAdapter, {"adapter": 7}),
    ],
)
def test_an_object_that_cannot_send_is_refused(kind: Any, sends: dict[str, Any]) -> None:
    """A transport of the other kind cannot send either."""
    with pytest.raises(
        FaultToleranceDefinitionException, match=r"\(what sends\) is .*; allowed: an object with"
    ) as raised:
        kind(**sends)

    assert raised.value.got in sends.values()


def test_a_closed_client_frees_its_name(client: Client) -> None:
    for _ in range(2):
        client.open(name="again")
        client.close()
    client.open(name="again")


@pytest.mark.parametrize(
    ("parts", "origin"),
    [
        (("https", "Shop.Example", 443), "https://shop.example"),
        (("http", "shop.example", None), "http://shop.example"),
        (("http", "shop.example", 443), "http://shop.example:443"),
        (("http", "::1", 8080), "http://[::1]:8080"),
    ],
)
def test_origins_are_told_apart_as_browsers_do(parts: tuple[str, str, int | None], origin: str) -> None:
    assert origin_of(*parts) == origin


@pytest.mark.parametrize(("timeout", "given"), [(None, 2.0), (5, 2.0), (1, 1)])
def test_the_remaining_time_bounds_a_time_out(timeout: float | None, given: float) -> None:
    assert time_limit(timeout) == timeout
    with virtual_time() as clock, deadline("2s"):
        assert time_limit(timeout) == pytest.approx(given)
        clock.advance(1.9999)
        assert time_limit(timeout) == 0.001  # 0 would mean not to wait
