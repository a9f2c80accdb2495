"""A process of the shop, which the demonstration kills and starts again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from dbos import DBOS, DBOSConfig
from sqlalchemy import insert, inspect

from faulttolerance import FaultToleranceDefinitionException, circuit_breakers, fingerprint, validate
from faulttolerance.instrumentation import Event, RetryScheduled, StateChanged, get_event_sinks, set_event_sinks

from . import pipeline
from .shop import address, database, shelf, tables

JOURNAL = "DURABLE_JOURNAL"
"""The environment variable with the file to which all processes append their records."""
KILL_AT = "DURABLE_KILL_AT"
"""The environment variable with a kind of task and a moment: the process kills itself there, by SIGKILL."""
MOMENTS = ("before", "unrecorded", "recorded")
"""Before the effect; after it, but before the engine's record; and after that."""
STARTED = "started"
TENANTS = ("ada", "bob", "cyd")


def record(what: str, **more: object) -> None:
    """Append a line to the journal, in one write."""
    line = json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n"
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def watch(event: Event) -> None:
    """Record the retries and the circuits."""
    if isinstance(event, RetryScheduled):
        record("retry", guard=event.method, failure=type(event.failure).__name__)
    elif isinstance(event, StateChanged):
        states = {tenant: circuit_breakers.state(event.method, key=tenant) for tenant in TENANTS}
        record("circuit", guard=event.method, states=states)


def arm(kind: str, moment: str) -> None:
    """Prepare this process to kill itself at a moment of the next task of a kind."""

    def die() -> None:
        record("died", kind=kind, moment=moment)
        os.kill(os.getpid(), signal.SIGKILL)

    function = pipeline.KINDS[kind]

    def fatal(*arguments: Any) -> str:
        if moment == "before":
            die()
        result = function(*arguments)
        die()
        return result

    if moment != "recorded":
        pipeline.KINDS[kind] = fatal
        return
    step = DBOS.run_step_async

    async def run(options: Any, *arguments: Any) -> Any:
        outcome = await step(options, *arguments)
        if options["name"] == kind and outcome.done:
            die()
        return outcome

    DBOS.run_step_async = run  # type: ignore[method-assign,assignment]


def started(name: str, concurrency: int = 8) -> None:
    """Start the engine, which goes on with the work of dead processes of this name."""
    config: DBOSConfig = {
        "name": "orders",
        "system_database_url": address(),
        "executor_id": name,
        # By default DBOS computes it from the code of the workflows; a process continues only work of its own version.
        "application_version": "1",
        "log_level": "CRITICAL",  # it logs the traceback of an order that is cancelled
    }
    DBOS(config=config)
    DBOS.launch()
    for kind in pipeline.KINDS:
        DBOS.register_queue(kind, worker_concurrency=concurrency, polling_interval_sec=pipeline.POLL)
    for queue in ("order", "fulfil"):  # they wait for tasks, and cost little: no limit
        DBOS.register_queue(queue, polling_interval_sec=pipeline.POLL)


def begun_otherwise() -> dict[str, int]:
    """Return how many orders are under way that began under another configuration, by its fingerprint."""
    under_way = DBOS.list_workflows(name="order", status=["PENDING", "ENQUEUED", "DELAYED"], load_input=False)
    began = [(order.attributes or {}).get("configuration") for order in under_way]
    return {one: began.count(one) for one in set(began) if one not in (None, fingerprint())}


def main(name: str, send: Callable[[str], None]) -> int:
    """Run a process of the shop until SIGTERM, and return its exit status."""
    try:
        validate()  # before the engine starts: with a wrong value each task would fail for good, one by one
    except FaultToleranceDefinitionException as wrong:
        send(f"this configuration is refused: {wrong}")
        return 2
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    set_event_sinks([*get_event_sinks(), watch])
    if where := os.environ.get(KILL_AT):
        arm(*where.split(":"))
    started(name)
    record("started", name=name, configuration=fingerprint())
    for began, orders in begun_otherwise().items():
        record("drift", began=began, now=fingerprint(), orders=orders)
    send(STARTED)
    over.wait()
    DBOS.destroy()
    return 0


def prepare(pieces: dict[str, int]) -> None:
    """Create the tables of the shop.

    Raises:
        SystemExit: If the database has them already.
    """
    if inspect(database()).has_table(shelf.name):
        raise SystemExit("the database is not empty: it has orders of another run")
    if database().dialect.name == "sqlite":  # readers and writers do not wait for one another
        with database().connect() as file:
            file.exec_driver_sql("PRAGMA journal_mode=WAL")
    tables.create_all(database())
    with database().begin() as writing:
        rows = [{"article": article, "free": free, "version": 0} for article, free in pieces.items()]
        writing.execute(insert(shelf), rows)


def live(name: str, variables: dict[str, str], sender: Connection) -> None:
    """Run a process of the shop with variables of its own, and end it with the process that started it."""
    os.environ.clear()
    os.environ |= variables
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True, name="follow").start()
    sys.exit(main(name, sender.send))
