"""A server that is busy says when to come back; its client waits for that long, and no longer than it can afford."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen

from faulttolerance import honor_retry_after, retry

busy_for = ["1", "120"]


class Busy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/later" or busy_for[0] == "1":
            self.send_response(429)
            self.send_header("Retry-After", busy_for.pop(0))
        else:
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


server = HTTPServer(("127.0.0.1", 0), Busy)
threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


@retry(max_retries=3, delay="50ms", jitter="20ms", retry_on=HTTPError)
@honor_retry_after(max_delay="10s")
def get(path: str) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{server.server_port}{path}") as response:
            return int(response.status)
    except HTTPError as error:
        error.close()
        raise


began = time.monotonic()
print(get("/now"), f"after {time.monotonic() - began:.1f} s")
if time.monotonic() - began < 1:
    raise SystemExit("it should have waited for a second")

began = time.monotonic()
try:
    get("/later")
except HTTPError as error:
    print(error, error.__notes__)
else:
    raise SystemExit("two minutes are more than it can afford")
if time.monotonic() - began > 5:
    raise SystemExit("it should have given up at once")
server.shutdown()
server.server_close()
