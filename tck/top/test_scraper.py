"""Asking real servers, of which none keeps the others from being shown."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("prometheus_client")

from faulttolerance._command.top import scraper, target
from faulttolerance._command.top.scraper import Scraper, address
from kit.waiting import wait_until

GOOD = 'ft_retry_retries_total{method="shop.pay"} 3\n'
PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/metrics": (200, {}, GOOD.encode()),
    "/zipped": (200, {"Content-Encoding": "gzip"}, gzip.compress(GOOD.encode())),
    "/moved": (302, {"Location": "/metrics"}, b""),
    "/others": (200, {}, b"".join(b'http_total{path="/%d"} 1\n' % number for number in range(50_000))),
    "/html": (200, {"Content-Type": "text/html"}, b"<html><body>ft_a 1</body></html>"),
    "/broken": (200, {"Content-Encoding": "gzip"}, b"no gzip at all"),
    "/error": (503, {}, b"not now"),
    "/secret": (401, {}, b"who are you?"),
    "/bomb": (200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(2_000_000))),
    "/elsewhere": (302, {"Location": "file:///etc/passwd"}, b""),
    "/by-ftp": (302, {"Location": "ftp://127.0.0.1:1/metrics"}, b""),
    "/to-secret": (302, {"Location": "/secret"}, b""),
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as `PAGES` says; two paths never come to an end."""

    ended = threading.Event()

    def do_GET(self) -> None:
        with contextlib.suppress(OSError):
            if self.path == "/silent":
                self.ended.wait(20)
            elif self.path == "/dripping":
                self.send_response(200)
                self.end_headers()
                while not self.ended.wait(0.02):
                    self.wfile.write(b"#")
            else:
                status, headers, content = PAGES[self.path]
                if self.path == "/secret" and self.headers["Authorization"] == "Basic bWU6YSBi":  # me:a b
                    status, content = 200, GOOD.encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    Handler.ended.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield f"127.0.0.1:{running.server_port}"
        Handler.ended.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraper, "PATIENCE", 1.0)
    monkeypatch.setattr(target, "PATIENCE", 1.0)
    monkeypatch.setattr(scraper, "LARGEST", 1_500_000)


def asked(one: Scraper) -> Scraper:
    """Ask all once, until each has answered or is given up."""
    one.scrape()
    wait_until(lambda: (one.process_answers() or True) and one.is_complete)
    return one


@pytest.mark.parametrize("path", ["/metrics", "/zipped", "/moved"])
def test_a_page_is_read(server: str, path: str) -> None:
    [found] = asked(Scraper([address(server + path)])).targets

    assert (found.trouble, list(found.levels().values())) == ("", [3])


@pytest.mark.usefixtures("impatient")
def test_one_that_is_lost_does_not_keep_the_others(server: str) -> None:
    """Each says what is wrong with it."""
    troubles = {
        "/metrics": "",
        "/others": "",
        "/html": "the answer is no page of metrics",
        "/broken": "error: Error -3 while decompressing data: incorrect header check",
        "/error": "answered 503",
        "/bomb": "a page of more than 1 MB",
        "/elsewhere": "answered 302",
        "/by-ftp": "URLError: <urlopen error unknown url type: ftp>",
        "/silent": "no answer within 1 s",
        "/dripping": "no answer within 1 s",
    }

    found = asked(Scraper(address(server + path) for path in troubles)).targets

    assert {one.url.rpartition("/")[2]: one.trouble for one in found} == {
        path[1:]: trouble for path, trouble in troubles.items()
    }


def test_nobody_there_is_told_so() -> None:
    found = asked(Scraper(["http://127.0.0.1:1/metrics", "http://nobody.invalid/metrics"])).targets

    assert found[0].trouble == "Connection refused"
    assert found[1].trouble


def test_a_password_is_for_the_one_that_is_named(server: str) -> None:
    """Not for whoever that redirects to."""
    [found] = asked(Scraper([address(f"http://me:a%20b@{server}/to-secret")])).targets

    assert found.trouble == "answered 401"


def test_a_password_is_sent_and_not_shown(server: str) -> None:
    [found] = asked(Scraper([address(f"http://me:a%20b@{server}/secret")])).targets

    assert (found.trouble, found.url) == ("", f"http://{server}/secret")


def test_one_that_does_not_answer_is_not_asked_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one thread for each, at most."""
    begun, ended = [], threading.Event()

    def endless(url: str) -> str:
        begun.append(url)
        ended.wait(20)
        return GOOD

    monkeypatch.setattr(target, "PATIENCE", 0.2)
    monkeypatch.setattr(scraper, "fetched", endless)
    one = Scraper(["a"])
    wait_until(lambda: one.scrape() or (one.process_answers() and bool(one.targets[0].trouble)))

    assert begun == ["a"]

    ended.set()
    wait_until(lambda: one.scrape() or (one.process_answers() and not one.targets[0].trouble))

    assert len(begun) == 2


def test_addresses_are_completed() -> None:
    assert [address(text) for text in (":80", "a", "a/", "[::1]:80", "https://a/b?c=d#e")] == [
        "http://localhost:80/metrics", "http://a/metrics", "http://a/metrics", "http://[::1]:80/metrics",
        "https://a/b?c=d",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "ftp://a/b", "file:///etc/passwd", "http://", "a:0", "a:99999", "a:x", "http://[", "a b", "a\nb", "ä"]
)
def test_what_can_be_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address, as in"):
        address(text)
