"""From a guarded call to an answer of a Prometheus server, and the rules and dashboard that ask it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faulttolerance._metrics.catalogue import every_metric
from kit.surroundings import needs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "how-to"
LABELS = {"method", "le", *(tag for metric in every_metric() for tag in metric.tags)}
NAMES = {
    metric.name.replace(".", "_")
    + ("_seconds" if metric.unit == "seconds" else "")
    + ("_bucket" if metric.kind == "histogram" else "")
    for metric in every_metric()
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

STOREFRONT = """
import json, sys, tempfile, time
from pathlib import Path
from prometheus_client import start_http_server
from supervisor import Supervisor
from traffic import Traffic
from faulttolerance import guards

server, _ = start_http_server(0, "127.0.0.1")
print(server.server_port, flush=True)
with tempfile.TemporaryDirectory() as folder:
    begin = time.monotonic() + 1.5
    supervisor = Supervisor(Path(folder) / "ledger.db")
    with supervisor.running(begin):
        # Fair weather, errors, and a second of a backend that is down.
        now = time.monotonic()
        traffic = Traffic(supervisor.address, guarded=True)
        traffic.start(now, max(1, begin + 5 - now))
        while not traffic.is_over: time.sleep(0.05)
counts = [
    [name, {"method": guard.name, **dict(tags)}, count]
    for guard in guards() for (name, tags), count in guard.counts.items()
]
calls = {method: record.calls for method, record in traffic.records.items()}
print(json.dumps([calls, counts]), flush=True)
sys.stdin.read()
"""


def tool(name: str) -> str:
    """Return the path of a program of Debian's package prometheus; without it skip the test, but never in CI."""
    found = shutil.which(name)
    if found is None and not IN_CI:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    assert found is not None, f"{name} is not installed: apt-get install prometheus"
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def running(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a Python program that goes on until its input ends, and imports modules from *folder*."""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.communicate("")


def line_of(process: subprocess.Popen[str]) -> Any:
    """Return the next line that the program prints, which is JSON."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@contextlib.contextmanager
def prometheus(port: int, folder: Path) -> Iterator[str]:
    """Yield the address of a Prometheus that scrapes the service at *port*."""
    program, own_port = tool("prometheus"), free_port()
    (folder / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 200ms}}
rule_files: [{DOCS / "alerts.yml"}]
scrape_configs: [{{job_name: shop, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""
    )
    arguments = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        subprocess.Popen([program, *arguments, f"--web.listen-address=127.0.0.1:{own_port}"], stderr=log) as process,
    ):
        try:
            yield f"http://127.0.0.1:{own_port}"
        finally:
            process.terminate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a Prometheus that scrapes a guarded service."""
    tool("prometheus")
    needs("prometheus_client")
    with running(SERVICE, tmp_path) as process, prometheus(line_of(process), tmp_path) as address:
        yield address


def query_api(server: str, query: str) -> list[dict[str, Any]]:
    """Return the current answer of the query API."""
    address = f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:  # an OSError, and an answer: the server is not ready yet
        error.close()
        raise
    return found


def ask(server: str, query: str) -> dict[tuple[str, ...], float]:
    """Return the answer of the query API by the values of the library's labels."""
    found = query_api(server, query)
    return {
        tuple(value for label, value in sorted(one["metric"].items()) if label in LABELS - {"method"}): float(
            one["value"][1]
        )
        for one in found
    }


def answer_to(server: str, query: str) -> dict[tuple[str, ...], float]:
    """Return the first answer that is not empty: a server takes a while to start and to scrape."""
    for _ in range(200):
        try:
            if found := ask(server, query):
                return found
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"no answer to {query}")


@pytest.mark.outside
@pytest.mark.timeout(60)
def test_prometheus_server_returns_the_counts_of_the_service(server: str) -> None:
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


Series = tuple[str, frozenset[tuple[str, str]]]
"""A name and the labels that are ours."""


def series(server: str) -> dict[Series, float]:
    """Return all series of the library that the server has."""
    found: dict[Series, float] = {}
    for one in query_api(server, '{__name__=~"ft_.+"}'):
        labels = frozenset((label, value) for label, value in one["metric"].items() if label in LABELS)
        assert (one["metric"]["__name__"], labels) not in found
        found[one["metric"]["__name__"], labels] = float(one["value"][1])
    return found


@pytest.mark.outside
@pytest.mark.timeout(150)
def test_prometheus_server_returns_the_counts_of_the_storefront(tmp_path: Path) -> None:
    """The demonstration is scraped while its backend fails: in the end both have equal counts of each method."""
    tool("prometheus")
    needs("prometheus_client", "httpx", "uvicorn")
    shown: dict[Series, float] = {}
    with (
        running(STOREFRONT, ROOT / "examples" / "storefront") as storefront,
        prometheus(line_of(storefront), tmp_path) as server,
    ):
        calls, counted = line_of(storefront)
        counts: dict[Series, float] = {
            (name.replace(".", "_"), frozenset(labels.items())): count for name, labels, count in counted
        }
        # Time in a state goes on: the server is to have at least what it was.
        times = {one: counts.pop(one) for one in list(counts) if one[0] == "ft_circuitbreaker_state_total"}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                shown = series(server)
            if {one: shown.get(one) for one in counts} == counts and all(
                shown.get(one, 0) >= least for one, least in times.items()
            ):
                break
            time.sleep(0.1)

    def total(name: str, method: str, **tags: str) -> float:
        wanted = {"method": f"service.Storefront.{method}", **tags}.items()
        return sum(value for (one, labels), value in shown.items() if one == name and wanted <= {*labels})

    assert {
        one: value
        for one, value in shown.items()
        if not re.search("_(bucket|sum|count|state_total|config_info)$", one[0])
    } == (counts)
    assert {one: shown.get(one, 0) for one, least in times.items() if shown.get(one, 0) < least} == {}
    assert {method: total("ft_invocations_total", method) for method in calls} == calls
    assert {method: total("ft_timeout_executionDuration_seconds_count", method) for method in calls} == {
        method: total("ft_timeout_calls_total", method) for method in calls
    }
    # Of functions and of coroutines there is something to compare.
    assert all(total("ft_retry_retries_total", method) for method in ("product", "stock", "order", "mail"))
    assert all(
        total("ft_invocations_total", method, fallback="applied") for method in ("product", "stock", "recommendations")
    )


@pytest.mark.outside
def test_alert_rules_are_valid() -> None:
    """Prometheus' own tool reads them."""
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(DOCS / "alerts.yml")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def of_the_rules() -> list[str]:
    """Return every expression of the alert rules."""
    return re.findall(r"expr: (?:\|\n)?((?:.|\n)*?)\n +(?:for|labels):", (DOCS / "alerts.yml").read_text())


def of_the_dashboard() -> list[str]:
    """Return every query of the dashboard."""
    dashboard: dict[str, Any] = json.loads((DOCS / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def names_in(queries: list[str]) -> set[str]:
    return {name for query in queries for name in re.findall(r"\bft_\w+", query)}


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    """A misspelt name is no error to Prometheus: it shows nothing, and never alerts."""
    asked = [*of_the_rules(), *of_the_dashboard()]
    labels = {label for query in asked for label in re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", query)}

    assert len(asked) >= 20
    assert names_in(asked) <= NAMES
    assert labels <= LABELS


def test_the_dashboard_asks_for_every_metric() -> None:
    """Each count has its place on the dashboard."""
    assert names_in(of_the_dashboard()) == NAMES


def test_panels_of_the_dashboard_lie_side_by_side() -> None:
    """No panel covers another one, and each has a number of its own."""
    panels = json.loads((DOCS / "dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
