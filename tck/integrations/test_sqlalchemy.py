"""``faulttolerance.integrations.sqlalchemy`` with SQLAlchemy itself, and databases in files."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import (
    FaultToleranceDefinitionException,
    Guard,
    TimeoutException,
    asynchronous,
    caused_by,
    deadline,
    retry,
)
from faulttolerance.policies import Retry, Timeout
from kit.crowd import on_thread
from kit.program import output_of

sqlalchemy = pytest.importorskip("sqlalchemy")
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, exc, text  # noqa: E402
from sqlalchemy.orm import Session  # noqa: E402

from faulttolerance.integrations.sqlalchemy import install  # noqa: E402

ENDLESS = text("with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n")
WRONG = text("select nothing from nowhere")
LATE = Timeout("300ms")
THREE = Retry(max_retries=3, delay=0, jitter=0)
OPEN = "no more, because a transaction of SQLAlchemy is open, and another attempt would run inside it"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a database with one empty table."""
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("create table orders (number integer primary key)")
    return file


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{file}")
    install(engine)
    yield engine
    engine.dispose()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the database by another connection within the block."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield


def execute(engine: Engine, statement: Any) -> Any:
    with engine.begin() as connection:
        return connection.execute(statement)


# Deadlines


def test_a_statement_ends_at_its_deadline_on_every_thread(engine: Engine) -> None:
    """The driver's own means end it, and the connection serves the next statement."""
    guard = Guard(timeout=LATE)
    failure, elapsed = on_thread(lambda: guard.call(execute, engine, ENDLESS))

    assert isinstance(failure, TimeoutException)
    assert failure.__cause__ is not None
    assert elapsed < 10
    assert guard.call(execute, engine, text("select 1"))


class _Early(sqlite3.Connection):
    """A connection that loses its first interruption, like one just before the statement runs."""

    is_lost = False

    def interrupt(self) -> None:
        if self.is_lost:
            super().interrupt()
        self.is_lost = True


def test_a_statement_that_begins_just_as_the_deadline_passes_is_cancelled_too(file: Path) -> None:
    early = create_engine(f"sqlite:///{file}", connect_args={"factory": _Early})
    install(early)
    guard = Guard(timeout=Timeout("100ms"))
    failure, elapsed = on_thread(lambda: guard.call(execute, early, ENDLESS))
    early.dispose()

    assert isinstance(failure, TimeoutException)
    assert isinstance(failure.__cause__, exc.OperationalError)
    assert elapsed < 30


def test_an_enclosing_deadline_and_many_parameters_count_too(engine: Engine) -> None:
    """This holds for every way of the driver: ``executemany`` has one of its own."""
    several = [{"number": number} for number in range(3)]

    def insert() -> None:
        with deadline("300ms"), engine.begin() as connection:
            connection.execute(text("insert into orders values (:number)"), several)
            connection.exec_driver_sql(str(ENDLESS), execution_options={"no_parameters": True})

    failure, elapsed = on_thread(insert)

    assert isinstance(failure, TimeoutException)
    assert elapsed < 10


def test_no_call_waits_for_a_lock_longer_than_the_remaining_time(engine: Engine, file: Path) -> None:
    """SQLite waits for 5 s by itself, and nothing interrupts that; afterwards it waits as before."""
    insert = text("insert into orders values (1)")
    with locked(file):
        failure, elapsed = on_thread(lambda: Guard(timeout=LATE).call(execute, engine, insert))

    assert isinstance(failure, TimeoutException)
    assert elapsed < 4
    with engine.connect() as connection:
        assert connection.scalar(text("pragma busy_timeout")) == 5000


def test_a_commit_waits_for_a_lock_as_long_as_its_own_deadline_allows(engine: Engine, file: Path) -> None:
    """The deadline of a statement is over at the commit: SQLite waits for a reader to end, as without a deadline."""
    with closing(sqlite3.connect(file, check_same_thread=False)) as reader, engine.connect() as connection:
        with deadline("20ms"):
            connection.execute(text("insert into orders values (1)"))
        reader.execute("begin")
        reader.execute("select * from orders").fetchall()
        end = threading.Timer(0.3, reader.rollback)
        end.start()
        connection.commit()
        end.join()
    with engine.connect() as connection:
        assert connection.scalar(text("select count(*) from orders")) == 1


def test_no_call_waits_for_the_pool_longer_than_the_remaining_time(file: Path) -> None:
    """A pool waits for 30 s by itself."""
    engine = create_engine(f"sqlite:///{file}", poolclass=QueuePool, pool_size=1, max_overflow=0)
    install(engine)
    with engine.connect():
        failure, elapsed = on_thread(lambda: Guard(timeout=LATE).call(engine.connect))

    assert isinstance(failure, TimeoutException)
    assert elapsed < 10
    with engine.connect() as connection:  # the place in the pool was given back
        assert connection.scalar(text("select 1")) == 1
    engine.dispose()


def _endless_in_a_savepoint(connection: Connection) -> None:
    with connection.begin_nested():
        connection.execute(text("insert into orders values (3)"))
        connection.execute(ENDLESS)


def _many_short_ones(connection: Connection) -> None:
    while True:
        connection.execute(text("select 1"))


@pytest.mark.parametrize("part", [_endless_in_a_savepoint, _many_short_ones])
@pytest.mark.parametrize("is_main", [True, False], ids=["main", "thread"])
def test_a_time_out_leaves_the_transaction_around_the_guarded_part_alone(
    engine: Engine, part: Callable[[Connection], None], is_main: bool
) -> None:
    """The savepoint of the part is rolled back, and a deadline that passes between two statements breaks nothing."""

    def order() -> None:
        with engine.begin() as connection:
            connection.execute(text("insert into orders values (1)"))
            with pytest.raises(TimeoutException):
                Guard(timeout=Timeout("100ms")).call(part, connection)
            connection.execute(text("insert into orders values (2)"))

    if is_main:
        order()
    else:
        assert on_thread(order)[0] is None
    with engine.connect() as connection:
        assert connection.scalars(text("select number from orders")).all() == [1, 2]


def test_a_coroutine_ends_its_statement_as_well(file: Path) -> None:
    """aiosqlite goes on by itself, on its thread, when the task is cancelled."""
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        install(engine)

        async def count() -> None:
            async with engine.connect() as connection:
                await connection.execute(ENDLESS)

        with pytest.raises(TimeoutException):
            await Guard(timeout=LATE).call_async(count)
        async with engine.connect() as connection:
            assert await connection.scalar(text("select 1")) == 1
        await engine.dispose()

    asyncio.run(main())


@pytest.mark.outside
def test_another_process_that_held_the_lock_dies(engine: Engine, file: Path) -> None:
    """The attempts during its life end in time, and the first one after its end succeeds."""
    program = f"""if True:
        import sqlite3, sys
        other = sqlite3.connect({str(file)!r}, isolation_level=None)
        other.execute("begin immediate")
        print("locked", flush=True)
        sys.stdin.read()
    """
    attempts: list[int] = []
    again = Retry(max_retries=50, delay=0, jitter=0, retry_on=(exc.OperationalError, TimeoutException))
    guard = Guard(retry=again, timeout=Timeout("1s"))
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()

        def insert() -> None:
            attempts.append(1)
            if len(attempts) == 3:
                holder.kill()
                holder.wait()
            execute(engine, text("insert into orders values (7)"))

        guard.call(insert)

    assert len(attempts) == 3
    with engine.connect() as connection:
        assert connection.scalar(text("select count(*) from orders")) == 1


# Transactions


def attempts_of(body: Callable[[], Any], **policies: Any) -> tuple[int, str]:
    """Return the number of calls of *body*, which fails, by a guard that retries, and the last note."""
    attempts: list[int] = []

    def attempt() -> None:
        attempts.append(1)
        body()

    with pytest.raises(exc.SQLAlchemyError) as raised:
        Guard(retry=policies.pop("retry", THREE), **policies).call(attempt)
    return len(attempts), raised.value.__notes__[-1]


def test_nothing_is_retried_inside_a_transaction(engine: Engine) -> None:
    """A second attempt would go on in the rest of the first one; an attempt around the transaction begins anew."""
    with engine.begin() as connection:
        inside, note = attempts_of(lambda: connection.execute(WRONG))
    around, _ = attempts_of(lambda: execute(engine, WRONG))

    assert (inside, around) == (1, 4)
    assert OPEN in note


def test_engines_with_options_of_the_same_engine_are_all_known(file: Path) -> None:
    """They have one dialect, and transactions of their own."""
    engine = create_engine(f"sqlite:///{file}")
    for one in (engine.execution_options(tenant=1), engine.execution_options(tenant=2), engine):
        install(one)
        with one.begin() as connection:
            assert attempts_of(partial(connection.execute, WRONG))[0] == 1
    engine.dispose()


def test_a_transaction_that_the_attempt_leaves_open_counts(engine: Engine) -> None:
    with engine.connect() as connection:
        assert attempts_of(lambda: connection.execute(WRONG))[0] == 1
        connection.rollback()

        def rolls_back() -> None:
            try:
                connection.execute(WRONG)
            finally:
                connection.rollback()

        assert attempts_of(rolls_back)[0] == 4


def test_a_savepoint_is_inside_the_transaction(engine: Engine) -> None:
    with engine.begin() as connection:

        def nested() -> None:
            with connection.begin_nested():
                connection.execute(WRONG)

        assert attempts_of(nested)[0] == 1


def test_sessions_are_known(engine: Engine) -> None:
    """A session counts while its transaction is open or broken: a failed flush rolls the connection back."""
    insert = text("insert into orders values (1)")
    with Session(engine) as session, session.begin():
        session.execute(insert)
        assert attempts_of(lambda: session.execute(WRONG))[0] == 1

    mapper: Any = sqlalchemy.orm.registry()
    table = sqlalchemy.Table("orders", sqlalchemy.MetaData(), sqlalchemy.Column("number", primary_key=True))
    order: Any = type("Order", (), {})
    mapper.map_imperatively(order, table)
    with Session(engine) as session:

        def again() -> None:
            one = order()
            one.number = 1
            session.add(one)
            session.flush()

        assert attempts_of(again)[0] == 1
        assert not session.is_active
        session.rollback()
        assert attempts_of(lambda: execute(engine, WRONG))[0] == 4
    mapper.dispose()


def test_a_connection_that_is_lost_has_its_transaction_until_it_is_rolled_back(engine: Engine) -> None:
    with engine.connect() as connection:

        def lose() -> None:
            connection.execute(text("select 1"))
            connection.invalidate()
            connection.execute(text("select 1"))

        assert attempts_of(lose)[0] == 1


def test_each_thread_and_task_knows_its_own(engine: Engine) -> None:
    """Transactions of other threads do not count; a transaction around the start of a task counts in the task."""
    found: list[int] = []
    with engine.begin() as connection:
        connection.execute(text("select 1"))
        on_thread(lambda: found.append(attempts_of(lambda: execute(engine, WRONG))[0]))

        @asynchronous
        @retry(max_retries=2, delay=0, jitter=0)
        async def inside() -> None:
            found.append(0)
            connection.execute(WRONG)

        async def main() -> None:
            with pytest.raises(exc.OperationalError):
                await inside()

        asyncio.run(main())

    assert found == [4, 0]


def test_an_asynchronous_engine_is_known(file: Path) -> None:
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def main() -> tuple[int, int]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        install(engine)
        inside: list[int] = []
        around: list[int] = []

        async def fails(session: AsyncSession, attempts: list[int]) -> None:
            attempts.append(1)
            await session.execute(WRONG)

        async def transaction() -> None:
            async with AsyncSession(engine) as session, session.begin():
                await fails(session, around)

        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text("select 1"))
            with pytest.raises(exc.OperationalError):
                await Guard(retry=THREE).call_async(fails, session, inside)
        with pytest.raises(exc.OperationalError):
            await Guard(retry=THREE).call_async(transaction)
        await engine.dispose()
        return len(inside), len(around)

    assert asyncio.run(main()) == (1, 4)


def test_the_rule_may_concern_failures_of_databases_alone(engine: Engine, file: Path) -> None:
    """A wrapped failure counts, too; another one is retried, such as that of a service called meanwhile."""
    install(engine, no_retry_on=caused_by(exc.SQLAlchemyError))
    attempts: list[int] = []

    def asks() -> None:
        attempts.append(1)
        raise ConnectionError

    with engine.begin() as connection:
        connection.execute(text("select 1"))
        with pytest.raises(ConnectionError):
            Guard(retry=THREE).call(asks)

        def wraps() -> None:
            attempts.append(1)
            try:
                connection.execute(WRONG)
            except exc.OperationalError as error:
                raise ConnectionError from error

        with pytest.raises(ConnectionError) as raised:
            Guard(retry=THREE).call(wraps)

    assert len(attempts) == 4 + 1
    assert OPEN in raised.value.__notes__[-1]
    install(engine, no_retry_on=())
    with engine.begin() as connection:
        assert attempts_of(lambda: connection.execute(WRONG))[0] == 4


def test_engines_without_the_integration_are_left_alone(file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        assert attempts_of(lambda: connection.execute(WRONG))[0] == 4
    engine.dispose()


def test_a_finished_transaction_is_not_remembered(engine: Engine) -> None:
    """This holds however many transactions a thread has seen."""
    from faulttolerance.integrations.sqlalchemy import _in_transaction

    for _ in range(10):
        execute(engine, text("select 1"))

    assert len(_in_transaction.get()) <= 2


def test_listeners_of_the_application_are_heard_as_before(engine: Engine) -> None:
    heard: list[str] = []

    def hear(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        heard.append(statement)

    event.listen(engine, "before_cursor_execute", hear)
    Guard(timeout=LATE).call(execute, engine, text("select 3"))

    assert heard == ["select 3"]


def test_wrong_values_are_refused(engine: Engine) -> None:
    """By rule R9."""
    wrong: Any = "sqlite://"
    with pytest.raises(
        FaultToleranceDefinitionException, match=r"install\(engine\) is 'sqlite://'; allowed: an Engine"
    ):
        install(wrong)
    with pytest.raises(FaultToleranceDefinitionException, match=r"install\(no_retry_on\) is 3; allowed: an exception"):
        install(engine, no_retry_on=3)  # type: ignore[arg-type]


@pytest.mark.outside
def test_a_synchronous_service_needs_no_asyncio_of_sqlalchemy() -> None:
    """Without greenlet it cannot be imported; an object that is no engine is refused there as everywhere."""
    program = """
import sys
sys.modules["sqlalchemy.ext.asyncio"] = None  # cannot be imported
from sqlalchemy import create_engine, text
from faulttolerance import FaultToleranceDefinitionException
from faulttolerance.integrations.sqlalchemy import install
engine = create_engine("sqlite://")
install(engine)
with engine.connect() as connection:
    print(connection.scalar(text("SELECT 1")))
try:
    install("sqlite://")
except FaultToleranceDefinitionException as error:
    print(error)
"""

    assert output_of(program).splitlines() == [
        "1",
        "install(engine) is 'sqlite://'; allowed: an Engine or AsyncEngine of SQLAlchemy",
    ]
