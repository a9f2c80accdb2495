"""The guarded storefront with its metrics: customers come, and the backend fails by its timetable.

    python -m examples.observed.shop [--port 8000] [--again]

The service, the backend and the customers are those of `examples/storefront`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from prometheus_client import start_http_server

STOREFRONT = Path(__file__).resolve().parents[1] / "storefront"
sys.path.insert(0, str(STOREFRONT))

from backend import END  # noqa: E402 -- from the folder above
from supervisor import Supervisor  # noqa: E402
from traffic import Traffic  # noqa: E402

from faulttolerance import configure, validate  # noqa: E402

LEAD = 1.0
"""Seconds that the backend has to come up before the first customer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=8000, help="where the metrics are shown; 0 for any")
    parser.add_argument("--address", default="127.0.0.1", help="from where they can be asked; 0.0.0.0 for everywhere")
    parser.add_argument("--again", action="store_true", help="begin the timetable anew until stopped")
    parser.add_argument("--wait", action="store_true", help="begin at a line of the standard input, end with it")
    options = parser.parse_args()
    configure(files=[STOREFRONT / "storefront.toml"])
    validate()
    server, _ = start_http_server(options.port, options.address)
    print(server.server_port, flush=True)
    if options.wait:
        sys.stdin.readline()
    play()
    while options.again:
        play()
    print("over", flush=True)
    if options.wait:
        sys.stdin.read()


def play() -> None:
    """Let customers come until the timetable ends, and all are served."""
    with tempfile.TemporaryDirectory() as folder:
        supervisor = Supervisor(Path(folder) / "ledger.db")
        begin = time.monotonic() + LEAD
        with supervisor.running(begin):
            traffic = Traffic(supervisor.address, guarded=True)
            traffic.start(begin, END)
            while not traffic.is_over:
                time.sleep(0.05)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the backend never outlives this process
    try:
        main()
    except KeyboardInterrupt:
        os._exit(130)  # customers are still being served, on threads that a plain exit would wait for
