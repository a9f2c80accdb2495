"""Statements of SQLAlchemy that end at the deadline on every thread, and no retry inside an open transaction.

>>> from sqlalchemy import create_engine
>>> from faulttolerance.integrations.sqlalchemy import install
>>> engine = create_engine("sqlite://")
>>> install(engine)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutinefunction
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import RollbackToSavepointClause

from .. import Interrupted, on_deadline, remaining
from ..exceptions import definition_error
from ..typing import ExceptionSet
from ._transactions import Failures, failures, refuse_retries

if TYPE_CHECKING:
    from sqlalchemy.engine import ExceptionContext
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["install"]

_CANCEL_INTERVALS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between the calls of a driver's cancel."""
_BUSY_TIMEOUT = "faulttolerance: busy_timeout"

_not_retried: WeakKeyDictionary[Any, Failures] = WeakKeyDictionary()
"""By the dialect, of which each engine has its own: the failures after which no retry follows inside a transaction."""

_in_transaction: ContextVar[tuple[tuple[ref[Any], Any], ...]] = ContextVar("faulttolerance_begun", default=())
"""The connections and sessions that have begun a transaction, each with its dialect; it may be over.

They began it in this context, or in one that this context is a copy of.
"""


def install(engine: Engine | AsyncEngine, *, no_retry_on: ExceptionSet = Exception) -> None:
    """End the statements of *engine* at time-outs, and make no further attempt while a transaction of it is open.

    A statement that runs when the nearest deadline passes is cancelled by the driver, on every thread and in
    coroutines: by ``interrupt`` or ``cancel`` of its connection or ``cancel`` of its cursor, where there is one, as in
    sqlite3, aiosqlite, psycopg, psycopg2, oracledb and pyodbc. SQLite also waits for locks no longer than the time
    left.

    The effects of a failed attempt are still in a transaction that was begun around it, and another attempt would
    repeat them; so the failure propagates at once, from any guard, with a note that explains this. The same holds for a
    transaction that the attempt began and left open, and for a session that it broke. Once the transaction is over,
    retries are made.

    A second call for the same engine changes *no_retry_on* alone.

    Args:
        engine: The engine, before it is used by several threads.
        no_retry_on: The failures that this concerns: ``caused_by(sqlalchemy.exc.SQLAlchemyError)`` for those of
            databases alone, ``()`` for none. Where engines differ, the setting of the engine with the open transaction
            counts.

    Raises:
        FaultToleranceDefinitionException: If *engine* is none, or *no_retry_on* no set of exceptions.
    """
    one: Any = getattr(engine, "sync_engine", engine)  # without greenlet, AsyncEngine cannot be imported
    if not isinstance(one, Engine):
        raise definition_error("install(engine)", f"is {engine!r}", engine, "an Engine or AsyncEngine of SQLAlchemy")
    given = failures("install(no_retry_on)", no_retry_on)
    if not event.contains(Session, "after_begin", _record_session):
        event.listen(Session, "after_begin", _record_session)
        refuse_retries("a transaction of SQLAlchemy", _is_open)
    if one.dialect not in _not_retried:
        for name in ("do_execute", "do_executemany", "do_execute_no_params"):
            event.listen(one, name, partial(_execute, name), named=False)
        event.listen(one, "handle_error", _keep_connection)
    event.listen(one, "begin", _record_connection)  # engines with options share the dialect, not these
    event.listen(one, "begin_twophase", _record_connection)
    event.listen(one, "commit", _limit_waiting)
    _not_retried[one.dialect] = given


# Deadlines


def _execute(name: str, cursor: Any, statement: str, *parameters: Any) -> bool | None:
    """Execute in place of the dialect, under a deadline; return ``None`` where the dialect is to do it."""
    context, left = parameters[-1], remaining()
    _limit_waiting(context.root_connection)
    if left is None or isinstance(context.invoked_statement, RollbackToSavepointClause):  # the latter cleans up
        return None
    cancel = _cancel_function(context, cursor)
    if cancel is None:
        return None
    running = Lock()
    running.acquire()  # before any other thread can look at it
    context.faulttolerance_is_late = True
    with on_deadline(cancel if context.dialect.is_async else partial(_cancel_repeatedly, cancel, running)):
        context.faulttolerance_is_late = False
        try:
            getattr(context.dialect, name)(cursor, statement, *parameters)
        finally:
            running.release()
    return True


def _keep_connection(error: ExceptionContext) -> None:
    """Keep the connection, which SQLAlchemy drops at every interruption, if no time was left to begin the statement."""
    is_late = getattr(error.execution_context, "faulttolerance_is_late", False)
    if is_late and isinstance(error.original_exception, Interrupted):
        error.is_disconnect = False


def _cancel_repeatedly(cancel: Callable[[], object], running: Lock) -> None:
    """Cancel, and again for two seconds while it is *running*: a cancel just before the statement runs is lost."""
    cancel()
    for wait in _CANCEL_INTERVALS:
        if running.acquire(timeout=wait):
            return
        cancel()


def _cancel_function(context: Any, cursor: Any) -> Callable[[], object] | None:
    """Return the function that ends a running statement, if the driver has it."""
    driver = context.root_connection.connection.driver_connection
    ways = [getattr(driver, "interrupt", None)]
    if not context.dialect.is_async:  # other asynchronous drivers cancel when their task is cancelled
        ways += [getattr(driver, "cancel", None), getattr(cursor, "cancel", None)]
    way = next(filter(callable, ways), None)
    return partial(_run_at_once, way) if iscoroutinefunction(way) else way


def _run_at_once(function: Callable[[], Any]) -> None:
    """Run a coroutine function that waits for nothing, as aiosqlite's ``interrupt``."""
    coroutine = function()
    with suppress(StopIteration):
        coroutine.send(None)
    coroutine.close()


def _limit_waiting(connection: Connection) -> None:
    """Limit the wait of SQLite for a lock to the time that is left: nothing interrupts it meanwhile."""
    if connection.dialect.name != "sqlite":
        return
    info, left = connection.info, remaining()
    if left is None and _BUSY_TIMEOUT not in info:
        return
    with closing(connection.connection.cursor()) as cursor:
        if _BUSY_TIMEOUT not in info:
            cursor.execute("PRAGMA busy_timeout")
            (info[_BUSY_TIMEOUT],) = cursor.fetchone() or (0,)
        own: int = info[_BUSY_TIMEOUT]
        cursor.execute(f"PRAGMA busy_timeout = {own if left is None else min(own, max(1, int(left * 1000)))}")
        if left is None:
            del info[_BUSY_TIMEOUT]


# Transactions


def _record_connection(connection: Connection, *_: object) -> None:
    _record(connection, connection.dialect)


def _record_session(session: Session, _: object, connection: Connection) -> None:
    if connection.dialect in _not_retried:
        _record(session, connection.dialect)


def _record(begun: Connection | Session, dialect: Any) -> None:
    others = (one for one in _in_transaction.get() if _is_in_transaction(one[0]()))
    _in_transaction.set((*others, (ref(begun), dialect)))


def _is_in_transaction(begun: Any) -> bool:
    """Return whether a transaction was begun and not ended, even if it cannot go on."""
    if isinstance(begun, Session):
        return begun.in_transaction()
    return begun is not None and begun.get_transaction() is not None


def _is_open(failure: BaseException) -> bool:
    concerned = (one() for one, dialect in _in_transaction.get() if isinstance(failure, _not_retried.get(dialect, ())))
    # The connection shows the transaction; a failed flush has ended it, and only the session shows that.
    return any(_is_in_transaction(one) and not (isinstance(one, Session) and one.is_active) for one in concerned)
