"""The promises about orders whose processes die. The demonstration succeeds if all were kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from .pipeline import DELAY, PERMITS, SHIPPED, THRESHOLD, Outcome
from .shop import database, holds, shelf

if TYPE_CHECKING:
    from dbos import WorkflowStatus

    from .partners import Partners
    from .stage import Demonstration

CHANGED = "ORDERS_CHARGE_BULKHEAD_VALUE"
"""The variable that a restart changes."""
PIECES = {"tea": 5000, "coffee": 5000, "saffron": 6}
"""The pieces on the shelf; one article is soon sold out."""
NAMES = ("one", "two")
"""The names of the processes; by its name the engine finds the work that a dead process left."""
EARLY = 1.0
"""Seconds by which a task may seem to begin too early: DBOS has whole seconds on SQLite with Python before 3.12."""
REFUSALS = ("CircuitBreakerOpenException", "BulkheadException")


class Promise(NamedTuple):
    """A sentence, whether it was kept, and the measurement."""

    text: str
    kept: bool
    measured: str


class Try(NamedTuple):
    """One try of a task, from the records of the engine."""

    order: str
    kind: str
    number: int
    began: float
    ended: float
    queued_until: float | None
    """The end of its delay in the queue, if it had one."""
    outcome: Outcome


@dataclass
class Record:
    """The records of the engine, the shop, its partners and the processes, at the end."""

    placed: list[str]
    partners: Partners
    journal: list[dict[str, Any]]
    ends: dict[str, str]
    """The end of each order, by the engine."""
    began: dict[str, str | None]
    """The configuration under which each order began."""
    tries: list[Try]
    pieces: dict[str, int]
    left: dict[str, int]
    held: dict[str, tuple[str, int]]
    """The article and the pieces that each order holds."""
    since: float
    until: float
    """The moments at which the outage began and ended."""
    steps: int
    kills: int
    refused: tuple[int | None, str]
    cancelled: str
    most: Counter[str]
    most_before: Counter[str]
    stopped: list[int | None]


def recorded(shown: Demonstration, kills: int) -> Record:
    """Return the records of the engine, the shop, its partners and the processes."""
    orders = {one.workflow_id: one for one in shown.client.list_workflows(name="order", load_input=False)}
    with database().connect() as reading:
        left = {one.article: one.free for one in reading.execute(select(shelf))}
        held = {one.number: (one.article, one.pieces) for one in reading.execute(select(holds)) if one.state == "held"}
    return Record(
        placed=shown.placed,
        partners=shown.partners,
        journal=[json.loads(line) for line in shown.journal.read_text().splitlines()],
        ends={number: str(one.output) if one.status == "SUCCESS" else one.status for number, one in orders.items()},
        began={number: (one.attributes or {}).get("configuration") for number, one in orders.items()},
        tries=list(_tries(shown.client.list_workflows(name="task", status="SUCCESS"))),
        pieces=PIECES,
        left=left,
        held=held,
        since=shown.marks["outage"],
        until=shown.marks["healed"],
        steps=shown.steps,
        kills=kills,
        refused=shown.refused,
        cancelled=shown.cancelled,
        most=shown.partners.most,
        most_before=shown.before,
        stopped=[worker.status for worker in shown.running],
    )


def _tries(tasks: list[WorkflowStatus]) -> Iterator[Try]:
    for one in tasks:
        assert one.input is not None
        assert isinstance(one.output, Outcome)
        kind, order, number, *_ = one.input["args"]
        began, ended, until = (
            None if at is None else at / 1000 for at in (one.dequeued_at, one.completed_at, one.delay_until_epoch_ms)
        )
        yield Try(order.number, kind, number, began or 0, ended or 0, until, one.output)


def promises(record: Record) -> Iterator[Promise]:
    """Compare the records with the promises."""
    yield from _once(record)
    yield from _killed(record)
    yield from _waited(record)
    yield from _alone(record)
    yield from _configured(record)


def _once(record: Record) -> Iterator[Promise]:
    done, ends = record.partners.done, record.ends
    shipped = {number for number, end in ends.items() if end == SHIPPED}
    refused = {number for number, end in ends.items() if end.startswith(("refused", "failed"))}
    lost = [number for number in record.placed if number not in shipped | refused]
    yield Promise(
        "no order is lost: each that was placed is shipped or refused",
        not lost and bool(refused),
        f"{len(record.placed)} placed, {len(shipped)} shipped, {len(refused)} refused, {len(lost)} lost"
        + "".join(f"; {number} is {ends.get(number, 'unknown')}" for number in lost[:3]),
    )
    twice = [f"{number} {kind}" for kind in done for number, times in done[kind].items() if times > 1]
    yield Promise(
        "nothing is done twice: no order is charged twice, or refunded, shipped or notified",
        not twice,
        ", ".join(twice[:5]) or f"{sum(record.partners.repeated.values())} requests came again, and did nothing",
    )
    wrong = [
        number
        for number in shipped | refused
        if (done["charge"][number] - done["refund"][number], done["ship"][number])
        != ((1, 1) if number in shipped else (0, 0))
        or record.partners.notices.get(number) != ends[number]
        or (number in record.held) != (number in shipped)
    ]
    yield Promise(
        "a shipped order is paid; of a refused one the finalizer leaves nothing; each customer is notified of the end",
        not wrong,
        f"{len(wrong)} wrong{''.join(f'; {one} {ends[one]}' for one in wrong[:3])}, {done['refund'].total()} refunds",
    )
    taken = Counter[str]()
    for article, pieces in record.held.values():
        taken[article] += pieces
    yield Promise(
        "the shelf adds up, though its rows are changed without a lock",
        all(record.pieces[article] - free == taken[article] for article, free in record.left.items()),
        ", ".join(f"{article} {record.pieces[article]} - {taken[article]} = {n}" for article, n in record.left.items()),
    )
    retries = Counter(one["failure"] for one in record.journal if one["what"] == "retry")
    yield Promise(
        "a conflict is retried in the process, and nothing else is",
        set(retries) == {"ConflictError"},
        ", ".join(f"{times} {failure}" for failure, times in retries.items()) or "none",
    )


def _killed(record: Record) -> Iterator[Promise]:
    died = {(one["kind"], one["moment"]) for one in record.journal if one["what"] == "died"}
    yield Promise(
        "a process has died at each step: before its effect, before its record, and after it",
        len(died) == record.steps,
        f"{len(died)} of {record.steps}, and {record.kills} times at some moment",
    )
    yield Promise(
        "the finalizer runs for an order that an operator cancels, too",
        bool(record.cancelled) and record.ends.get(record.cancelled, "").startswith("failed"),
        f"{record.cancelled or 'none was cancelled'}: {record.ends.get(record.cancelled)}",
    )
    yield Promise(
        "a process ends by itself after SIGTERM",
        record.stopped == [0] * len(record.stopped),
        f"exit status {', '.join(map(str, record.stopped))}",
    )


def _waited(record: Record) -> Iterator[Promise]:
    next_of = {(one.order, one.kind, one.number - 1): one for one in record.tries}
    handed = [(one, next_of.get((one.order, one.kind, one.number))) for one in record.tries if one.outcome.after]
    not_queued, early = 0, 0
    for one, later in handed:
        until = later and later.queued_until
        not_queued += later is not None and (until is None or until < one.ended + (one.outcome.after or 0))
        early += later is not None and until is not None and later.began < until - EARLY
    reasons = Counter(one.outcome.reason for one, _ in handed)
    counted = ", ".join(f"{times} {reason}" for reason, times in reasons.most_common())
    yield Promise(
        "a refused or failed task waits in the engine's queue for the delay that it returned, and nowhere else",
        any(reasons[refusal] for refusal in REFUSALS) and not not_queued and not early,
        f"{len(handed)} delays, {sum(one.outcome.after or 0 for one, _ in handed):.0f} s in all,"
        f" {not_queued} not queued, {early} too early: {counted}",
    )


def _alone(record: Record) -> Iterator[Promise]:
    since, until = record.since, record.until
    asked = Counter(tenant for at, kind, tenant in record.partners.requests if kind == "charge" and since <= at < until)
    most = len(NAMES) * (THRESHOLD + PERMITS + int((until - since) / DELAY) + 1)
    changes = [one for one in record.journal if one["what"] == "circuit" and since <= one["at"] < until]
    states = [one["states"] for one in changes if one["guard"] == "orders.charge.tenant"]
    opened = {tenant for state in states for tenant, now in state.items() if now != "closed"}
    yield Promise(
        "the bank of one tenant is down: its circuit opens, and no other",
        opened == {"bob"} and 0 < asked["bob"] <= most,
        f"opened for {', '.join(sorted(opened)) or 'nobody'}; {asked['bob']} requests in {until - since:.0f} s,"
        f" {asked['ada']} and {asked['cyd']} for the others",
    )


def _configured(record: Record) -> Iterator[Promise]:
    status, message = record.refused
    yield Promise(
        "no process starts with a wrong configuration, and no order is harmed",
        status == 2 and CHANGED in message,
        f"exit status {status}: {message.partition(': ')[2][:90]}",
    )
    yield Promise(
        f"{CHANGED}=1 holds after a restart: one charge at a time in each process",
        0 < record.most["charge"] <= len(NAMES) < record.most_before["charge"],
        f"{record.most_before['charge']} at once before, {record.most['charge']} after",
    )
    drifts = [one for one in record.journal if one["what"] == "drift"]
    first = next(one["configuration"] for one in record.journal if one["what"] == "started")
    known = Counter(record.began.values())
    yield Promise(
        "each order has the fingerprint of the configuration under which it began, and a restart under another says so",
        len(known) == 2 and None not in known and bool(drifts) and {one["began"] for one in drifts} == {first},
        ", ".join(f"{orders} began under {began}" for began, orders in known.items())
        + f"; {max((one['orders'] for one in drifts), default=0)} went on under {drifts[0]['now'] if drifts else '?'}",
    )
