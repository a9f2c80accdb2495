"""Starlette, served by uvicorn: refusals, time-outs, deadlines of requests, and a backend that dies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from faulttolerance import BulkheadException, FaultToleranceDefinitionException, Guard, TimeoutException, remaining
from faulttolerance.policies import Bulkhead, CircuitBreaker, RateLimit, Timeout
from kit.serving import Backend, asgi
from kit.waiting import wait_until

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from anyio import CancelScope, CapacityLimiter, to_thread  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.background import BackgroundTask  # noqa: E402
from starlette.concurrency import run_in_threadpool  # noqa: E402
from starlette.middleware.base import BaseHTTPMiddleware  # noqa: E402
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402

from faulttolerance.integrations.starlette import DeadlineMiddleware, install  # noqa: E402

PASSED = {"X-Request-Timeout-Ms": "60"}
NO_REUSE = httpx.Limits(max_keepalive_connections=0)  # uvicorn closes connections after a failure


class Shop:
    """One application for all tests, with the records that they read."""

    def __init__(self) -> None:
        self.one = Guard(bulkhead=Bulkhead(1))
        self.backend = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=2, delay="30s"))
        self.limited = Guard(rate_limit=RateLimit(1, window="30s"))
        self.address = ""
        self.cancelled = threading.Event()
        self.thread_may_end = threading.Event()
        self.afterwards: list[float | None] = []
        self.app = Starlette(
            routes=[
                Route(f"/{name}", getattr(self, name))
                for name in ("full", "free", "limit", "late", "group", "both", "broken", "ask", "half", "hang", "time")
            ]
            + [
                Route(f"/{name}", getattr(self, name))
                for name in ("join", "busy", "stream", "held", "background", "thread")
            ]
        )

    async def full(self, request: Any) -> Response:
        async with self.one.attempt():
            self.one.call(print)
        return Response("let in")

    async def free(self, request: Any) -> Response:
        self.one.call(int)
        return Response("let in")

    async def limit(self, request: Any) -> Response:
        async with self.limited.attempt():
            return Response("let in")

    async def late(self, request: Any) -> Response:
        await Guard(timeout=Timeout(1)).call_async(asyncio.sleep, 30)
        return Response("in time")

    async def group(self, request: Any) -> Response:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.full(request))
        return Response("let in")

    async def both(self, request: Any) -> Response:
        raise ExceptionGroup("", [BulkheadException("full"), ValueError("secret")])

    async def broken(self, request: Any) -> Response:
        raise ValueError("secret")

    async def ask(self, request: Any) -> Response:
        return await self._ask("/")

    async def half(self, request: Any) -> Response:
        return await self._ask("/half")

    async def _ask(self, path: str) -> Response:
        async with self.backend.attempt(), httpx.AsyncClient() as client:
            answer = await client.get(self.address + path, timeout=30)
        return PlainTextResponse(answer.text)

    async def hang(self, request: Any) -> Response:
        try:
            async with self.one.attempt():
                await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Response("in time")

    async def join(self, request: Any) -> Response:
        await run_in_threadpool(self.thread_may_end.wait, 30)
        return await self.hang(request)

    async def time(self, request: Any) -> Response:
        return JSONResponse(remaining())

    async def busy(self, request: Any) -> Response:
        while remaining():
            pass  # no turn for the loop, and so no interruption
        return Response("late, and complete")

    async def stream(self, request: Any) -> Response:
        async def parts() -> Any:
            async with self.one.attempt():
                for _ in range(6):
                    yield f"{remaining()} "
                    await asyncio.sleep(0.015)

        return StreamingResponse(parts())

    async def held(self, request: Any) -> Response:
        async def parts() -> Any:
            async with self.one.attempt():
                yield "begun"
                await asyncio.sleep(30)

        return StreamingResponse(parts())

    async def background(self, request: Any) -> Response:
        async def work() -> None:
            await asyncio.sleep(0.09)
            self.afterwards.append(remaining())

        return Response("soon", background=BackgroundTask(work))

    def thread(self, request: Any) -> Response:
        return JSONResponse(remaining())


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Shop, Any]]:
    """Yield the shop that is served once for all tests, and a client of it."""
    shop = Shop()
    install(shop.app)
    with asgi(shop.app) as address, httpx.Client(base_url=address, timeout=30, limits=NO_REUSE) as client:
        client.get("/thread")  # starts the threads that stay
        yield shop, client


@pytest.fixture(scope="module")
def wrapped() -> Iterator[Any]:
    """Yield a client of another shop, behind a middleware of the kind that runs the shop as a task."""
    shop = Shop()

    class Plain(BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            return await call_next(request)

    shop.app.add_middleware(Plain)
    install(shop.app, longest="60ms")
    with asgi(shop.app) as address, httpx.Client(base_url=address, timeout=30, limits=NO_REUSE) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "status"), [("/full", 503), ("/group", 503), ("/late", 504), ("/both", 500), ("/broken", 500)]
)
def test_refusals_and_time_outs_have_their_status_and_other_failures_do_not(
    served: Any, path: str, status: int
) -> None:
    """A group counts as the refusals that it is made of; a refusal beside an error is an error."""
    answer = served[1].get(path)

    assert answer.status_code == status
    assert "secret" not in answer.text
    assert (answer.headers["Content-Type"] == "application/problem+json") == (status != 500)


def test_a_rate_limit_says_when_to_come_back(served: Any) -> None:
    served[1].get("/limit")

    answer = served[1].get("/limit", headers={"Accept": "text/html"})

    assert answer.status_code == 429
    assert 1 <= int(answer.headers["Retry-After"]) <= 30
    assert answer.text.startswith("429 Too Many Requests\n")


@pytest.mark.outside
def test_a_backend_that_dies_in_the_middle_opens_the_circuit(served: Any) -> None:
    """The application answers the backend's failures; once the circuit is open, callers learn when to come back."""
    shop, client = served
    with Backend() as backend:
        shop.address = backend.url
        first = client.get("/ask")
        killer = threading.Thread(target=backend.die_in_the_middle)
        killer.start()
        half = client.get("/half")
        killer.join()
        refused = client.get("/ask")

    assert (first.status_code, first.text) == (200, "hello")
    assert half.status_code == 500
    assert refused.status_code == 503
    assert 25 <= int(refused.headers["Retry-After"]) <= 30


def test_a_request_is_cancelled_when_its_caller_waits_no_longer(served: Any) -> None:
    """Its permit is free again."""
    shop, client = served
    shop.cancelled.clear()

    answer = client.get("/hang", headers=PASSED)

    assert answer.status_code == 504
    assert shop.cancelled.wait(30)
    assert client.get("/free").status_code == 200


def test_a_request_that_waits_for_a_thread_is_cancelled_after_it_and_answered_before(served: Any) -> None:
    """The objects of the thread stay open, and no caller waits for it."""
    shop, client = served
    shop.cancelled.clear()
    shop.thread_may_end.clear()

    answer = client.get("/join", headers=PASSED)
    was_cancelled = shop.cancelled.wait(0.02)
    shop.thread_may_end.set()

    assert answer.status_code == 504
    assert not was_cancelled
    assert shop.cancelled.wait(30)
    assert client.get("/free").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Request-Timeout-Ms": "0"}, 504),
        ({"grpc-timeout": "1u"}, 504),
        ({"grpc-timeout": "99999999H"}, 200),
        ({"grpc-timeout": "soon", "x-request-timeout-ms": "0"}, 504),
        ({"X-Request-Timeout-Ms": "tomorrow"}, 200),
        ({"X-Request-Timeout-Ms": "²"}, 200),
        ({"X-Request-Timeout-Ms": "9" * 5000}, 200),
        ({}, 200),
    ],
)
def test_the_time_in_a_header_is_obeyed_and_an_invalid_header_is_ignored(
    served: Any, headers: dict[str, str], status: int
) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}

    assert served[1].get("/time", headers=encoded).status_code == status


@pytest.mark.parametrize("path", ["/time", "/thread"])
def test_endpoints_know_the_remaining_time(served: Any, path: str) -> None:
    """Endpoints on a thread do, too; the caller's time is kept to three digits."""
    left = served[1].get(path, headers={"X-Request-Timeout-Ms": "54321"}).json()

    assert 40 < left <= 54.3


def test_a_complete_response_is_sent_although_it_is_late(served: Any) -> None:
    """A response that only has to be written is not thrown away."""
    answer = served[1].get("/busy", headers=PASSED)

    assert (answer.status_code, answer.text) == (200, "late, and complete")


def test_a_stream_is_not_cut_once_it_has_begun(served: Any) -> None:
    """The calls of the stream are not cut either: the deadline ended where the response began."""
    answer = served[1].get("/stream", headers=PASSED)

    assert answer.text == "None " * 6


def test_a_background_task_is_not_cut(served: Any) -> None:
    shop, client = served

    answer = client.get("/background", headers=PASSED)

    assert answer.text == "soon"
    wait_until(lambda: shop.afterwards)
    assert shop.afterwards == [None]


def test_a_client_that_leaves_gives_the_permit_back(served: Any) -> None:
    """The cancellation passes through, and no code answers it."""
    _, client = served
    with client.stream("GET", "/held") as answer:
        parts = answer.iter_text()
        assert next(parts) == "begun"
        refused = client.get("/free")

    assert refused.status_code == 503
    wait_until(lambda: client.get("/free").status_code == 200)


def test_deadlines_hold_around_a_middleware_that_runs_the_rest_as_a_task(wrapped: Any) -> None:
    assert wrapped.get("/hang").status_code == 504
    assert wrapped.get("/stream").text.endswith("None " * 5)


def test_a_cap_holds_without_a_header_and_over_one(wrapped: Any) -> None:
    assert wrapped.get("/time").json() <= 0.06
    assert wrapped.get("/time", headers={"X-Request-Timeout-Ms": "5000"}).json() <= 0.06
    assert wrapped.get("/time", headers={"X-Request-Timeout-Ms": "20"}).json() <= 0.02


def test_other_scopes_pass_untouched() -> None:
    """WebSockets get neither an answer nor a deadline, and the failure comes out."""
    testclient = pytest.importorskip("starlette.testclient")
    from starlette.routing import WebSocketRoute

    async def refuse(socket: Any) -> None:
        await socket.accept()
        await socket.send_json(remaining())
        raise BulkheadException("full")

    app = Starlette(routes=[WebSocketRoute("/", refuse)])
    install(app, longest=1000)

    def connect(client: Any) -> None:
        with client.websocket_connect("/") as socket:
            assert socket.receive_json() is None
            socket.receive_text()

    with testclient.TestClient(app) as client, pytest.raises(BulkheadException):
        connect(client)


def test_the_middleware_stands_alone_around_any_application() -> None:
    """A time-out without a response gets one, but a response that has begun gets no second one."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise TimeoutException("late")

    async def send(message: Any) -> None:
        sent.append(message.get("status"))

    async def ask(path: str) -> None:
        scope = {"type": "http", "path": path, "headers": []}
        await DeadlineMiddleware(app, longest="1m")(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(ask("/"))
    assert sent == [504, None]

    with pytest.raises(TimeoutException):
        asyncio.run(ask("/begun"))
    assert sent == [504, None, 200]


def test_an_application_that_answers_after_the_time_out_is_not_heard() -> None:
    """Quart and Django run the handler as a task that goes on, and it ends without a complaint."""
    sent: list[Any] = []
    handlers: list[Any] = []

    async def handler(send: Any) -> None:
        await asyncio.sleep(0.04)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        handlers.append(asyncio.create_task(handler(send)))
        await asyncio.wait(handlers)

    async def send(message: Any) -> None:
        sent.append(message.get("status"))

    async def ask() -> None:
        scope = {"type": "http", "path": "/", "headers": []}
        await DeadlineMiddleware(app, longest="20ms")(scope, None, send)  # type: ignore[arg-type]
        await asyncio.wait(handlers)

    asyncio.run(ask())

    assert sent == [504, None]
    assert handlers[0].cancelled()


def test_the_deadline_of_a_request_that_is_a_task_itself_concerns_no_other_task() -> None:
    """Some servers make the call of the application a task, which has no frame but those of the library."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(30)

    async def send(message: Any) -> None:
        sent.append(message.get("status"))

    async def work() -> str:
        for _ in range(20):
            time.sleep(0.002)  # noqa: ASYNC251  # an interruption of the thread would meet it here
            await asyncio.sleep(0.002)
        return "in time"

    async def serve() -> None:
        scope = {"type": "http", "path": "/", "headers": []}
        other = asyncio.create_task(work())
        request = DeadlineMiddleware(app, longest="20ms")(scope, None, send)  # type: ignore[arg-type]
        await asyncio.wait([asyncio.create_task(request)])
        assert await other == "in time"

    asyncio.run(serve())

    assert sent == [504, None]


def serve_late(app: Any, happened: list[Any]) -> None:
    """Serve a request with a deadline of 20 ms by *app*, and append the status of each message of the answer."""

    async def send(message: Any) -> None:
        happened.append(message.get("status"))

    async def ask() -> None:
        scope = {"type": "http", "path": "/", "headers": []}
        await DeadlineMiddleware(app, longest="20ms")(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(ask())


async def _in_a_shielded_block() -> None:
    with CancelScope(), CancelScope(shield=True), CancelScope():
        await asyncio.sleep(0.04)


async def _on_a_thread() -> None:
    await to_thread.run_sync(time.sleep, 0.04, limiter=CapacityLimiter(1))


@pytest.mark.parametrize("work", [_in_a_shielded_block, _on_a_thread])
def test_a_block_that_anyio_shields_is_not_cut_by_the_deadline(work: Callable[[], Awaitable[None]]) -> None:
    """FastAPI leaves the dependencies of a request in such blocks, and waits for threads, which use what it holds."""
    happened: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await work()
        happened.append("left")
        await asyncio.sleep(30)

    serve_late(app, happened)

    assert happened == [504, None, "left"]


def test_a_late_answer_from_a_shielded_block_is_replaced_by_the_504_and_ends_the_request() -> None:
    """The server meets no cancellation."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with CancelScope(shield=True):
            await asyncio.sleep(0.04)
            await send({"type": "http.response.start", "status": 200, "headers": []})

    serve_late(app, sent)

    assert sent == [504, None]


def test_a_late_answer_after_a_failed_task_group_is_replaced_by_the_504() -> None:
    """A group whose task failed while it waited for the others leaves a request to cancel, before Python 3.13."""
    sent: list[Any] = []

    async def fail() -> None:
        await asyncio.sleep(0.001)
        raise BulkheadException("full")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                tasks.create_task(asyncio.sleep(30))
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        await send({"type": "http.response.start", "status": 503, "headers": []})

    serve_late(app, sent)

    assert sent == [504, None]


def test_a_cap_that_is_no_duration_is_refused() -> None:
    with pytest.raises(FaultToleranceDefinitionException) as caught:
        install(Starlette(), longest="soon")

    assert str(caught.value).startswith("install(longest) is 'soon'; allowed: a duration >= 0")
    install(Starlette(), longest=0)
