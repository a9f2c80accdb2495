"""An end point for readiness probes that answers from what the guards have learnt, without a call more."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from faulttolerance import Guard, health
from faulttolerance.policies import CircuitBreaker

ledger = Guard(name="ledger", circuit_breaker=CircuitBreaker(request_volume_threshold=4, fail_on=ConnectionError))


class Probe(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = health(critical="ledger")
        self.send_response(503 if found.status == "down" else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found.as_dict()).encode())

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


def ask(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def gone() -> None:
    raise ConnectionError("the ledger does not answer")


with HTTPServer(("127.0.0.1", 0), Probe) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    before = ask(server.server_port)
    for _ in range(4):
        try:
            ledger.call(gone)
        except ConnectionError:
            pass
    after = ask(server.server_port)
    server.shutdown()

print(*before)
print(*after)
assert (before[0], after[0]) == (200, 503)
