"""The search of the built site leads from a policy's name to its page of the reference; `nox -s site` runs this."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from faulttolerance._policy import Policy
from kit.browser import browser

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"

pytestmark = pytest.mark.outside
pytest.importorskip("mkdocs", reason="the site is built where mkdocs is: nox -s site")

PAGES = {
    "AdaptiveThrottle": "adaptive-throttle",
    "Asynchronous": "asynchronous",
    "AsynchronousNonBlocking": "asynchronous",
    "BeforeRetry": "retry",
    "Bulkhead": "bulkhead",
    "CircuitBreaker": "circuit-breaker",
    "CircuitBreakerName": "circuit-breaker",
    "Coalesce": "coalesce",
    "CustomBackoff": "retry",
    "Deadline": "deadline",
    "ExponentialBackoff": "retry",
    "FailWhen": "circuit-breaker",
    "Fallback": "fallback",
    "FibonacciBackoff": "retry",
    "FleetWide": "fleet-wide",
    "Hedge": "hedge",
    "HonorRetryAfter": "retry",
    "PartitionBy": "partition-by",
    "RateLimit": "rate-limit",
    "Retry": "retry",
    "RetryBudget": "retry-budget",
    "RetryWhen": "retry",
    "Timeout": "timeout",
}
"""The page of each policy, by the name of its annotation."""

WORDS = {
    "adaptive throttle": "adaptive-throttle",
    "back-off": "retry",
    "backoff": "retry",
    "circuit breaker": "circuit-breaker",
    "deadline": "deadline",
    "exponential backoff": "retry",
    "fleet wide": "fleet-wide",
    "hedge": "hedge",
    "jitter": "retry",
    "partition by": "partition-by",
    "rate limit": "rate-limit",
    "retry budget": "retry-budget",
    "time-out": "timeout",
    "timeout": "timeout",
}
"""Further words that a reader types."""

ASK = """
const [queries, done] = arguments;
const { search } = JSON.parse(document.getElementById("__config").textContent);
const worker = new Worker(new URL(search, location));
const ask = (message) => new Promise((answered) => {
  worker.onmessage = (event) => answered(event.data.data);
  worker.postMessage(message);
});
(async () => {
  const index = await (await fetch("search/search_index.json")).json();
  await ask({ type: 0, data: { ...index, options: { suggest: true } } });
  const first = {};
  for (const query of queries) {
    const { items } = await ask({ type: 2, data: query });
    first[query] = items.length ? items[0][0].location.split("#")[0] : "nothing";
  }
  done(first);
})();
"""
"""Sends *queries* to the worker of the site, as its pages do, and returns the first page that each finds."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base class
        """Write no line for a request."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the built site, and yield its address."""
    assert (SITE / "search" / "search_index.json").is_file(), "build the site first: nox -s site"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE))) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_the_search_finds_the_page_of_the_reference_first(address: str) -> None:
    """These are each decorator, and the words by which readers look for a policy."""
    expected = {_snake(annotation): page for annotation, page in PAGES.items()} | WORDS

    with browser() as chromium:
        chromium.open(address)
        found = chromium.driver.execute_async_script(ASK, list(expected))

    assert found == {query: f"reference/{page}/" for query, page in expected.items()}


def test_each_policy_has_a_page_to_find() -> None:
    """A contributor who adds a policy names the page that explains it here."""
    assert set(PAGES) == {policy.annotation for policy in Policy.__subclasses__()}


def _snake(annotation: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in annotation).removeprefix("_")
