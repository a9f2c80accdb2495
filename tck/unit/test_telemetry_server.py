"""From a guarded call to an answer of a Prometheus server, and the rules and dashboard that ask it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faulttolerance._event import METRICS

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
LABELS = {"method", "le", *(tag for metric in METRICS for tag in metric.tags)}
NAMES = {
    metric.name.replace(".", "_") + ("_seconds_bucket" if metric.kind == "histogram" else "") for metric in METRICS
}
IN_CI = bool(os.environ.get("CI"))

SERVICE = """
import sys
from prometheus_client import start_http_server
from faulttolerance import bulkhead, circuit_breaker, fallback, retry, timeout

class Shop:
    @fallback(lambda context: "later")
    @retry(max_retries=2, jitter=0)
    @circuit_breaker(failure_ratio=1.0, request_volume_threshold=1000)
    @timeout(1000)
    @bulkhead(2)
    def order(self, number):
        if number % 4 == 0: raise ConnectionError
        return "taken"

shop = Shop()
for number in range(40): shop.order(number)
server, _ = start_http_server(0, "127.0.0.1")
print(server.server_port, flush=True)
sys.stdin.read()
"""


def tool(name: str) -> str:
    """The path of a program of Debian's package prometheus; without it the test is skipped, but never in CI."""
    found = shutil.which(name)
    if found is None and not IN_CI:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    assert found is not None, f"{name} is not installed: apt-get install prometheus"
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def service() -> Iterator[int]:
    """The port at which a guarded service shows its metrics."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate("")


@pytest.fixture
def server(service: int, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the service."""
    program, port = tool("prometheus"), free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 200ms}}
rule_files: [{DOCS / "alerts.yml"}]
scrape_configs: [{{job_name: shop, static_configs: [{{targets: ["127.0.0.1:{service}"]}}]}}]
"""
    )
    arguments = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        subprocess.Popen([program, *arguments, f"--web.listen-address=127.0.0.1:{port}"], stderr=log) as process,
    ):
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def ask(server: str, query: str) -> dict[tuple[str, ...], float]:
    """What the query API answers, by the values of the labels that are ours."""
    address = f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=5) as answer:
        found = json.load(answer)["data"]["result"]
    return {
        tuple(value for label, value in sorted(one["metric"].items()) if label in LABELS - {"method"}): float(
            one["value"][1]
        )
        for one in found
    }


def answer_to(server: str, query: str) -> dict[tuple[str, ...], float]:
    """The same, once there is an answer: a server takes a while to come up and to scrape."""
    for _ in range(200):
        try:
            if found := ask(server, query):
                return found
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"no answer to {query}")


@pytest.mark.timeout(60)
def test_prometheus_server_returns_what_the_service_counted(server: str) -> None:
    """Thirty orders taken at once, ten replaced after three attempts each."""
    invocations = answer_to(server, 'ft_invocations_total{method="__main__.Shop.order"}')

    assert invocations == {
        ("notApplied", "valueReturned"): 30,
        ("applied", "valueReturned"): 10,
        ("notApplied", "exceptionThrown"): 0,
        ("applied", "exceptionThrown"): 0,
    }
    assert ask(server, "ft_retry_retries_total") == {(): 20}
    assert ask(server, 'ft_retry_calls_total{retryResult="maxRetriesReached"}') == {
        ("true", "maxRetriesReached"): 10,
        ("false", "maxRetriesReached"): 0,
    }
    assert ask(server, "ft_circuitbreaker_calls_total") == {
        ("success",): 30,
        ("failure",): 30,
        ("circuitBreakerOpen",): 0,
    }
    assert ask(server, "ft_timeout_executionDuration_seconds_count") == {(): 60}
    assert ask(server, "ft_bulkhead_executionsRunning") == {(): 0}
    assert 0 < ask(server, "histogram_quantile(0.99, ft_bulkhead_runningDuration_seconds_bucket)")[()] <= 1
    # Nobody calls, and the circuit is closed for longer and longer.
    state = 'ft_circuitbreaker_state_total{state="closed"}'
    first = ask(server, state)["closed",]
    while ask(server, state)["closed",] <= first:
        time.sleep(0.1)


def test_alert_rules_are_valid() -> None:
    """Prometheus' own tool reads them."""
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(DOCS / "alerts.yml")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> Iterator[str]:
    """Every expression of the rules and of the dashboard."""
    yield from re.findall(r"expr: (?:\|\n)?((?:.|\n)*?)\n +(?:for|labels):", (DOCS / "alerts.yml").read_text())
    dashboard: dict[str, Any] = json.loads((DOCS / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    """A misspelt name is no error to Prometheus: it shows nothing, and never alerts."""
    asked = [query for query in queries() if query]
    names = {name for query in asked for name in re.findall(r"\bft_\w+", query)}
    labels = {label for query in asked for label in re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", query)}

    assert len(asked) >= 20
    assert names <= NAMES
    assert labels <= LABELS
    assert names >= {name for name in NAMES if "_total" in name or "executions" in name}
