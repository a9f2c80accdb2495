"""The status page: its answers through ASGI and WSGI, wherever it is mounted."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    circuit_breakers,
    configure,
    guards,
    reload,
    retry,
    testing,
)
from faulttolerance.policies import Bulkhead, CircuitBreaker, FleetWide, RateLimit, Retry
from faulttolerance.testing import MemoryFleet
from faulttolerance.web import asgi_app, reading, wsgi_app
from kit.program import QUIET, output_of
from kit.web import Answer, Ask, ask_asgi, ask_wsgi, asked, served_by_uvicorn, served_by_wsgiref

HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
"""What browsers send."""

KINDS: list[tuple[Callable[..., Any], Ask]] = [(asgi_app, ask_asgi), (wsgi_app, ask_wsgi)]


@pytest.fixture
def payments() -> Iterator[Guard]:
    guard = Guard(
        name="watched.payments",
        retry=Retry(max_retries=1, delay=0, jitter=0, retry_on=ConnectionError),
        circuit_breaker=CircuitBreaker(request_volume_threshold=4, delay="1h"),
    )
    yield guard
    guard.close()


@pytest.fixture(params=KINDS, ids=["asgi", "wsgi"])
def get(request: pytest.FixtureRequest) -> Callable[..., Answer]:
    """Ask a page with default arguments, through either protocol."""
    make, ask = request.param
    app = make(critical="watched.payments*")
    return lambda target, accept="application/json", method="GET": ask(app, method, target, {"accept": accept})


def fail(guard: Guard, times: int) -> None:
    def refused() -> None:
        raise ConnectionError("password=hunter2")

    for _ in range(times):
        with suppress(Exception):
            guard.call(refused)


TABLE = [
    # method, path, Accept, status, media type
    ("GET", "/", HTML, 200, "text/html; charset=utf-8"),
    ("GET", "/", "*/*", 200, "application/json"),
    ("GET", "/", "", 200, "application/json"),
    ("GET", "/", "application/json", 200, "application/json"),
    ("GET", "/", "text/*", 200, "text/html; charset=utf-8"),
    ("GET", "/", "text/html;q=0.5, application/json;q=0.9", 200, "application/json"),
    ("GET", "/", "image/png", 200, "application/json"),
    ("HEAD", "/", HTML, 200, "text/html; charset=utf-8"),
    ("POST", "/", HTML, 405, "text/html; charset=utf-8"),
    ("DELETE", "/health", "*/*", 405, "application/json"),
    ("OPTIONS", "/guards/watched.payments", "*/*", 405, "application/json"),
    ("GET", "/index.json", HTML, 404, "text/html; charset=utf-8"),
    ("GET", "/guards", HTML, 404, "text/html; charset=utf-8"),
    ("GET", "/guards/", HTML, 404, "text/html; charset=utf-8"),
    ("GET", "/?limit=0", "*/*", 200, "application/json"),
    ("GET", "/?limit=-1", "*/*", 400, "application/json"),
    ("GET", "/?limit=%C2%B2", "*/*", 400, "application/json"),
    ("GET", "/?limit=99999999999999999999", "*/*", 400, "application/json"),
    ("GET", "/?q=pay&impaired=1&unknown=x", HTML, 200, "text/html; charset=utf-8"),
    ("GET", "/guards/watched.payments", HTML, 200, "text/html; charset=utf-8"),
    ("GET", "/guards/watched.nobody", "*/*", 404, "application/json"),
    ("GET", "/guards/../../etc/passwd", "*/*", 404, "application/json"),
    ("POST", "/guards/watched.payments/reset", "*/*", 404, "application/json"),
    ("GET", "/guards/watched.payments/reset", "*/*", 404, "application/json"),
    ("GET", "/health", "*/*", 200, "application/json"),
    ("GET", "/health", HTML, 200, "application/json"),
    ("GET", "/ready", "*/*", 200, "application/json"),
    ("HEAD", "/ready", "*/*", 200, "application/json"),
    ("GET", "/page.css", "text/css", 200, "text/css; charset=utf-8"),
    ("GET", "/page.js", "*/*", 200, "text/javascript; charset=utf-8"),
    ("GET", "/icon.svg", "image/*", 200, "image/svg+xml"),
    ("PUT", "/page.css", "*/*", 405, "application/json"),
    ("GET", "/page.py", "*/*", 404, "application/json"),
    ("GET", "/favicon.ico", HTML, 404, "text/html; charset=utf-8"),
]


@pytest.mark.parametrize(("method", "target", "accept", "status", "media"), TABLE)
def test_each_question_has_the_same_answer_through_either_protocol(
    method: str, target: str, accept: str, status: int, media: str, payments: Guard
) -> None:
    """Both protocols share a table of paths, and decide nothing."""
    gc.collect()  # guards of earlier tests that went in between would change the fingerprint
    answers = [ask(make(), method, target, {"accept": accept} if accept else {}) for make, ask in KINDS]

    plain = [timeless(answer) for answer in answers]
    assert plain[0] == plain[1]
    assert (answers[0].status, answers[0].headers["content-type"]) == (status, media)
    assert ("allow" in answers[0].headers) == (status == 405)
    assert (method == "HEAD") == (answers[0].body == b"")
    for answer in answers:
        assert method == "HEAD" or answer.headers["content-length"] == str(len(answer.body))
    assert answers[0].headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answers[0].headers["content-security-policy"]
    if media.startswith("text/html") and method != "HEAD":
        assert answers[0].text.startswith("<!doctype html>")


def timeless(answer: Answer) -> Answer:
    """Return the answer without the second of its making, and without counts of an earlier answer."""
    passing = rb'\d\d:\d\d:\d\d(Z|\+00:00| UTC)|"recent": (null|\{[^}]*\})'
    body = re.sub(passing, b"", answer.body)
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return Answer(answer.status, headers, body)


def test_head_has_the_headers_of_get(payments: Guard, get: Callable[..., Answer]) -> None:
    """The length is that of the answer to GET."""
    for path in ("/health", "/page.js", "/nothing"):
        assert get(path, method="HEAD").headers == get(path).headers


# Answers to programs


def test_the_first_page_shows_the_process_and_all_guards(payments: Guard, get: Callable[..., Answer]) -> None:
    """Guards in trouble come first; the figures are sums of the series of a guard."""
    fail(payments, 5)
    well = [Guard(name=name, bulkhead=Bulkhead(1)) for name in ("watched.b", "watched.a")]

    told = get("/").json()

    assert told["status"] == "down"
    assert told["reasons"] == [told["reasons"][0]]
    assert told["reasons"][0].startswith("watched.payments: CircuitBreaker is open for ")
    assert told["process"]["pid"] == os.getpid()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", told["process"]["started"])
    assert (told["critical"], len(told["fingerprint"])) == (["watched.payments*"], 16)
    assert (told["impaired"], told["total"]) == (1, len(list(guards())))
    names = [one["name"] for one in told["guards"] if one["name"].startswith("watched.")]
    assert names == ["watched.payments", "watched.a", "watched.b"]
    for guard in well:
        guard.close()
    first = told["guards"][0]
    assert first.pop("conditions")["CircuitBreaker"].startswith("open for ")
    assert first == {
        "name": "watched.payments",
        "policies": ["Retry", "CircuitBreaker"],
        "disabled": [],
        "observed": [],
        "impaired": ["CircuitBreaker"],
        "partitions": 0,
        "figures": {"calls": 5, "failed": 5, "retries": 2, "refused": 3},
        "recent": None,
    }


@pytest.fixture
def calls() -> Iterator[Guard]:
    guard = Guard(name="watched.calls", retry=Retry(max_retries=1, delay=0, jitter=0, retry_on=ConnectionError))
    yield guard
    guard.close()


def test_a_guard_shows_its_counts_of_the_last_minute(
    calls: Guard, get: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count since an earlier request, since nothing runs between requests; totals count from the start."""
    now = 1000.0
    monkeypatch.setattr(reading, "_moment", lambda: now)

    def recent() -> Any:
        return get("/guards/watched.calls").json()["recent"]

    calls.call(int)
    assert recent() is None
    fail(calls, 1)
    now += 2
    assert recent() == {"seconds": 2.0, "calls": 1, "failed": 1, "retries": 1}
    for _ in range(12):
        calls.call(int)
        now += 5
        recent()
    assert recent() == {"seconds": 62.0, "calls": 13, "failed": 1, "retries": 1}
    now += 14
    assert recent() == {"seconds": 59.0, "calls": 9, "failed": 0, "retries": 0}
    now += 3600
    assert recent() is None
    now -= 3600
    assert recent() is None


def test_counts_that_begin_anew_have_no_last_minute(calls: Guard, get: Callable[..., Answer]) -> None:
    """Counts of another guard with the same name have none either."""

    def told() -> Any:
        return get("/guards/watched.calls").json()

    for _ in range(3):
        calls.call(int)
    first = told()
    testing.reset()
    calls.call(int)
    anew = told()
    calls.close()
    other = Guard(name="watched.calls", retry=Retry(max_retries=1))
    other.call(int)
    of_another = told()
    other.close()

    assert [one["figures"]["calls"] for one in (first, anew, of_another)] == [3, 1, 1]
    assert [one["recent"] for one in (first, anew, of_another)] == [None] * 3


def test_the_bar_of_outcomes_is_that_of_the_last_minute(calls: Guard, get: Callable[..., Answer]) -> None:
    """It is the bar of all calls since the start where that minute has no call; its text tells the period."""

    def words() -> str:
        [found] = re.findall("</svg><span>([^<]*)</span>", get("/?q=watched.calls", HTML).text)
        return str(found)

    fail(calls, 1)
    first, still = words(), words()
    for _ in range(3):
        calls.call(int)
    last = words()

    assert first == still == "100 % failed since the start"
    assert re.fullmatch(r"all succeeded in \d+ s", last)


def test_the_page_of_a_guard_has_its_values_with_their_sources_and_its_counts(
    payments: Guard, get: Callable[..., Answer]
) -> None:
    configure(properties={"watched.payments/Retry/delay": "3ms"})
    fail(payments, 3)

    told = get("/guards/watched.payments").json()

    [retry, _] = told["configuration"]
    source = "watched.payments/Retry/delay in configure(properties=...)"
    assert retry["parameters"]["delay"]["value"] == "3ms"
    assert retry["parameters"]["delay"]["source"] == source
    assert retry["parameters"]["maxRetries"]["variable"] == "WATCHED_PAYMENTS_RETRY_MAXRETRIES"
    assert {"name": "ft.retry.retries.total", "tags": {}, "value": 2} in told["counts"]
    circuit = {"state": "open", "forced": False, "results": 0, "failures": 0, "opened": 1}
    assert told["circuit"] == circuit | {"last_failure": "ConnectionError"}
    assert told["fingerprint"] == next(one.fingerprint for one in guards() if one.name == "watched.payments")


def test_looking_changes_nothing(payments: Guard, get: Callable[..., Answer]) -> None:
    """A guard that was never called has neither state nor series after the page was read."""
    gc.collect()  # one of this name that a test before has left in a cycle
    for accept in ("application/json", HTML):
        get("/guards/watched.payments", accept)
        get("/", accept)

    [guard] = guards("watched.payments")
    assert (guard.counts, guard.conditions) == ({}, {})


def test_readiness_is_503_while_a_critical_guard_is_down(payments: Guard, get: Callable[..., Answer]) -> None:
    """Health is 200 with the reasons: people and tools read it."""
    before = get("/ready")
    fail(payments, 4)

    after, health = get("/ready"), get("/health")

    assert (before.status, before.json()) == (200, {"status": "up", "reasons": []})
    assert (after.status, health.status) == (503, 200)
    assert after.json()["status"] == health.json()["status"] == "down"
    assert get("/ready", HTML).status == 503


def test_the_filter_finds_names_and_policies(payments: Guard, get: Callable[..., Answer]) -> None:
    """The case does not matter."""
    pictures = Guard(name="watched.pictures", bulkhead=Bulkhead(1))
    fail(payments, 4)

    def found(query: str) -> list[str]:
        return [one["name"] for one in get(f"/?{query}").json()["guards"] if one["name"].startswith("watched.")]

    assert found("q=WATCHED.p") == ["watched.payments", "watched.pictures"]
    assert found("q=bulkh&limit=1000") == ["watched.pictures"]
    assert found("q=watched&impaired=1") == ["watched.payments"]
    assert found("q=watched&limit=1") == ["watched.payments"]
    assert get("/?q=watched&limit=1").json()["matching"] == 2
    assert found("q=nobody") == []
    pictures.close()


def test_messages_of_failures_are_not_shown(payments: Guard, get: Callable[..., Answer]) -> None:
    """The message of an exception may be secret; its class is shown."""
    fail(payments, 5)

    for target in ("/", "/guards/watched.payments", "/health"):
        for accept in (HTML, "application/json"):
            assert "hunter2" not in get(target, accept).text


def test_the_message_of_a_lost_fleet_is_not_shown(get: Callable[..., Answer]) -> None:
    """It names hosts and users of the server; the class of the error is shown, and the log has the rest."""
    fleet = MemoryFleet()
    configure(fleet=fleet)
    shared = Guard(name="watched.shared", rate_limit=RateLimit(1), fleet_wide=FleetWide())
    shared.call(int)
    fleet.lose("hunter2 may not log in to redis.internal")

    for target in ("/", "/guards/watched.shared", "/health", "/ready"):
        text = get(target, "application/json").text
        assert "because of ConnectionError" in text
        assert "hunter2" not in text
    testing.reset()
    shared.close()


def test_nothing_is_cached(get: Callable[..., Answer]) -> None:
    """The state is never stored, and an upgrade shows at once."""
    for target in ("/", "/nothing", "/page.css"):
        assert get(target).headers["cache-control"] == "no-store"
    assert get("/").headers["vary"] == "accept"


# Names

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert('1')>",
    "a/b//c",
    "a b?c#d%2Fe&f=g",
    "caf\u00e9 \u2615",
    "\u202egnp.exe",
    "line\nbreak\x00\x1b[31m",
    "same.json",
    "javascript:alert(1)",
    "x" * 2000,
    "watched/reset",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_only_text(name: str, get: Callable[..., Answer]) -> None:
    """Each guard has a page under its name, and no part of the name is markup."""
    guard = Guard(name=name, retry=Retry(max_retries=1))
    plain = Guard(name="plain", retry=Retry(max_retries=1))

    page = get(f"/guards/{quote(name, safe='/')}", HTML)
    told = get(f"/guards/{quote(name, safe='/')}")
    listed = get(f"/?q={quote(name, safe='')}", HTML)

    assert (page.status, told.status, told.json()["name"], listed.status) == (200, 200, name, 200)
    tags = re.compile(r"<[a-z0-9]+")
    assert len(tags.findall(page.text)) == pytest.approx(len(tags.findall(get("/guards/plain", HTML).text)), abs=2)
    for text in (page.text, listed.text):
        assert "<script>" not in text
        assert "<img" not in text
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)
    guard.close()
    plain.close()


def test_values_and_sources_are_escaped(get: Callable[..., Answer]) -> None:
    """The configuration is, too: the author of a key may be another person than the reader of the page."""
    evil = type("<b>Evil</b>", (Exception,), {})
    guard = Guard(name="watched.<i>", retry=Retry(retry_on=evil))
    configure(properties={"watched.<i>/Retry/maxRetries": "7"})

    page = get("/guards/watched.%3Ci%3E", HTML)

    assert "<b>" not in page.text
    assert "&lt;b&gt;Evil&lt;/b&gt;" in page.text
    assert "watched.&lt;i&gt;/Retry/maxRetries in configure(properties=...)" in page.text
    guard.close()


def test_of_guards_of_one_name_the_last_is_shown(get: Callable[..., Answer]) -> None:
    """Their number is shown: modules are loaded again, factories make classes."""
    gc.collect()

    def client(retries: int) -> type:
        class Client:
            @retry(max_retries=retries)
            def call(self) -> None: ...

        return Client

    kept = [client(1), client(2)]
    name = f"{__name__}.{test_of_guards_of_one_name_the_last_is_shown.__name__}.<locals>.client.<locals>.Client.call"

    told = get(f"/guards/{quote(name)}").json()

    assert len(kept) == told["alike"] == 2
    assert told["configuration"][0]["parameters"]["maxRetries"]["value"] == 2
    assert "2 guards have this name" in get(f"/guards/{quote(name)}", HTML).text


# A thousand guards


def test_a_guard_that_ends_as_it_is_read_is_shown_as_it_was(
    get: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(name="watched.gone", circuit_breaker=CircuitBreaker())
    guard.call(int)
    listed = [*guards("watched.gone")]
    guard.close()
    del guard
    gc.collect()
    monkeypatch.setattr(reading, "guards", lambda *_: listed)

    [shown] = get("/").json()["guards"]
    assert (shown["name"], shown["recent"]) == ("watched.gone", None)
    assert get("/guards/watched.gone", HTML).status == 200


def test_a_thousand_guards_are_read_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows a hundred, and reads only the state of the others."""
    from faulttolerance._control.configure import GuardedMethod

    made = [Guard(name=f"watched.many{number}", retry=Retry(max_retries=1)) for number in range(1000)]
    counted: list[str] = []
    counts = GuardedMethod.counts.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(GuardedMethod, "counts", property(lambda guard: counted.append(guard.name) or counts(guard)))

    page = ask_wsgi(wsgi_app(), "GET", "/?q=watched.many", {"accept": HTML})

    assert page.text.count('<tr role="row">') == 100 + 1
    assert "100 of 1,000 shown" in page.text
    assert len(counted) == 100
    assert len(ask_wsgi(wsgi_app(), "GET", "/?q=watched.many").json()["guards"]) == 1000
    whole = ask_wsgi(wsgi_app(), "GET", "/?q=watched.many&limit=", {"accept": HTML})  # as the button says it
    assert whole.text.count('<tr role="row">') == 1000 + 1
    for guard in made:
        guard.close()


def test_the_loop_goes_on_while_guards_are_read() -> None:
    """A thousand guards take a tenth of a second, in which the server answers other requests."""
    app = asgi_app()
    threads: set[object] = set()

    async def main() -> Answer:
        import threading

        overview = reading.overview

        def noted(*args: Any) -> Any:
            threads.add(threading.current_thread())
            return overview(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "overview", noted)
            answer = await asked(app, "GET", "/")
        threads.discard(threading.current_thread())
        return answer

    assert asyncio.run(main()).status == 200
    assert len(threads) == 1


# Where it is mounted


@pytest.mark.parametrize("prefix", ["", "/status", "/a/b%20c"])
@pytest.mark.parametrize(("make", "ask"), KINDS, ids=["asgi", "wsgi"])
def test_links_are_relative(prefix: str, make: Callable[..., Any], ask: Ask, payments: Guard) -> None:
    """A proxy may put the page anywhere, without a setting for it."""
    for target, root in (
        ("/", "./"),
        ("/guards/watched.payments", "../"),
        ("/a/b/nothing", "../../"),
    ):
        page = ask(make(), "GET", target, {"accept": HTML}, prefix=prefix).text

        links = re.findall(r'(?:href|src|action)="([^"]*)"', page)
        assert links
        assert all(link.startswith(root) for link in links)


@pytest.mark.parametrize(("make", "ask"), KINDS, ids=["asgi", "wsgi"])
def test_the_prefix_itself_leads_to_the_page_below_it(make: Callable[..., Any], ask: Ask) -> None:
    """DispatcherMiddleware of werkzeug asks for it so: without the slash no relative link would hold."""
    answer = ask(make(), "GET", "?q=x", {"accept": HTML}, prefix="/ops/status")

    assert (answer.status, answer.headers["location"]) == (307, "./status/?q=x")


def fetched(address: str, target: str, accept: str = "application/json") -> tuple[int, bytes]:
    host = address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request("GET", target, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_real_servers_show_it(payments: Guard) -> None:
    """It runs alone, under uvicorn and a server of WSGI, with names that are encoded on the way."""
    other = Guard(name="caf\u00e9/\u2615 <b>", retry=Retry(max_retries=1))
    path = f"/guards/{quote(other.name)}"

    with served_by_uvicorn(asgi_app()) as first, served_by_wsgiref(wsgi_app()) as second:
        for address in (first, second):
            assert fetched(address, "/health") == (200, b'{\n  "status": "up",\n  "reasons": []\n}\n')
            status, body = fetched(address, path)
            assert (status, json.loads(body)["name"]) == (200, other.name)
            assert b"<!doctype html>" in fetched(address, "/", HTML)[1]
            assert fetched(address, "/nothing")[0] == 404
    other.close()


def test_starlette_mounts_it(payments: Guard) -> None:
    """It may be below other mounts, and the routes beside it are served as always."""
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def home(request: Any) -> Any:
        return PlainTextResponse("home")

    inner = Mount("/ops", routes=[Mount("/status", asgi_app())])
    app = Starlette(routes=[Route("/", home), inner, Mount("/guards", asgi_app())])

    with served_by_uvicorn(app) as address:
        assert fetched(address, "/") == (200, b"home")
        assert json.loads(fetched(address, "/ops/status/guards/watched.payments")[1])["name"] == "watched.payments"
        assert json.loads(fetched(address, "/guards/guards/watched.payments")[1])["name"] == "watched.payments"
        assert fetched(address, "/ops/status/")[0] == 200
        assert fetched(address, "/ops/status")[0] == 307
        assert fetched(address, "/ops/status/page.js")[0] == 200
    with served_by_uvicorn(asgi_app(), root_path="/proxied") as address:
        assert fetched(address, "/health")[0] == 200


def test_flask_mounts_it(payments: Guard) -> None:
    flask = pytest.importorskip("flask")
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    app = flask.Flask("shop")
    app.add_url_rule("/", view_func=lambda: "home", endpoint="home")
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/ops/status": wsgi_app()})
    client = app.test_client()

    assert client.get("/").text == "home"
    assert client.get("/ops/status/guards/watched.payments").json["name"] == "watched.payments"
    redirect = client.get("/ops/status")
    assert (redirect.status_code, redirect.location) == (307, "./status/")
    assert client.get("/ops/status/", headers={"Accept": HTML}).content_type == "text/html; charset=utf-8"


@pytest.mark.outside
def test_django_has_it_beside_itself() -> None:
    """A project's ``wsgi.py`` has the lines that the page's documentation gives."""
    pytest.importorskip("django")
    page = (Path(__file__).parents[2] / "docs/how-to/status-page.md").read_text()
    [lines] = [block for block in re.findall(r"```python no-run\n(.*?)```", page, re.DOTALL) if "django" in block]
    program = f"""
import io
from wsgiref.util import setup_testing_defaults
import django
from django.conf import settings
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
django.setup()
from django.http import HttpResponse
from django.urls import path
urlpatterns = [path("", lambda request: HttpResponse("home"))]
{lines}
def ask(target):
    environ = {{"PATH_INFO": target}}
    setup_testing_defaults(environ)
    found = []
    body = b"".join(application(environ, lambda status, headers: found.append(status)))
    return found[0][:3], body[:4]
print(ask("/"), ask("/ops/health"), ask("/ops/page.js"), ask("/ops/x"))
print(*(ask(target)[0] for target in ("/ops", "/opsx", "/other")))
"""

    assert output_of(QUIET + program) == (
        "('200', b'home') ('200', b'{\\n  ') ('200', b'// S') ('404', b'{\\n  ')\n307 404 404"
    )


@pytest.mark.parametrize(("make", "ask"), KINDS, ids=["asgi", "wsgi"])
def test_a_name_with_half_of_a_surrogate_pair_is_answered(make: Callable[..., Any], ask: Ask) -> None:
    """Names of files in Windows may have one."""
    guard = Guard(name="watched.\ud800", circuit_breaker=CircuitBreaker())
    circuit_breakers.force_open(guard.name)

    for target in ("/", "/health"):
        for accept in (HTML, "application/json"):
            assert "\\ud800" in ask(make(), "GET", target, {"accept": accept}).text
    guard.close()


def test_a_prefix_that_was_taken_away_already_is_not_taken_away_again() -> None:
    """Old servers take it away; current ones leave it in the path."""
    from faulttolerance.web.asgi import _request

    def path(prefix: str, path: str) -> str:
        scope: dict[str, Any] = {"method": "GET", "path": path, "root_path": prefix, "headers": []}
        return _request(scope).path

    assert [path("/ops", "/ops/health"), path("/ops/", "/ops/health"), path("/ops", "/health")] == ["/health"] * 3
    assert path("/heal", "/health") == "/health"
    assert (path("/ops", "/ops"), path("/ops", "/ops/")) == ("", "/")


def test_a_slash_at_the_end_that_the_caller_did_not_send_is_removed() -> None:
    """Litestar adds one to each path that it mounts; the name of a guard may end in one, too."""
    from faulttolerance.web.asgi import _request

    def path(path: str, sent: bytes) -> str:
        return _request({"method": "GET", "path": path, "raw_path": sent, "headers": []}).path

    assert [path("/ready/", b"/ops/ready"), path("/", b"/ops")] == ["/ready", "/"]
    assert path("/guards/http://a/", b"/ops/guards/http:%2F%2Fa%2F") == "/guards/http://a/"


def test_headers_that_come_twice_are_taken_together() -> None:
    """Servers of WSGI join them; a request with two origins is not allowed."""
    from faulttolerance.web.asgi import _request

    scope = {
        "method": "GET",
        "path": "/",
        "headers": [(b"Accept", b"text/html;q=0"), (b"accept", b"*/*"), (b"cookie", b"a=1"), (b"cookie", b"b=2")],
    }

    request = _request(scope)  # type: ignore[arg-type]

    assert request.headers["accept"] == "text/html;q=0,*/*"
    assert request.cookies == {"a": "1", "b": "2"}


# Requests that are not HTTP, and other threads


def test_a_server_that_asks_for_its_lifespan_serves_it_without_one() -> None:
    """So the protocol says: an application that raises has no lifespan."""
    uvicorn = pytest.importorskip("uvicorn")
    from uvicorn.lifespan.on import LifespanOn

    lifespan = LifespanOn(uvicorn.Config(asgi_app(), lifespan="auto", log_level="critical"))

    asyncio.run(lifespan.startup())

    assert not lifespan.should_exit


def test_it_shows_the_configuration_that_holds_while_that_is_reloaded(payments: Guard) -> None:
    """Each answer has the values of one moment, before or after."""
    app = wsgi_app()
    seen = []
    for retries in (3, 4, 5):
        configure(properties={"watched.payments/Retry/maxRetries": retries})
        told = ask_wsgi(app, "GET", "/guards/watched.payments").json()
        seen.append(told["configuration"][0]["parameters"]["maxRetries"]["value"])

    assert seen == [3, 4, 5]


def test_it_shows_the_last_reload_and_whether_it_failed(get: Callable[..., Answer]) -> None:
    """People read it beside the fingerprint and among the reasons, programs as in health()."""

    class Source:
        def __repr__(self) -> str:
            return "Source(password='hunter2')"

        def __call__(self) -> dict[str, str]:
            if is_gone:
                raise ConnectionError("password=hunter2")
            return {}

    is_gone = False
    configure(sources=[Source()])
    before = get("/", accept="text/html").body.decode()
    is_gone = True
    with pytest.raises(Exception, match="hunter2"):
        reload()
    told, page = get("/health").json(), get("/", accept="text/html").body.decode()

    assert re.search(r"Last reload</dt>\s*<dd>none<", before)
    assert told["reload"].startswith("failed at ")
    assert re.search(r"Last reload</dt>\s*<dd>failed at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC<", page)
    assert told["reasons"][0] in page
    assert "hunter2" not in page


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_shows_itself() -> None:
    """Workers of gunicorn may be forked with the application loaded."""
    program = """
    import json, os
    from faulttolerance.web import reading, wsgi_app
    from datetime import datetime, UTC
    reading._started = datetime(2000, 1, 1, tzinfo=UTC)
    app = wsgi_app()
    def shown():
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/"}
        return json.loads(b"".join(app(environ, lambda status, headers: None)))["process"]
    ours = shown()
    assert ours["pid"] == os.getpid() and ours["started"].startswith("2000")
    child = os.fork()
    if child == 0:
        theirs = shown()
        os._exit(0 if theirs["pid"] == os.getpid() and not theirs["started"].startswith("2000") else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """

    assert output_of(program) == "0"


# Arguments


@pytest.mark.parametrize("make", [asgi_app, wsgi_app])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"critical": 3}, r"_app\(critical\) is 3; allowed: names of guards"),
        ({"critical": ["watched.*", ""]}, r"_app\(critical\) is ''"),
        ({"title": " "}, r"_app\(title\) is ' '; allowed: text"),
        ({"title": None}, r"_app\(title\) is None"),
        ({"authorize": "alice"}, r"_app\(authorize\) is 'alice'; allowed: a callable"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[..., Any], arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(FaultToleranceDefinitionException, match=told):
        make(**arguments)


@pytest.mark.outside
def test_the_package_brings_its_assets_and_imports_them_for_nobody_else() -> None:
    """Such an application pays nothing for it."""
    program = "import sys, faulttolerance; list(faulttolerance.guards()); print('faulttolerance.web' in sys.modules)"

    assert output_of(program) == "False"


def test_circuits_are_untouched_without_a_hook(payments: Guard) -> None:
    """There is no way to act without one, whatever the request is."""
    for make, ask in KINDS:
        for action in ("reset", "force-open", "force-closed"):
            headers = {"x-requested-by": "me", "sec-fetch-site": "same-origin"}
            assert ask(make(), "POST", f"/guards/watched.payments/{action}", headers).status == 404
    assert circuit_breakers.state("watched.payments") == "closed"
