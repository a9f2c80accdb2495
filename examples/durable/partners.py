"""The partners of the shop: the banks of its customers, its carrier, its mail service."""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from faulttolerance import remaining

PORT = "DURABLE_PARTNERS"
"""The environment variable with their port."""


class UnavailableError(Exception):
    """A partner cannot answer now; `retry_after` has the seconds of its header `Retry-After`, if it sent one."""

    def __init__(self, status: int, retry_after: float | None) -> None:
        super().__init__(f"the answer is {status}")
        self.retry_after = retry_after


class DeclinedError(Exception):
    """A partner has refused for good. No other attempt would change that."""


def ask(method: str, kind: str, tenant: str, number: str, more: str = "") -> str:
    """Return the answer of a partner.

    The idempotency key belongs to the work, not to the attempt: all attempts have the same, in each process.
    """
    left = remaining()
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ[PORT]), timeout=1 if left is None else left)
    try:
        headers = {"Idempotency-Key": f"{kind}-{number}", "X-Tenant": tenant, "X-More": more}
        connection.request(method, f"/{kind}/{number}", headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status >= 500:
        after = answer.headers.get("Retry-After")
        raise UnavailableError(answer.status, None if after is None else float(after))
    if answer.status >= 400:
        raise DeclinedError(text)
    return text


class Partners:
    """All partners in one server, which is never killed, and counts the effects."""

    def __init__(self, seed: int = 0) -> None:
        self.done = {kind: Counter[str]() for kind in ("charge", "refund", "ship", "notify")}
        """For each kind of effect, how often it happened for each order."""
        self.notices: dict[str, str] = {}
        """The text that each customer got, by the order."""
        self.requests: list[tuple[float, str, str]] = []
        """The moment, the kind and the tenant of each request."""
        self.repeated = Counter[str]()
        """Requests for effects that had happened already: the idempotency key made them harmless."""
        self.most = Counter[str]()
        """The largest number of requests of a kind that ran at once."""
        self.down: set[tuple[str, str]] = set()
        """The kinds and tenants that get 503."""
        self.is_moody = True
        """Whether some answers are 503, and some are lost after the effect."""
        self._states: dict[str, str] = {}
        self._running = Counter[str]()
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        partners = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                partners._serve(self, is_void=False)

            def do_DELETE(self) -> None:
                partners._serve(self, is_void=True)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 100

            def handle_error(self, request: object, client_address: object) -> None:
                """Print nothing about clients that were killed."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True, name="partners").start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler, *, is_void: bool) -> None:
        _, kind, number = request.path.split("/")
        tenant, more = request.headers["X-Tenant"], request.headers["X-More"]
        with self._lock:
            self.requests.append((time.monotonic(), kind, tenant))
            self._running[kind] += 1
            self.most[kind] = max(self.most[kind], self._running[kind])
            mood = self._random.random() if self.is_moody else 1.0
            pause = self._random.uniform(0.01, 0.05)
        time.sleep(pause)
        try:
            if (kind, tenant) in self.down or mood < 0.04:
                status, text = 503, "later"
            else:
                with self._lock:
                    act = self._void if is_void else self._do
                    status, text = act(kind, number, request.headers["Idempotency-Key"], more)
        finally:
            with self._lock:
                self._running[kind] -= 1
        time.sleep(pause)
        if 0.04 <= mood < 0.08:
            return  # the effect has happened, and the answer is lost
        request.send_response(status)
        request.send_header("Retry-After", "0.5")
        request.end_headers()
        request.wfile.write(text.encode())

    def _do(self, kind: str, number: str, key: str, more: str) -> tuple[int, str]:
        state = self._states.get(key)
        if state == "void":
            return 409, "it was called off before"
        if state == "done":
            self.repeated[kind] += 1
            return 200, "done before"
        if more == "stolen":
            return 402, "the card is stolen"
        self._states[key] = "done"
        self.done[kind][number] += 1
        if kind == "notify":
            self.notices[number] = more
        return 200, "done"

    def _void(self, kind: str, number: str, key: str, _: str) -> tuple[int, str]:
        """Call an effect off, whether or not it has happened: it cannot happen later."""
        if self._states.get(key) == "done":
            if kind == "ship":
                return 409, "it has left"
            self.done["refund"][number] += 1
        elif self._states.get(key) == "void":
            self.repeated["void"] += 1
        self._states[key] = "void"
        return 200, "called off"
