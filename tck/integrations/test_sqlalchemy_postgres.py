"""``faulttolerance.integrations.sqlalchemy`` with a server of PostgreSQL, which is killed in the middle."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from faulttolerance import CircuitBreakerOpenException, Guard, TimeoutException
from faulttolerance.policies import CircuitBreaker, Retry, Timeout
from kit.crowd import on_thread
from kit.postgres_server import PostgresServer, postgres_server
from kit.waiting import wait_until

sqlalchemy = pytest.importorskip("sqlalchemy")
pytest.importorskip("psycopg")
from sqlalchemy import Engine, create_engine, exc, text  # noqa: E402
from sqlalchemy.ext.asyncio import create_async_engine  # noqa: E402

from faulttolerance.integrations.sqlalchemy import install  # noqa: E402

pytestmark = pytest.mark.outside

LONG = text("select pg_sleep(30)")
RUNNING = text("select count(*) from pg_stat_activity where state = 'active' and query like 'select pg_sleep%'")
LATE = Timeout("300ms")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def engine(server: PostgresServer) -> Iterator[Engine]:
    engine = create_engine(server.url)
    install(engine)
    yield engine
    engine.dispose()


def scalar(engine: Engine, statement: Any) -> Any:
    with engine.connect() as connection:
        return connection.execute(statement).scalar()


@pytest.mark.parametrize("where", ["main", "other"])
def test_the_server_stops_working_on_a_statement_at_its_deadline(engine: Engine, where: str) -> None:
    """Nothing else would end the wait for it; the engine serves the next statement."""
    guard = Guard(timeout=LATE)
    began = time.monotonic()
    if where == "main":
        with pytest.raises(TimeoutException):
            guard.call(scalar, engine, LONG)
    else:
        failure, _ = on_thread(lambda: guard.call(scalar, engine, LONG))
        assert isinstance(failure, TimeoutException)

    assert time.monotonic() - began < 15
    wait_until(lambda: scalar(engine, RUNNING) == 0)
    assert guard.call(scalar, engine, text("select 1")) == 1


def test_the_server_stops_working_for_a_coroutine_as_well(server: PostgresServer, engine: Engine) -> None:
    async def main() -> tuple[float, Any]:
        own = create_async_engine(server.url)
        install(own)
        guard = Guard(timeout=LATE)

        async def ask(statement: Any) -> Any:
            async with own.connect() as connection:
                return (await connection.execute(statement)).scalar()

        began = time.monotonic()
        with pytest.raises(TimeoutException):
            await guard.call_async(ask, LONG)
        spent = time.monotonic() - began
        one = await guard.call_async(ask, text("select 1"))
        await own.dispose()
        return spent, one

    spent, one = asyncio.run(main())

    assert (spent < 15, one) == (True, 1)
    wait_until(lambda: scalar(engine, RUNNING) == 0)


def test_a_server_that_dies_in_the_middle_is_asked_again_when_it_is_back(
    server: PostgresServer, engine: Engine
) -> None:
    """The connections that were lost with it are not used again."""
    asked: list[int] = []
    guard = Guard(retry=Retry(max_retries=200, delay=50, jitter=0, max_duration="60s", retry_on=exc.OperationalError))

    def ask() -> Any:
        asked.append(1)
        return scalar(engine, LONG if len(asked) == 1 else text("select 7"))

    def restart() -> None:
        own = create_engine(server.url)
        wait_until(lambda: scalar(own, RUNNING) == 1)
        own.dispose()
        server.kill()
        server.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    answer = guard.call(ask)
    restarting.join(60)

    assert answer == 7
    assert len(asked) > 1


def test_a_transaction_that_was_lost_with_the_server_is_not_continued(server: PostgresServer, engine: Engine) -> None:
    """Its changes are lost, and a second attempt within it would do only a part of them."""
    guard = Guard(retry=Retry(max_retries=3, delay=0, jitter=0, retry_on=exc.DBAPIError))
    asked: list[int] = []

    def order() -> None:
        with engine.begin() as connection:

            def insert() -> None:
                asked.append(1)
                connection.execute(text("insert into orders values (1)"))

            connection.execute(text("create table orders (number integer)"))
            guard.call(insert)
            server.kill()
            server.start()
            guard.call(insert)

    with pytest.raises(exc.OperationalError) as raised:
        order()

    assert len(asked) == 2
    assert any("a transaction of SQLAlchemy is open" in note for note in raised.value.__notes__)
    assert scalar(engine, text("select to_regclass('orders')")) is None


def test_a_server_that_is_gone_opens_the_circuit_and_closes_it_when_it_is_back(
    server: PostgresServer, engine: Engine
) -> None:
    guard = Guard(
        circuit_breaker=CircuitBreaker(request_volume_threshold=4, delay=100, fail_on=exc.OperationalError),
        timeout=LATE,
    )
    server.kill()
    for _ in range(4):
        with pytest.raises(exc.OperationalError):
            guard.call(scalar, engine, text("select 1"))
    with pytest.raises(CircuitBreakerOpenException):
        guard.call(scalar, engine, text("select 1"))
    server.start()

    def is_served() -> bool:
        try:
            return bool(guard.call(scalar, engine, text("select 1")) == 1)
        except (CircuitBreakerOpenException, exc.OperationalError, TimeoutException):  # it is still starting
            return False

    wait_until(is_served)
