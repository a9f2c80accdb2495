"""Requests to the addresses, each on a thread of its own, so no address waits for another."""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
import threading
import urllib.error
import urllib.request
import zlib
from collections import deque
from collections.abc import Iterable
from urllib.parse import SplitResult, unquote, urlsplit

from ..._deadline.clock import clock
from ..._shown import error_text
from .exposition import Exposition, parse_exposition
from .target import PATIENCE, Target

LARGEST = 64_000_000
"""The maximum size of a page in bytes."""

HEADERS = {
    "Accept": "text/plain;version=0.0.4, */*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "faulttolerance-top",
}


class ScrapeError(Exception):
    """An answer that is no page of metrics; its text states the reason."""


def address(text: str) -> str:
    """Complete an address such as ``localhost:8000`` to a URL; raise ``ValueError`` if it cannot be a URL.

    >>> address(":8000"), address("https://shop.example/internal/metrics")
    ('http://localhost:8000/metrics', 'https://shop.example/internal/metrics')
    """
    url = text if "://" in text else f"http://localhost{text}" if text.startswith(":") else f"http://{text}"
    parts = _parts(url)
    if parts is None or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"{text!r} is not an address, as in localhost:8000 or https://shop.example/metrics")
    return parts._replace(path=parts.path if parts.path not in ("", "/") else "/metrics", fragment="").geturl()


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


class Scraper:
    """The requests to all targets, and the queue of their answers."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._url_of = {Target(_without_password(url)): url for url in urls}
        self.targets = list(self._url_of)
        self._answers: deque[tuple[Target, Exposition | None, str, float]] = deque()

    @property
    def is_complete(self) -> bool:
        """Whether every target has answered or failed."""
        return not any(target.is_pending and not target.trouble for target in self.targets)

    def scrape(self) -> None:
        """Request the page of each target that has no request under way."""
        for target, url in self._url_of.items():
            if not target.is_pending:
                target.begin_scrape(clock.monotonic())
                threading.Thread(target=self._fetch, args=(target, url), name="top", daemon=True).start()

    def process_answers(self) -> bool:
        """Pass new answers and expired waits to the targets; return whether any target changed."""
        before = [(target.last, target.trouble) for target in self.targets]
        while self._answers:
            target, exposition, trouble, at = self._answers.popleft()
            if exposition is None:
                target.record_failure(trouble, at)
            else:
                target.record_answer(exposition, at)
        for target in self.targets:
            target.check_time_out(clock.monotonic())
        return before != [(target.last, target.trouble) for target in self.targets]

    def _fetch(self, target: Target, url: str) -> None:
        exposition, trouble = None, ""
        try:
            exposition = parse_exposition(fetched(url))
        except ScrapeError as error:
            trouble = str(error)
        except ValueError:
            trouble = "the answer is no page of metrics"
        except Exception as error:  # noqa: BLE001 -- on any error this target is lost, but not the others
            trouble = _reason(error)
        self._answers.append((target, exposition, trouble, clock.monotonic()))


def fetched(url: str) -> str:
    """Return the text at *url*."""
    parts = urlsplit(url)
    request = urllib.request.Request(_without_password(url), headers=HEADERS)
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        # The target of a redirection must not receive the password.
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(user).decode()}")
    end = clock.monotonic() + PATIENCE
    with _opener(parts.hostname).open(request, timeout=PATIENCE) as answer:
        return _read(answer, end).decode("utf-8", "replace")


def _opener(host: str | None) -> urllib.request.OpenerDirector:
    """Return an opener of web pages alone, also after redirections: no files, no FTP."""
    opener = urllib.request.OpenerDirector()
    is_here = host in ("localhost", "127.0.0.1", "::1")
    for handler in (
        urllib.request.ProxyHandler({} if is_here else None),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _read(answer: http.client.HTTPResponse, end: float) -> bytes:
    decoder = zlib.decompressobj(wbits=31) if answer.headers.get("Content-Encoding", "") == "gzip" else None
    whole = bytearray()
    while piece := answer.read1(1 << 16):
        whole += decoder.decompress(piece, LARGEST) if decoder else piece
        if len(whole) >= LARGEST or (decoder and decoder.unconsumed_tail):
            raise ScrapeError(f"a page of more than {LARGEST // 1_000_000} MB")
        if clock.monotonic() > end:
            raise TimeoutError
    return bytes(whole)


def _reason(error: Exception) -> str:
    while isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        error = error.reason
    match error:
        case urllib.error.HTTPError():
            with contextlib.closing(error):
                return f"answered {error.code}"
        case TimeoutError():
            return f"no answer within {PATIENCE:g} s"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case OSError() if error.strerror:
            return error.strerror
        case _:
            return error_text(error)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
