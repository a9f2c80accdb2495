"""Access to the status page: the hosts for which it answers, and the users whom the application admits."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import FaultToleranceDefinitionException, Guard, circuit_breakers
from faulttolerance.policies import CircuitBreaker
from faulttolerance.web import Request, asgi_app, wsgi_app
from kit.web import Ask, ask_asgi, ask_wsgi, served_by_uvicorn, served_by_wsgiref

KINDS: list[tuple[Callable[..., Any], Ask]] = [(asgi_app, ask_asgi), (wsgi_app, ask_wsgi)]
EVERYWHERE = "192.0.2.1"
LOOPBACK = "127.0.0.1"


@pytest.fixture(autouse=True)
def payments() -> Iterator[Guard]:
    guard = Guard(name="watched.payments", circuit_breaker=CircuitBreaker(delay="1h"))
    yield guard
    guard.close()


# Hosts


def status(host: str, at: str, hosts: Any = ()) -> int:
    """Return the status of the answer, which both protocols have in common."""
    answers = {ask(make(hosts=hosts), "GET", "/", {"host": host}, at=at).status for make, ask in KINDS}
    [answer] = answers
    return answer


@pytest.mark.parametrize("at", [LOOPBACK, "127.0.1.1", "::1", "::ffff:127.0.0.1"])
def test_on_loopback_only_the_names_of_this_machine_are_known(at: str) -> None:
    """A page elsewhere may rebind its own name to this machine, and would read everything."""
    own = ["localhost", "LocalHost:8000", "ops.localhost", "127.0.0.1", "127.0.0.1:9000", "[::1]:8000", "127.8.8.8"]

    assert {status(name, at) for name in (*own, socket.gethostname())} == {200}
    others = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "8.8.8.8"]
    assert [name for name in others if status(name, at) != 421] == []


def test_elsewhere_all_names_are_known_unless_hosts_limits_them() -> None:
    """A service on the network has names that it cannot guess."""
    assert status("evil.example", EVERYWHERE) == 200
    assert status("evil.example", EVERYWHERE, "shop.example") == 421


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("shop.example", True),
        ("SHOP.example:8443", True),
        ("ops.shop.internal", True),
        ("shop.internal", False),
        ("xshop.example", False),
        ("shop.example.evil.example", False),
        ("", False),
    ],
)
def test_hosts_are_names_or_patterns(host: str, known: bool) -> None:
    """Case and port do not count; a request without a name matches none of them."""
    hosts = ["shop.example", "*.SHOP.internal"]

    assert status(host, EVERYWHERE, hosts) == (200 if known else 421)


def test_on_loopback_hosts_are_known_beside_the_names_of_this_machine() -> None:
    """A proxy on the same machine passes on the name that it was asked for."""
    assert status("shop.example", LOOPBACK, "shop.example") == status("localhost", LOOPBACK, "shop.example") == 200
    assert status("evil.example", LOOPBACK, "shop.example") == 421
    assert status("anything", LOOPBACK, "*") == 200


@pytest.mark.parametrize(("make", "ask"), KINDS, ids=["asgi", "wsgi"])
def test_for_another_host_nothing_is_shown_or_done_and_no_hook_is_asked(make: Callable[..., Any], ask: Ask) -> None:
    """Pages and assets count, and so does every address of the request."""
    asked: list[object] = []
    app = make(hosts="shop.example", authorize=asked.append, admit=asked.append)
    own = {"host": "evil.example", "origin": "http://evil.example", "x-requested-by": "x"}

    answers = [ask(app, "GET", path, own) for path in ("/", "/health", "/ready", "/page.js", "/nothing")]
    answers.append(ask(app, "POST", "/guards/watched.payments/force-open", own))

    assert {answer.status for answer in answers} == {421}
    assert "watched" not in "".join(answer.text for answer in answers)
    assert (asked, circuit_breakers.state("watched.payments")) == ([], "closed")


@pytest.mark.parametrize("make", [asgi_app, wsgi_app])
@pytest.mark.parametrize("hosts", [3, ["shop.example", ""], [b"shop.example"]])
def test_hosts_that_are_no_names_are_refused(make: Callable[..., Any], hosts: Any) -> None:
    with pytest.raises(FaultToleranceDefinitionException, match=r"_app\(hosts\) is .*; allowed: names of hosts"):
        make(hosts=hosts)


# Users who may look


def test_a_user_whom_the_application_does_not_admit_sees_nothing() -> None:
    """Pages, probes, assets and the names of guards are hidden; the hook decides by the request."""
    for make, ask in KINDS:
        app = make(admit=lambda request: request.path == "/ready" or request.headers.get("authorization") == "right")
        for path in ("/", "/guards/watched.payments", "/guards/nobody", "/health", "/page.js", "", "/nothing"):
            answer = ask(app, "GET", path)
            assert (answer.status, answer.json()["error"]) == (403, "not admitted")
        assert ask(app, "HEAD", "/").body == b""
        assert ask(app, "GET", "/ready").status == 200
        assert ask(app, "GET", "/guards/watched.payments", {"authorization": "right"}).status == 200
        assert ask(app, "GET", "/nothing", {"authorization": "right"}).status == 404


def test_a_user_who_acts_is_admitted_and_then_authorised() -> None:
    """The second hook is asked only about guards that the user may look at."""
    for make, ask in KINDS:
        asked: list[str] = []

        def admit(request: Request, asked: list[str] = asked) -> bool:
            asked.append("admit")
            return "looker" in request.headers["authorization"]

        def authorize(request: Request, asked: list[str] = asked) -> str | None:
            asked.append(request.action)
            return "alice" if "actor" in request.headers["authorization"] else None

        app = make(admit=admit, authorize=authorize)
        path = "/guards/watched.payments/force-open"
        found = [
            ask(app, "POST", path, {"x-requested-by": "x", "authorization": who}).status
            for who in ("actor", "looker", "looker actor")
        ]

        assert found == [403, 403, 200]
        assert asked == ["admit", "admit", "force-open", "admit", "force-open"]
        circuit_breakers.reset("watched.payments")


def test_a_hook_that_fails_admits_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, and its words are not sent; a hook that raises ``StopIteration`` does not hang."""

    def fail(request: Request) -> bool:
        raise LookupError("password=hunter2")

    for make, ask in KINDS:
        for hook in (fail, lambda request: next(iter(()))):
            answer = ask(make(admit=hook), "GET", "/")
            assert answer.status == 500
            assert "hunter2" not in answer.text
    levels = [record.levelname for record in caplog.records]
    caplog.clear()  # tracebacks hold the frames of this test, and these its guard
    assert levels == ["ERROR"] * 4


def test_a_hook_may_be_awaited_under_asgi_alone() -> None:
    """Under WSGI nothing is shown, as nothing awaits it."""

    async def admit(request: Request) -> bool:
        await asyncio.sleep(0)
        return request.headers.get("authorization") == "right"

    found = [ask_asgi(asgi_app(admit=admit), "GET", "/", {"authorization": who}).status for who in ("right", "wrong")]

    assert found == [200, 403]
    assert ask_wsgi(wsgi_app(admit=admit), "GET", "/").status == 500
    with pytest.raises(FaultToleranceDefinitionException, match=r"asgi_app\(admit\) is 'alice'; allowed: a callable"):
        asgi_app(admit="alice")  # type: ignore[arg-type]


@pytest.mark.parametrize("served", [lambda: served_by_uvicorn(asgi_app()), lambda: served_by_wsgiref(wsgi_app())])
def test_a_rebound_name_reaches_nothing_of_a_server_on_this_machine(served: Callable[[], Any]) -> None:
    """The address that a header claims does not count, though uvicorn believes it from clients on loopback."""
    with served() as address:
        port = int(address.rpartition(":")[2])
        found = []
        for host in ("evil.example", f"localhost:{port}"):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/health", headers={"Host": host, "X-Forwarded-For": "192.0.2.66"})
            found.append(connection.getresponse().status)
            connection.close()

    assert found == [421, 200]
