"""Django, under WSGI and ASGI: refusals, time-outs, deadlines of requests, and a backend that dies.

Its settings are those of a process; so all of it runs in one of its own.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from kit.surroundings import needs, run

pytestmark = pytest.mark.outside

_PROGRAM = """
import asyncio, json, socket, sys, threading, urllib.request, warnings
sys.path.insert(0, {tck!r})
import httpx
from django.conf import settings
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.urls import path
from faulttolerance import *
from faulttolerance.policies import *
from kit.serving import Backend, asgi, wsgi

one = Guard(bulkhead=Bulkhead(1))
backend = Guard(circuit_breaker=CircuitBreaker(request_volume_threshold=2, delay="30s"))
limited = Guard(rate_limit=RateLimit(1, window="30s"))
address = ""
ended = []

def full(request):
    with one.attempt():
        return free(request)

def free(request):
    one.call(int)
    return HttpResponse("let in")

def limit(request):
    limited.call(int)
    return HttpResponse("let in")

def late(request):
    raise TimeoutException("shop.late")

def group(request):
    raise ExceptionGroup("", [BulkheadException("shop.full")])

def broken(request):
    raise ExceptionGroup("", [BulkheadException("shop.full"), ValueError("secret")])

def ask(request, part=""):
    with backend.attempt(), urllib.request.urlopen(address + "/" + part, timeout=30) as answer:
        return HttpResponse(answer.read())

def hang(request):
    try:
        with one.attempt():
            sleep(30)
    finally:
        ended.append("hang")

def patient(request):
    try:
        silent, peer = socket.socketpair()
        with silent, peer:
            silent.settimeout(remaining())
            silent.recv(1)
    except TimeoutError:
        if request.GET:
            raise Http404
        raise

async def async_hang(request):
    try:
        async with one.attempt():
            await asyncio.sleep(30)
    finally:
        ended.append("async_hang")

async def async_full(request):
    async with one.attempt():
        one.call(int)

def left(request):
    return HttpResponse(str(remaining()))

def swallow(request):
    try:
        sleep(30)
    except Interrupted:
        return HttpResponse("late, and complete")

async def async_swallow(request):
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        return HttpResponse("late, and complete")

def stream(request):
    def parts():
        for _ in range(3):
            yield f"{{remaining()}} "
            threading.Event().wait(0.03)
    return StreamingHttpResponse(parts())

async def async_stream(request):
    async def parts():
        async with one.attempt():
            for _ in range(3):
                yield f"{{remaining()}} "
                await asyncio.sleep(0.03)
    return StreamingHttpResponse(parts())

async def held(request):
    async def parts():
        async with one.attempt():
            yield "begun"
            await asyncio.sleep(30)
    return StreamingHttpResponse(parts())

views = [full, free, limit, late, group, broken, hang, patient, async_hang, async_full, left, swallow, async_swallow]
urlpatterns = [path(view.__name__, view) for view in [*views, stream, async_stream, held]]
urlpatterns += [path("ask", ask), path("half", ask, {{"part": "half"}})]
settings.configure(
    DEBUG=False, ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", FAULTTOLERANCE_LONGEST="20s",
    LOGGING_CONFIG=None, MIDDLEWARE=["faulttolerance.integrations.django.FaultToleranceMiddleware"],
)
import django
django.setup()

def tell(server, client, view, **headers):
    answer = client.get("/" + view, headers=headers)
    after = answer.headers.get("Retry-After")
    known = "shop" not in answer.text and "secret" not in answer.text
    print(json.dumps([server, view, answer.status_code, answer.headers["Content-Type"], after, known, answer.text]))
    return answer
"""

_SYNC = """
from django.core.wsgi import get_wsgi_application
with wsgi(get_wsgi_application()) as url, httpx.Client(base_url=url, timeout=30) as client:
    for view in ("full", "async_full", "late", "group", "broken", "limit", "limit"):
        tell("wsgi", client, view)
    with Backend() as server:
        address = server.url
        tell("wsgi", client, "ask")
        killer = threading.Thread(target=server.die_in_the_middle)
        killer.start()
        tell("wsgi", client, "half")
        killer.join()
        tell("wsgi", client, "ask")
    for view in ("patient", "patient?missing=1", "hang", "free", "left", "stream", "swallow"):
        tell("wsgi", client, view, **{"X-Request-Timeout-Ms": "60"})
    tell("wsgi", client, "hang", **{"grpc-timeout": "0S", "Accept": "text/html"})
    tell("wsgi", client, "left", **{"grpc-timeout": "99999999H"})
    print(ended)
"""

_ASYNC = """
from django.core.asgi import get_asgi_application
with asgi(get_asgi_application()) as url, httpx.Client(base_url=url, timeout=30) as client:
    for view in ("full", "async_full", "late", "group", "broken"):
        tell("asgi", client, view)
    for view in ("async_hang", "free", "left", "async_stream", "async_swallow"):
        tell("asgi", client, view, **{"X-Request-Timeout-Ms": "60"})
    with client.stream("GET", "/held") as answer:
        parts = answer.iter_text()
        print(next(parts), client.get("/free").status_code)
    from kit.waiting import wait_until
    wait_until(lambda: client.get("/free").status_code == 200)
    print(ended)
"""


@functools.cache
def told() -> tuple[list[Any], list[str]]:
    """Return view, status, type, wait, secrecy and text for the requests of both, and the other lines."""
    needs("django", "httpx", "uvicorn", "werkzeug")
    lines = run(_PROGRAM.format(tck=str(Path(__file__).parents[1])) + _SYNC + _ASYNC)
    return [json.loads(line) for line in lines if line[:2] == '["'], [line for line in lines if line[:2] != '["']


def statuses(server: str) -> list[tuple[str, int]]:
    return [(view, status) for where, view, status, *_ in told()[0] if where == server]


def texts(server: str) -> dict[str, str]:
    return {view: text for where, view, _, _, _, _, text in told()[0] if where == server}


@pytest.mark.parametrize("server", ["wsgi", "asgi"])
def test_refusals_and_time_outs_have_their_status_and_other_failures_do_not(server: str) -> None:
    """A group counts as the refusals that it is made of; a refusal beside an error is an error."""
    expected = {"full": 503, "async_full": 503, "late": 504, "group": 503, "broken": 500}

    assert dict(statuses(server)[:5]) == expected
    assert all(hides for where, *_, hides, _ in told()[0] if where == server)


def test_a_rate_limit_says_when_to_come_back() -> None:
    limits = [(status, wait) for _, view, status, _, wait, *_ in told()[0] if view == "limit"]

    assert limits == [(200, None), (429, "30")]


def test_a_backend_that_dies_in_the_middle_opens_the_circuit() -> None:
    """The application answers the backend's failures; once the circuit is open, callers learn when to come back."""
    asked = [(status, wait) for _, view, status, _, wait, *_ in told()[0] if view in ("ask", "half")]

    assert asked == [(200, None), (500, None), (503, "30")]


def test_a_request_ends_when_its_caller_waits_no_longer() -> None:
    """A thread is interrupted, a task cancelled; the permits are free again, and a late request does not begin."""
    assert statuses("wsgi")[-7:-5] == [("hang", 504), ("free", 200)]
    assert statuses("wsgi")[-2] == ("hang", 504)
    assert statuses("asgi")[5:7] == [("async_hang", 504), ("free", 200)]
    assert told()[1] == ["['hang']", "begun 503", "['hang', 'async_hang']"]


def test_a_failure_that_django_does_not_answer_is_a_time_out_once_the_request_is_late() -> None:
    """A client that ends by itself at the deadline raises an exception of its own."""
    late = [(view, status) for view, status in statuses("wsgi") if view.startswith("patient")]

    assert late == [("patient", 504), ("patient?missing=1", 404)]


def test_the_time_in_a_header_counts_up_to_the_setting() -> None:
    assert 0 < float(texts("asgi")["left"]) <= 0.06
    assert 15 < float(texts("wsgi")["left"]) <= 20


def test_a_response_that_has_begun_or_is_complete_is_not_cut() -> None:
    assert (texts("wsgi")["stream"], texts("asgi")["async_stream"]) == ("None " * 3, "None " * 3)
    assert {texts("wsgi")["swallow"], texts("asgi")["async_swallow"]} == {"late, and complete"}
