"""What is asked of Prometheus: the queries of the dashboard, and the alert rules in a time that passes faster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to"
DASHBOARD, ALERTS = DOCS / "dashboard.json", DOCS / "alerts.yml"

MINUTE = 0.4
"""Seconds that stand for a minute of the rules: the outage of the storefront takes seconds, and not minutes."""

RATE_INTERVAL = "1s"
"""What Grafana puts in the place of ``$__rate_interval``: four scrapes and more."""


class Question(NamedTuple):
    """One query of a panel."""

    panel: str
    query: str

    @property
    def metrics(self) -> set[str]:
        """The metrics that it asks for."""
        return set(re.findall(r"\bft_\w+", self.query))


def questions() -> Iterator[Question]:
    """Give all queries of the dashboard, with its variables filled in."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", RATE_INTERVAL).replace("$method", ".*")
            yield Question(panel["title"], query)


def alerts() -> set[str]:
    """Name all alerts."""
    return set(re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8")))


def hurried(rules: str) -> str:
    r"""Let each minute, in ranges of expressions and in ``for``, take ``MINUTE``; thresholds stay as they are.

    >>> hurried("expr: rate(ft_a[5m]) > 0.05\n  for: 1m")
    'expr: rate(ft_a[2000ms]) > 0.05\n  for: 400ms'
    """
    return re.sub(
        r"(?<=\[)(\d+)m(?=\])|(?<=for: )(\d+)m\b",
        lambda found: f"{int(found[1] or found[2]) * MINUTE * 1000:.0f}ms",
        rules,
    )
