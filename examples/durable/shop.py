"""The tables of the shop: its articles, each with a version, and the pieces that each order holds."""

from __future__ import annotations

import os
from functools import cache

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from faulttolerance.integrations.sqlalchemy import install

DATABASE = "DURABLE_DATABASE"
"""The environment variable with the address of the database, of the engine and the shop: SQLite or PostgreSQL."""

tables = MetaData()
shelf = Table(
    "shelf", tables, Column("article", String, primary_key=True), Column("free", Integer), Column("version", Integer)
)
holds = Table(
    "holds",
    tables,
    Column("number", String, primary_key=True),
    Column("article", String),
    Column("pieces", Integer),
    Column("state", String),
)
"""The orders that changed the shelf, written in the same transaction: none changes it twice."""


class ConflictError(Exception):
    """Another order changed the row between reading and writing."""


class SoldOutError(Exception):
    """The shelf has fewer pieces than the order needs."""


def address() -> str:
    """Return the address of the database."""
    return os.environ.get(DATABASE, "sqlite:///durable.sqlite")


@cache
def database() -> Engine:
    """Return the connections of this process, whose statements end at the time-out of a guard."""
    url = address().replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, connect_args={"timeout": 30} if url.startswith("sqlite") else {})
    install(engine)
    return engine


def hold(number: str, article: str, pieces: int) -> str:
    """Reserve *pieces* for an order, if it holds none yet, and return how many are left.

    Raises:
        ConflictError: If the shelf changed between reading and writing. The next attempt reads again.
        SoldOutError: If there are too few, or the order was released before.
    """
    with database().connect() as reading:
        known = reading.execute(select(holds.c.state).where(holds.c.number == number)).scalar()
        free, version = reading.execute(select(shelf.c.free, shelf.c.version).where(shelf.c.article == article)).one()
    if known == "held":
        return "held before"
    if known is not None or free < pieces:
        raise SoldOutError(f"{article}: {free} left")
    with database().begin() as writing:
        changed = writing.execute(
            update(shelf)
            .where(shelf.c.article == article, shelf.c.version == version)
            .values(free=free - pieces, version=version + 1)
        )
        if changed.rowcount == 0:
            raise ConflictError(f"{article} is no longer at version {version}")
        try:
            writing.execute(insert(holds).values(number=number, article=article, pieces=pieces, state="held"))
        except IntegrityError as twin:
            raise ConflictError(f"order {number} was held or released meanwhile") from twin
    return f"{free - pieces} left"


def release(number: str) -> None:
    """Put the pieces of an order back, if it holds any, and prevent that it holds some later.

    Raises:
        ConflictError: If the order was held meanwhile.
    """
    with database().begin() as writing:
        released = writing.execute(
            update(holds).where(holds.c.number == number, holds.c.state == "held").values(state="released")
        )
        if released.rowcount:
            article, pieces = writing.execute(
                select(holds.c.article, holds.c.pieces).where(holds.c.number == number)
            ).one()
            back = {"free": shelf.c.free + pieces, "version": shelf.c.version + 1}
            writing.execute(update(shelf).where(shelf.c.article == article).values(back))
        elif writing.execute(select(holds.c.state).where(holds.c.number == number)).scalar() is None:
            try:
                writing.execute(insert(holds).values(number=number, article="", pieces=0, state="released"))
            except IntegrityError as twin:
                raise ConflictError(f"order {number} was held meanwhile") from twin
