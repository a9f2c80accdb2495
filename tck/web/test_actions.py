"""Actions on circuits from the status page: for users whom the application allows, and only from its own pages."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest

from faulttolerance import Guard, circuit_breakers
from faulttolerance.policies import Bulkhead, CircuitBreaker
from faulttolerance.web import Request, asgi_app, wsgi_app
from kit.web import Answer, Ask, ask_asgi, ask_wsgi, asked

HTML = "text/html,*/*;q=0.8"
FORM = "application/x-www-form-urlencoded"
PATH = "/guards/watched.payments"
OWN = {"accept": HTML, "content-type": FORM, "origin": "http://shop.example", "sec-fetch-site": "same-origin"}
"""What a browser sends with a form of the page."""

KINDS: list[tuple[Callable[..., Any], Ask]] = [(asgi_app, ask_asgi), (wsgi_app, ask_wsgi)]


@pytest.fixture(autouse=True)
def payments() -> Iterator[Guard]:
    guard = Guard(name="watched.payments", circuit_breaker=CircuitBreaker(delay="1h"))
    yield guard
    guard.close()


class Page:
    """An application, its hook, and a browser."""

    def __init__(self, make: Callable[..., Any], ask: Ask) -> None:
        self._ask = ask
        self.asked: list[Request] = []
        self.says: Callable[[], object] = lambda: "alice"
        self.app = make(authorize=self._authorize)

    def _authorize(self, request: Request) -> object:
        self.asked.append(request)
        return self.says()

    def ask(self, method: str, target: str, headers: Mapping[str, str] = {}, body: bytes = b"", **more: Any) -> Answer:
        return self._ask(self.app, method, target, headers, body, **more)

    def form(self, target: str = PATH) -> dict[str, str]:
        """Return the fields of the forms of a page."""
        text = self.ask("GET", target, {"accept": HTML}).text
        return {name: re.findall(f'name="{name}" value="([^"]*)"', text)[0] for name in ("process",)}

    def click(self, action: str = "force-open", fields: dict[str, str] | None = None, **headers: str) -> Answer:
        sent = self.form() if fields is None else fields
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", f"{PATH}/{action}", {**OWN, **named}, urlencode(sent).encode())


@pytest.fixture(params=KINDS, ids=["asgi", "wsgi"])
def page(request: pytest.FixtureRequest) -> Page:
    return Page(*request.param)


def state() -> str:
    return circuit_breakers.state("watched.payments")


def test_a_form_of_the_page_acts_once_authorised(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    """The hook gets the request; the log has the action with its user; the browser goes back."""
    caplog.set_level(logging.INFO, "faulttolerance")
    answers = [(page.click(action), state()) for action in ("force-open", "reset", "force-closed")]

    assert [(answer.status, answer.headers["location"]) for answer, _ in answers] == [
        (303, "../../guards/watched.payments")
    ] * 3
    assert [after for _, after in answers] == ["open", "closed", "closed"]
    assert circuit_breakers.snapshot("watched.payments").forced
    [first, *_] = page.asked
    assert (first.method, first.guard, first.action) == ("POST", "watched.payments", "force-open")
    assert (first.client, first.path) == ("192.0.2.7", f"{PATH}/force-open")
    assert "circuit of watched.payments: force-open, by alice at 192.0.2.7" in caplog.messages


def test_a_program_acts_by_a_header_that_no_other_page_can_send(page: Page) -> None:
    """It needs no form; the answer is the new state of the guard."""
    answer = page.ask("POST", f"{PATH}/force-open", {"x-requested-by": "deploy"})

    assert answer.status == 200
    assert answer.json()["circuit"]["state"] == "open"
    assert answer.json()["circuit"]["forced"]
    assert len(page.asked) == 1


def test_it_is_refused_for_users_whom_the_application_refuses(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    """The hook may return any false value."""
    caplog.set_level(logging.INFO, "faulttolerance")
    for no in (False, None, "", 0):
        page.says = lambda no=no: no  # type: ignore[misc]

        assert page.click().status == 403
        assert page.ask("POST", f"{PATH}/force-open", {"x-requested-by": "x"}).status == 403
    assert state() == "closed"
    assert "circuit of watched.payments: force-open was not authorised for somebody at 192.0.2.7" in caplog.messages


def test_a_hook_that_fails_lets_nothing_happen(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, and its message is not sent."""

    def fail() -> object:
        raise LookupError("password=hunter2")

    page.says = fail

    answer = page.click()

    assert (answer.status, state()) == (500, "closed")
    assert "hunter2" not in answer.text
    [record] = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert isinstance(record.exc_info[1], LookupError)  # type: ignore[index]


def test_the_values_that_a_failing_hook_holds_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A hook may be a ``partial`` with a token, or the method of an object that shows one."""

    def has(token: str, request: Request) -> object:
        raise LookupError

    hook = partial(has, "hunter2")
    assert ask_wsgi(wsgi_app(admit=hook), "GET", "/").status == 500

    assert "a hook of the status page failed" in caplog.text
    assert "hunter2" not in caplog.messages[0]


def test_a_hook_that_raises_stop_iteration_fails_as_any_other(page: Page) -> None:
    """A ``next`` without a default raises it; a future would not hold it, and the request would hang."""
    page.says = lambda: next(iter(()))

    assert (page.click().status, state()) == (500, "closed")


def test_control_flow_passes_through(page: Page) -> None:
    """Rule R0: Ctrl-C is no answer of a hook."""

    def interrupted() -> object:
        raise KeyboardInterrupt

    page.says = interrupted

    with pytest.raises(KeyboardInterrupt):
        page.click()
    assert state() == "closed"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"sec_fetch_site": "cross-site", "origin": "http://evil.example"}, "another origin"),
        ({"sec_fetch_site": "same-site", "origin": "http://other.shop.example"}, "another origin"),
        ({"sec_fetch_site": "none"}, "another origin"),
        ({"sec_fetch_site": "same-origin", "origin": "http://evil.example"}, "another origin"),
        ({"origin": "null"}, "another origin"),
        ({"origin": ""}, "another origin"),
        ({"origin": "http://shop.example.evil.example"}, "another origin"),
        ({"origin": "http://shop.example:8080"}, "another origin"),
        ({"origin": "http://["}, "another origin"),
        ({"origin": "http://[::1"}, "another origin"),
        ({"content_type": "text/plain"}, "neither a form"),
        ({"content_type": "multipart/form-data"}, "neither a form"),
    ],
)
def test_a_request_that_another_page_makes_a_browser_send_does_nothing(
    page: Page, headers: dict[str, str], why: str
) -> None:
    """The hook is not asked: it might allow the action for the session of the browser."""
    answer = page.click(**headers)

    assert (answer.status, page.asked, state()) == (403, [], "closed")
    assert why in answer.text


def test_the_header_of_a_program_does_not_help_another_origin(page: Page) -> None:
    """A browser names the origin of its request, with that header as well."""
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert page.ask("POST", f"{PATH}/force-open", {"x-requested-by": "x", **headers}).status == 403
    assert (page.asked, state()) == ([], "closed")


def test_a_form_without_an_origin_does_nothing(page: Page) -> None:
    """Every browser names the origin of a form; a program has a header of its own."""
    sent = {name: value for name, value in OWN.items() if name not in ("origin", "sec-fetch-site")}

    assert page.ask("POST", f"{PATH}/force-open", sent, urlencode(page.form()).encode()).status == 403
    assert page.click(fields={}).status == 409
    assert (page.asked, state()) == ([], "closed")


def test_a_form_that_another_worker_showed_says_so(page: Page) -> None:
    """Its circuits are others; a person can try again until the right worker answers."""
    fields = page.form()

    answer = page.click(fields=fields | {"process": "host/1/2026-01-01T00:00:00+00:00"})

    assert (answer.status, state()) == (409, "closed")
    assert "another process of the service created the form" in answer.text
    assert page.click(fields=fields).status == 303


def test_paths_to_act_take_posts_only(page: Page) -> None:
    """A link, a picture or a prefetch does nothing."""
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        answer = page.ask(method, f"{PATH}/reset", {"x-requested-by": "x"})
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert page.ask("POST", PATH, {"x-requested-by": "x"}).headers["allow"] == "GET, HEAD"
    assert page.ask("POST", f"{PATH}/explode", {"x-requested-by": "x"}).status == 404
    assert page.ask("POST", "/guards/nobody/reset", {"x-requested-by": "x"}).status == 404
    assert page.asked == []


def test_a_guard_without_a_circuit_cannot_be_acted_on(page: Page) -> None:
    guard = Guard(name="watched.pictures", bulkhead=Bulkhead(1))

    answer = page.ask("POST", "/guards/watched.pictures/reset", {"x-requested-by": "x"})

    assert (answer.status, page.asked) == (404, [])
    assert "Act on the circuit" not in page.ask("GET", "/guards/watched.pictures", {"accept": HTML}).text
    assert "Act on the circuit" in page.ask("GET", PATH, {"accept": HTML}).text
    guard.close()


def test_a_guard_may_be_called_like_an_action(page: Page) -> None:
    """The name of the guard is its page; its actions are one level below."""
    guard = Guard(name="watched.payments/reset", circuit_breaker=CircuitBreaker())

    assert page.ask("GET", f"{PATH}/reset").json()["name"] == "watched.payments/reset"
    assert page.ask("POST", f"{PATH}/reset/force-open", {"x-requested-by": "x"}).status == 200
    assert (circuit_breakers.state("watched.payments/reset"), state()) == ("open", "closed")
    guard.close()


def test_a_body_that_is_too_long_is_not_read(page: Page) -> None:
    answer = page.ask("POST", f"{PATH}/force-open", OWN, b"x" * 20_000)

    assert (answer.status, page.asked, state()) == (413, [], "closed")


@pytest.mark.parametrize(
    ("length", "status"),
    [("\xb2", 400), ("-5", 400), ("+5", 400), ("1_0", 400), ("x", 400), ("9" * 5000, 413), ("16385", 413)],
)
def test_a_length_that_is_none_is_refused(length: str, status: int) -> None:
    """Servers of WSGI pass it on as it was sent; the body is not read."""
    found: list[str] = []
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": f"{PATH}/reset", "CONTENT_LENGTH": length}

    wsgi_app(authorize=lambda request: True)(environ, lambda told, headers, info=None: found.append(told) or print)

    assert [told[:3] for told in found] == [str(status)]


NAMES = ["accept", "content-type", "host", "origin", "sec-fetch-site", "x-requested-by"]
"""What the application reads."""


@pytest.mark.parametrize(
    "value", ["", "http://[", "[", ":", "\xb2", ";;q=,=", "text/html;q=nan", "x" * 70_000], ids=ascii
)
def test_a_header_that_makes_no_sense_ends_in_an_answer(page: Page, value: str) -> None:
    """The status is 4xx where it matters, and no exception comes out."""
    for name in NAMES:
        for method, path in (("GET", PATH), ("GET", "/page.css"), ("POST", f"{PATH}/reset")):
            assert page.ask(method, path, {**OWN, name: value}).status < 500, (name, method, path)


def test_the_name_of_a_user_cannot_spoil_the_log(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    """A name may have many lines, change the direction of the text, or never end."""
    caplog.set_level(logging.INFO, "faulttolerance")
    page.says = lambda: "alice\nERROR: all is lost\u202e" + "x" * 9999

    assert page.click().status == 303
    [message] = [one for one in caplog.messages if "force-open" in one]
    assert message.startswith("circuit of watched.payments: force-open, by alice\\nERROR: all is lost\\u202exxx")
    assert len(message) < 300


def test_nothing_is_done_for_a_user_whose_name_cannot_be_written(page: Page) -> None:
    """A user of a database that is out of its session raises, and the log would not say who did it."""

    class User:
        def __str__(self) -> str:
            raise LookupError("out of its session")

    page.says = User

    with pytest.raises(LookupError):
        page.click()
    assert state() == "closed"


def test_a_hook_may_be_awaited() -> None:
    """It runs on the loop of the server."""
    loops: list[object] = []

    async def authorize(request: Request) -> bool:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return request.headers["authorization"] == "Bearer right"

    async def main() -> list[int]:
        app = asgi_app(authorize=authorize)
        found = []
        for token in ("right", "wrong"):
            headers = {"x-requested-by": "x", "authorization": f"Bearer {token}"}
            found.append((await asked(app, "POST", f"{PATH}/force-open", headers)).status)
        loops.append(asyncio.get_running_loop())
        return found

    assert asyncio.run(main()) == [200, 403]
    assert len(set(loops)) == 1


def test_a_request_that_is_cancelled_before_the_hook_has_answered_does_nothing() -> None:
    """Some servers cancel the request of a caller that has disconnected."""

    async def main() -> None:
        reached = asyncio.Event()

        async def authorize(request: Request) -> bool:
            reached.set()
            await asyncio.Event().wait()
            return True

        task = asyncio.create_task(
            asked(asgi_app(authorize=authorize), "POST", f"{PATH}/force-open", {"x-requested-by": "x"})
        )
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert state() == "closed"


def test_a_hook_to_be_awaited_is_refused_by_wsgi() -> None:
    """It is refused where it waits, at a request, which then does nothing."""

    async def authorize(request: Request) -> bool:
        await asyncio.sleep(0)
        return True

    app = wsgi_app(authorize=authorize)
    assert ask_wsgi(app, "POST", f"{PATH}/force-open", {"x-requested-by": "x"}).status == 500
    assert state() == "closed"
