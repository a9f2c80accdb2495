"""``examples/durable``: the promises that can be tested in seconds. CI runs the whole as a section of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faulttolerance import Guard, guards

pytest.importorskip("dbos")
sqlalchemy = pytest.importorskip("sqlalchemy")
from dbos import DBOSClient  # noqa: E402

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parents[2]
PROCESS = "import sys; from examples.durable.worker import main; sys.exit(main('one', print))"


@pytest.fixture(scope="module")
def example() -> Iterator[SimpleNamespace]:
    """Yield the modules of the example, and close their guards afterwards."""
    before = {one.method for one in guards()}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from examples.durable import partners, pipeline, shop, worker
    yield SimpleNamespace(partners=partners, pipeline=pipeline, shop=shop, worker=worker)
    for guard in {one.method for one in guards()} - before:
        if isinstance(guard, Guard):
            guard.close()
    for name in [name for name in sys.modules if name == "examples" or name.startswith("examples.")]:
        del sys.modules[name]


@pytest.fixture
def shop(example: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Yield a shop with five pieces of tea, and partners that answer."""
    partners = example.partners.Partners()
    partners.is_moody = False
    monkeypatch.setenv(example.shop.DATABASE, f"sqlite:///{tmp_path}/shop.sqlite")
    monkeypatch.setenv(example.partners.PORT, str(partners.port))
    monkeypatch.setenv(example.worker.JOURNAL, str(tmp_path / "journal"))
    example.shop.database.cache_clear()
    example.worker.prepare({"tea": 5})
    yield SimpleNamespace(**vars(example) | {"partners": partners, "tables": example.shop})
    example.shop.database().dispose()
    partners.close()


def order(shop: SimpleNamespace, number: str, tenant: str = "ada", card: str = "good") -> Any:
    return shop.pipeline.Order(number, tenant, "tea", 2, card)


def left(shop: SimpleNamespace) -> int:
    with shop.tables.database().connect() as reading:
        return int(reading.execute(sqlalchemy.select(shop.tables.shelf.c.free)).scalar_one())


@contextmanager
def process(**variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process of the shop that has started, and kill it after the block."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1", **variables}
    with subprocess.Popen([sys.executable, "-c", PROCESS], cwd=ROOT, env=environment, stdout=subprocess.PIPE) as one:
        try:
            assert one.stdout is not None
            one.stdout.readline()
            yield one
        finally:
            one.kill()


@pytest.mark.timeout(180)
def test_an_order_takes_effect_once_though_processes_die_after_its_effects(shop: SimpleNamespace) -> None:
    """SIGKILL strikes after an effect and before its record: at this moment a step is repeated."""
    with process(**{shop.worker.KILL_AT: "charge:unrecorded"}) as first:  # it creates the tables of the engine, too
        client = DBOSClient(system_database_url=shop.tables.address())
        client.enqueue(
            {"workflow_name": "order", "queue_name": "order", "workflow_id": "0001", "app_version": "1"},
            order(shop, "0001"),
        )
        first.wait()
    with process(**{shop.worker.KILL_AT: "ship:unrecorded"}) as second:
        second.wait()
    with process() as last:
        end = client.retrieve_workflow("0001").get_result()
        last.terminate()
        last.wait()
    client.destroy()

    assert [first.returncode, second.returncode, last.returncode] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert end == "shipped"
    assert {kind: dict(done) for kind, done in shop.partners.done.items() if done} == {
        kind: {"0001": 1} for kind in ("charge", "ship", "notify")
    }
    assert left(shop) == 3
    # Both requests came again, and the idempotency key made them harmless.
    assert set(shop.partners.repeated) >= {"charge", "ship"}


def test_pieces_are_held_once_and_released_once(shop: SimpleNamespace) -> None:
    """The row of the order recognizes each step that a dead process repeats."""
    tables = shop.tables

    tables.hold("0001", "tea", 2)
    tables.hold("0001", "tea", 2)
    assert left(shop) == 3

    tables.release("0001")
    tables.release("0001")
    assert left(shop) == 5
    with pytest.raises(tables.SoldOutError):
        tables.hold("0001", "tea", 2)


def test_an_order_that_was_given_up_holds_nothing_later(shop: SimpleNamespace) -> None:
    """The finalizer may come before a task that still waits in the queue."""
    shop.tables.release("0002")

    assert shop.pipeline.attempt("reserve", order(shop, "0002"), 0).declined
    assert left(shop) == 5


def test_a_conflict_of_versions_is_retried_in_the_process(shop: SimpleNamespace) -> None:
    """Another order changes the row between reading and writing; the second attempt reads the new version."""
    rivals = ["0009"]
    shelf, engine = shop.tables.shelf, shop.tables.database()

    @sqlalchemy.event.listens_for(engine, "before_cursor_execute")
    def rival(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE shelf") and rivals:
            shop.tables.hold(rivals.pop(), "tea", 1)

    outcome = shop.pipeline.attempt("reserve", order(shop, "0001"), 0)

    assert not rivals
    assert outcome.done == "2 left"
    with engine.connect() as reading:
        assert reading.execute(sqlalchemy.select(shelf.c.version)).scalar_one() == 2


def test_a_failure_of_a_partner_is_handed_to_the_queue(shop: SimpleNamespace) -> None:
    """One request is sent; the delay is at least that of the answer's Retry-After, and nobody sleeps."""
    shop.partners.down.add(("charge", "eve"))

    began = time.monotonic()
    outcome = shop.pipeline.attempt("charge", order(shop, "0001", "eve"), 0)

    assert time.monotonic() - began < 0.5
    assert outcome.reason == "UnavailableError"
    assert 0.5 <= outcome.after <= 0.75
    assert [kind for _, kind, _ in shop.partners.requests] == ["charge"]


def test_a_circuit_of_one_tenant_opens_and_hands_its_delay_to_the_queue(shop: SimpleNamespace) -> None:
    """The other tenants go on, and the partner that is down gets no more requests."""
    shop.partners.down.add(("charge", "bob"))

    tries = [shop.pipeline.attempt("charge", order(shop, "0001", "bob"), 0) for _ in range(shop.pipeline.THRESHOLD + 1)]

    assert tries[-1].reason == "CircuitBreakerOpenException"
    assert 0 < tries[-1].after <= shop.pipeline.DELAY * 1.5
    assert len(shop.partners.requests) == shop.pipeline.THRESHOLD
    assert shop.pipeline.attempt("charge", order(shop, "0002", "cyd"), 0).done == "done"


def test_a_declined_card_is_final(shop: SimpleNamespace) -> None:
    """A refusal of the bank is a result: neither guard nor engine tries again."""
    outcome = shop.pipeline.attempt("charge", order(shop, "0001", card="stolen"), 0)

    assert (outcome.declined, outcome.after) == ("the card is stolen", None)
