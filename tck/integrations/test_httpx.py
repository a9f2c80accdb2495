"""Tests of httpx alone: streams, time-outs for each step, tasks that are cancelled, trio, transports of other kinds."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from faulttolerance import Guard, configure, deadline, guards, retry
from faulttolerance.integrations.httpx import AsyncGuardedTransport, CircuitOpen, GuardedTransport
from faulttolerance.policies import Bulkhead, CircuitBreaker, Retry, Timeout
from faulttolerance.testing import no_wait, virtual_time
from kit.backend import Answer, Backend, backend
from kit.surroundings import needs, run

pytestmark = pytest.mark.outside

BUSY = Answer(503, b"busy")
ONE: Any = {"limits": httpx.Limits(max_connections=1), "verify": ssl.create_default_context()}
RETRY = Retry(max_retries=2, delay=0, jitter=0, retry_on=httpx.HTTPError)


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


class _Watched(httpx.AsyncHTTPTransport):
    """Records the failing answers that were not closed to the end; the client never sees these."""

    def __init__(self) -> None:
        super().__init__(verify=ONE["verify"])
        self.unclosed: list[httpx.AsyncByteStream] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if response.status_code == 503:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _WatchedStream(response.stream, self.unclosed)
        return response


class _WatchedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, unclosed: list[httpx.AsyncByteStream]) -> None:
        self.stream, self.unclosed = stream, unclosed
        unclosed.append(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self.stream:
            yield part

    async def aclose(self) -> None:
        await self.stream.aclose()
        if self in self.unclosed:
            self.unclosed.remove(self)


@pytest.mark.parametrize("answer", [BUSY, Answer(503, b"x" * 300_000)])
def test_a_task_that_is_cancelled_leaves_nothing_behind(served: Backend, answer: Answer) -> None:
    """At every step, each failing answer is closed to its end, and the only permit serves the next request."""

    async def main() -> int:
        sends = _Watched()
        transport = AsyncGuardedTransport(transport=sends, retry=RETRY, bulkhead=Bulkhead(1), timeout=Timeout("30s"))
        step, cancelled = 0, 0
        async with httpx.AsyncClient(transport=transport) as client:
            while True:
                served.will(answer, Answer())
                task = asyncio.create_task(client.get(served.url))
                for _ in range(step):
                    await asyncio.sleep(0)
                if task.done():
                    assert task.result().status_code == 200
                    return cancelled
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                cancelled += 1
                served.will(Answer())
                assert (await client.get(served.url)).text == "served"
                assert sends.unclosed == []
                step += 1 + step // 20

    assert asyncio.run(main()) > 10


@pytest.mark.parametrize("answer", [Answer(), BUSY])
@pytest.mark.parametrize("step", range(12))
def test_requests_that_wait_for_a_connection_and_are_cancelled_lose_none(
    served: Backend, answer: Answer, step: int
) -> None:
    """This holds for a connection that was just assigned to one of them, too: httpcore 1.0.9 never takes it back."""

    async def main() -> str:
        sends = httpx.AsyncHTTPTransport(**ONE)
        transport = AsyncGuardedTransport(transport=sends, retry=RETRY)
        async with httpx.AsyncClient(transport=transport, timeout=5) as client:
            served.will(*[answer] * 9, Answer())
            tasks = [asyncio.create_task(client.get(served.url)) for _ in range(3)]
            for _ in range(step):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            served.will(Answer())
            return (await client.get(served.url, timeout=1)).text

    assert asyncio.run(main()) == "served"


def test_many_tasks_share_one_circuit(served: Backend) -> None:
    async def main() -> list[int | str]:
        transport = AsyncGuardedTransport(
            transport=httpx.AsyncHTTPTransport(verify=ONE["verify"]),
            circuit_breaker=CircuitBreaker(request_volume_threshold=4, delay="1h"),
        )
        async with httpx.AsyncClient(transport=transport) as client:
            served.will(BUSY)
            await asyncio.gather(*(client.post(served.url) for _ in range(4)))
            found = await asyncio.gather(*(client.get(served.url) for _ in range(8)), return_exceptions=True)
            return [type(one).__name__ for one in found]

    assert asyncio.run(main()) == ["CircuitOpen"] * 8


def test_in_trio_a_transport_says_that_it_needs_asyncio_before_it_sends() -> None:
    """A request that need not wait works."""
    needs("trio")
    lines = run(
        """
        import httpx, trio
        from faulttolerance.policies import CircuitBreaker, Timeout
        from faulttolerance.integrations.httpx import AsyncGuardedTransport

        def answer(request):
            print("sent")
            return httpx.Response(200)

        async def ask(**policies):
            transport = AsyncGuardedTransport(transport=httpx.MockTransport(answer), name="shop", **policies)
            async with httpx.AsyncClient(transport=transport) as client:
                try:
                    print(await client.get("http://shop.example"))
                except Exception as error:
                    print(type(error).__name__, error)

        trio.run(ask)
        trio.run(lambda: ask(timeout=Timeout("1s")))
        trio.run(lambda: ask(circuit_breaker=CircuitBreaker()))
        """
    )

    said = "FaultToleranceException shop needs asyncio, and was called in a task of trio"
    assert lines == [said, said, "sent", "<Response [200 OK]>"]


# Streams


def test_a_stream_is_read_by_the_code_that_asked_for_it(served: Backend) -> None:
    """The permit is free while the body is read."""
    served.will(Answer(body=b"x" * 100_000))
    sends = httpx.HTTPTransport(verify=ONE["verify"])
    with (
        httpx.Client(transport=GuardedTransport(transport=sends, bulkhead=Bulkhead(1))) as client,
        client.stream("GET", served.url) as first,
        client.stream("GET", served.url) as second,
    ):
        assert {len(first.read()), len(second.read())} == {100_000}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_failing_answer_is_a_stream_like_any_other(served: Backend, method: str) -> None:
    """This holds whether or not the guard has read it, and for any encoding."""
    served.will(Answer(503, b"\x1f\x8b", headers=(("Content-Encoding", "identity"),)))
    with httpx.Client(transport=GuardedTransport(transport=httpx.HTTPTransport(**ONE), retry=RETRY)) as client:
        for _ in range(2):
            with client.stream(method, served.url) as response:
                assert b"".join(response.iter_raw()) == b"\x1f\x8b"
                assert response.http_version == "HTTP/1.1"


def test_a_switch_of_protocols_passes(served: Backend) -> None:
    served.will(Answer(101, headers=(("Connection", "upgrade"), ("Upgrade", "tea"))))
    asked = {"Connection": "upgrade", "Upgrade": "tea"}
    with (
        httpx.Client(transport=GuardedTransport(transport=httpx.HTTPTransport(**ONE), retry=RETRY)) as client,
        client.stream("GET", served.url, headers=asked) as response,
    ):
        assert response.status_code == 101
        assert "network_stream" in response.extensions


def test_a_body_that_was_read_into_memory_is_sent_again(served: Backend) -> None:
    served.will(BUSY, Answer())
    transport = GuardedTransport(transport=httpx.HTTPTransport(**ONE), retry=RETRY)
    hooks: Any = {"request": [lambda request: request.read()]}
    with httpx.Client(transport=transport, event_hooks=hooks) as client:
        assert client.put(served.url, content=io.BytesIO(b"body")).status_code == 200

    assert [received.body for received in served.received] == [b"body"] * 2


# Time


def test_each_step_gets_the_remaining_time_when_it_begins() -> None:
    seen: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        steps = request.extensions["timeout"]
        seen.append([steps.get(step) for step in ("connect", "read", "pool", "unknown")])
        clock.advance(1.5)
        seen.append([steps.get(step) for step in ("connect", "read", "pool", "unknown")])
        return httpx.Response(200)

    inner = httpx.MockTransport(answer)
    own = httpx.Timeout(connect=1, read=None, write=5, pool=5)
    transport = GuardedTransport(transport=inner, timeout=Timeout("2s"))
    with virtual_time() as clock, httpx.Client(transport=transport, timeout=own) as client:
        request = client.build_request("GET", "http://shop.example")
        client.send(request)
        assert seen == [[1, 2.0, 2.0, 2.0], [pytest.approx(0.5)] * 4]
        assert request.extensions["timeout"] == own.as_dict()  # for the body: the remaining time does not count

        seen.clear()
        with deadline("1800ms"):
            client.send(request)
        assert seen == [[1, *[pytest.approx(1.8)] * 3], [pytest.approx(0.3)] * 4]


# Requests that may be sent again


def test_no_configuration_sends_a_request_twice_that_may_be_sent_only_once(served: Backend) -> None:
    served.will(BUSY, Answer())
    with httpx.Client(transport=GuardedTransport(transport=httpx.HTTPTransport(**ONE), retry=RETRY)) as client:
        configure(properties={"Retry/retryOn": "builtins.BaseException", "Retry/maxRetries": 9})
        assert client.post(served.url).status_code == 503

    assert served.methods == ["POST"]


def test_a_retry_of_the_application_around_the_client_sends_a_post_again(served: Backend) -> None:
    served.will(BUSY, Answer())
    with httpx.Client(transport=GuardedTransport(transport=httpx.HTTPTransport(**ONE))) as client:

        @retry(max_retries=1, jitter=0, retry_on=httpx.HTTPStatusError)
        def order() -> str:
            return client.post(served.url).raise_for_status().text

        assert order() == "served"
    assert served.methods == ["POST"] * 2


def test_a_guard_inside_the_transport_decides_for_itself(served: Backend) -> None:
    """A guard around fetching a token is such a guard: the token is not the request."""
    tried: list[int] = []
    inside = Guard(retry=Retry(max_retries=2, jitter=0, retry_on=OSError))

    def token() -> str:
        tried.append(1)
        if len(tried) < 3:
            raise OSError
        return "token"

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=inside.call(token))

    with httpx.Client(transport=GuardedTransport(transport=httpx.MockTransport(answer), retry=RETRY)) as client:
        assert client.post("http://shop.example").text == "token"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_control_flow_passes(error: type[BaseException]) -> None:
    """Rule R0: it is neither retried nor counted, and the guard holds nothing afterwards."""
    answers: list[Any] = [error, httpx.Response(200)]

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.pop(0)
        if found is error:
            raise error
        return found  # type: ignore[no-any-return]

    transport = GuardedTransport(
        transport=httpx.MockTransport(answer),
        retry=RETRY,
        circuit_breaker=CircuitBreaker(request_volume_threshold=1),
        bulkhead=Bulkhead(1),
    )
    with httpx.Client(transport=transport) as client:
        with pytest.raises(error):
            client.get("http://shop.example")
        assert client.get("http://shop.example").status_code == 200


def test_the_guard_of_a_transport_is_found_and_reported() -> None:
    """It has a name, as every guard has."""
    with httpx.Client(transport=GuardedTransport(name="found", transport=httpx.MockTransport(lambda _: BAD))) as client:
        for _ in range(20):
            client.post("http://shop.example")
        with pytest.raises(CircuitOpen, match="found: circuit breaker is open after HTTPStatusError"):
            client.post("http://shop.example")
        found = [guard for guard in guards() if guard.name == "found"]

    assert [guard.partitions for guard in found] == [1]


BAD = httpx.Response(502)
