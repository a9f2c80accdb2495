"""SQLAlchemy alone, in the second version without greenlet: a synchronous service with SQLite."""

from __future__ import annotations

from importlib.util import find_spec

from outage import guard, shown
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from faulttolerance.integrations.sqlalchemy import install

engine = create_engine("sqlite://")
install(engine)
shop = guard("shop")


def ask(statement: str) -> object:
    with engine.connect() as connection:
        return connection.scalar(text(statement))


def badly() -> None:
    try:
        shop.call(ask, "SELECT * FROM nothing")
    except SQLAlchemyError:
        pass


assert find_spec("greenlet") is None, "greenlet is here: SQLAlchemy 2.1 and later do without it"
shown("sqlalchemy", lambda: shop.call(ask, "SELECT 1"), badly)
