"""What this outage ought to look like. The run succeeds if it did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .questions import Question, alerts

OUGHT = {
    "CircuitBreakerOpen": {"product", "stock"},
    "FallbackInUse": {"product", "stock", "recommendations"},
    "RetryStorm": {"order", "mail"},
    "BulkheadRejects": {"recommendations"},
}
"""The alerts that have to fire, each at least for these methods: the backend is away, and later slow."""

MAY = {"RetriesExhausted", "CallsTimeOut"}
"""Those for which this outage is just long enough: whether they fire depends on the backend's dice."""


@dataclass
class Record:
    """What Prometheus said, when the run is over."""

    scrapes: int = 0
    failed_scrapes: int = 0
    fired: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """By alert and method, from when to when, in seconds after the begin."""
    answers: dict[Question, int] = field(default_factory=dict)
    """By question, how many series have a value."""
    refused: dict[Question, str] = field(default_factory=dict)
    """The questions that are none, and why."""
    metrics: set[str] = field(default_factory=set)
    """What the shop shows."""
    methods: set[str] = field(default_factory=set)
    """What can be chosen on the dashboard."""


@dataclass(frozen=True)
class Promise:
    """One sentence, whether it came true, and what was measured."""

    text: str
    kept: bool
    measured: str


def must_answer(question: Question, metrics: set[str]) -> bool:
    """Whether the shop shows all that is asked for; other policies than its own it has not."""
    return question.metrics <= metrics


def promises(record: Record) -> Iterator[Promise]:
    """Compare what came with what ought to come."""
    yield Promise(
        "scrapes are answered, also while the backend is away: 9 of 10 at least",
        record.scrapes > 20 and record.failed_scrapes * 10 <= record.scrapes,
        f"{record.scrapes} scrapes, {record.failed_scrapes} failed",
    )
    yield Promise(
        "every question of the dashboard can be asked",
        bool(record.answers) and not record.refused,
        f"{len(record.answers)} asked, {len(record.refused)} refused{_list(record.refused.values())}",
    )
    due = {question for question in record.answers if must_answer(question, record.metrics)}
    silent = {question.query for question in due if not record.answers[question]}
    yield Promise(
        "each of them that is about a policy of the shop is answered",
        len(due) > 12 and not silent,
        f"{len(due) - len(silent)} of {len(due)} answered{_list(silent)}",
    )
    yield Promise("each method can be chosen", len(record.methods) == 5, f"{len(record.methods)} methods")
    missing = {
        f"{alert} of {method}" for alert, methods in OUGHT.items() for method in methods - _fired(record, alert).keys()
    }
    yield Promise(
        "the alerts fire that ought to",
        not missing,
        f"{len(OUGHT)} alerts, {sum(map(len, OUGHT.values()))} times{_list(missing, ', but not ')}",
    )
    wrong = record.fired.keys() - OUGHT.keys() - MAY
    others = alerts() - OUGHT.keys() - MAY
    yield Promise("no other alert fires", not wrong, f"{len(others)} stay silent{_list(wrong, ', but not ')}")


def _fired(record: Record, alert: str) -> Mapping[str, tuple[float, float]]:
    return record.fired.get(alert, {})


def _list(texts: Iterable[str], before: str = ": ") -> str:
    found = sorted(texts)
    return before + ", ".join(found) if found else ""
