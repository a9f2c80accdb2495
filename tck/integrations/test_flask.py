"""Flask, served by threads of werkzeug: refusals, time-outs, deadlines of requests, and a backend that dies."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    FaultToleranceDefinitionException,
    Guard,
    Interrupted,
    TimeoutException,
    remaining,
    sleep,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, RateLimit
from kit.program import output_of
from kit.serving import Backend, wsgi

httpx = pytest.importorskip("httpx")
flask = pytest.importorskip("flask")

from faulttolerance.integrations.flask import DeadlineMiddleware, install  # noqa: E402

pytestmark = pytest.mark.outside


class Shop:
    """One application for all tests, with the records that they read."""

    def __init__(self) -> None:
        self.one = Guard(bulkhead=Bulkhead(1))
        self.backend = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=2, delay="30s"))
        self.limited = Guard(rate_limit=RateLimit(1, window="30s"))
        self.address = ""
        self.interrupted = threading.Event()
        self.app = flask.Flask(__name__)
        for name in (
            "full",
            "free",
            "limit",
            "late",
            "group",
            "both",
            "broken",
            "ask",
            "half",
            "hang",
            "patient",
            "time",
            "stream",
        ):
            self.app.add_url_rule(f"/{name}", name, getattr(self, name))

    def full(self) -> str:
        with self.one.attempt():
            return self.free()

    def free(self) -> str:
        self.one.call(int)
        return "let in"

    def limit(self) -> str:
        self.limited.call(int)
        return "let in"

    def late(self) -> None:
        raise TimeoutException("late")

    async def group(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(self.full))

    def both(self) -> None:
        raise ExceptionGroup("", [BulkheadException("full"), ValueError("secret")])

    def broken(self) -> None:
        raise ValueError("secret")

    def ask(self) -> str:
        return self._ask("/")

    def half(self) -> str:
        return self._ask("/half")

    def _ask(self, path: str) -> str:
        with self.backend.attempt(), urllib.request.urlopen(self.address + path, timeout=30) as answer:
            return str(answer.read().decode())

    def hang(self) -> str:
        try:
            with self.one.attempt():
                sleep(30)
        finally:
            self.interrupted.set()
        return "in time"

    def patient(self) -> None:
        """Wait as a client does whose own time-out is the remaining time."""
        silent, peer = socket.socketpair()
        with silent, peer:
            silent.settimeout(remaining())
            silent.recv(1)

    def time(self) -> str:
        return str(remaining())

    def stream(self) -> Any:
        def parts() -> Iterator[str]:
            for _ in range(3):
                yield f"{remaining()} "
                threading.Event().wait(0.03)

        return parts()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Shop, Any]]:
    """Yield the shop that is served once for all tests, and a client of it."""
    shop = Shop()
    install(shop.app)
    with wsgi(shop.app) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield shop, client


@pytest.mark.parametrize(
    ("path", "status"), [("/full", 503), ("/group", 503), ("/late", 504), ("/both", 500), ("/broken", 500)]
)
def test_refusals_and_time_outs_have_their_status_and_other_failures_do_not(
    served: Any, path: str, status: int
) -> None:
    """A group counts as the refusals that it is made of; a refusal beside an error is an error."""
    pytest.importorskip("asgiref")  # flask[async]

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


def test_a_request_is_interrupted_when_its_caller_waits_no_longer(served: Any) -> None:
    """The request runs on a thread of the server; its permit is free again."""
    shop, client = served
    shop.interrupted.clear()

    answer = client.get("/hang", headers={"X-Request-Timeout-Ms": "60"})

    assert answer.status_code == 504
    assert shop.interrupted.is_set()
    assert client.get("/free").status_code == 200


def test_a_failure_without_a_handler_is_a_time_out_once_the_request_is_late(served: Any) -> None:
    """A client that ends by itself at the deadline raises an exception of its own."""
    assert served[1].get("/patient", headers={"X-Request-Timeout-Ms": "60"}).status_code == 504


def test_a_request_without_time_does_not_begin(served: Any) -> None:
    shop, client = served
    shop.interrupted.clear()

    answer = client.get("/hang", headers={"grpc-timeout": "0S"})

    assert answer.status_code == 504
    assert not shop.interrupted.is_set()


def test_a_stream_is_not_cut_once_it_has_begun(served: Any) -> None:
    answer = served[1].get("/stream", headers={"X-Request-Timeout-Ms": "60"})

    assert answer.text == "None " * 3


def test_a_cap_holds_without_a_header_and_over_one() -> None:
    shop = Shop()
    install(shop.app, longest="2s")
    client = shop.app.test_client()

    assert 1 < float(client.get("/time").text) <= 2
    assert 1 < float(client.get("/time", headers={"X-Request-Timeout-Ms": "9999"}).text) <= 2
    assert float(client.get("/time", headers={"X-Request-Timeout-Ms": "900"}).text) <= 0.9


@pytest.mark.parametrize("milliseconds", ["60", "0"])
def test_a_test_client_gets_the_answer_that_a_server_sends(milliseconds: str) -> None:
    shop = Shop()
    install(shop.app)
    headers = {"X-Request-Timeout-Ms": milliseconds}

    with ThreadPoolExecutor(1) as elsewhere:
        late = elsewhere.submit(shop.app.test_client().get, "/hang", headers=headers).result()

    assert late.status_code == 504


def test_handlers_of_the_application_still_get_their_exceptions() -> None:
    """One handler is for all exceptions, one for a narrower class; both work while the application tests itself."""
    shop = Shop()
    shop.app.testing = True
    install(shop.app)
    shop.app.register_error_handler(Exception, lambda failure: (type(failure).__name__, 418))
    shop.app.register_error_handler(BulkheadException, lambda failure: ("come back", 409))
    client = shop.app.test_client()

    assert client.get("/both").text == "ExceptionGroup"
    assert client.get("/broken").text == "ValueError"
    assert client.get("/full").status_code == 409
    assert client.get("/late").status_code == 504
    with ThreadPoolExecutor(1) as elsewhere:
        late = elsewhere.submit(client.get, "/patient", headers={"X-Request-Timeout-Ms": "60"}).result()
    assert late.text == "TimeoutError"


def test_a_complete_response_is_sent_although_it_is_late() -> None:
    """A response that began in vain is replaced, in the way that WSGI demands."""
    begun: list[Any] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        try:
            sleep(30)
        except Interrupted:
            if environ["PATH_INFO"] == "/":
                raise
        return [b"late, and complete"]

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
        begun.append((status, exc_info is not None))

    middleware = DeadlineMiddleware(app, longest="20ms")

    assert middleware({"PATH_INFO": "/late"}, start_response) == [b"late, and complete"]
    begun.clear()
    assert b"Gateway Timeout" in b"".join(middleware({"PATH_INFO": "/"}, start_response))
    assert begun == [("200 OK", False), ("504 Gateway Timeout", True)]


def test_a_cap_that_is_no_duration_is_refused() -> None:
    with pytest.raises(FaultToleranceDefinitionException, match=r"install\(longest\) is -1; allowed: a duration >= 0"):
        install(flask.Flask(__name__), longest=-1)


def test_the_middleware_needs_no_flask() -> None:
    """It serves Bottle, Falcon and Pyramid, too, where Flask is not installed."""
    program = """
        import sys
        sys.modules["flask"] = None
        from faulttolerance.integrations.flask import DeadlineMiddleware
        app = DeadlineMiddleware(lambda environ, start_response: [b"answered"], longest="5s")
        print(app({}, print))
        """

    assert output_of(program) == "[b'answered']"
