"""A query that ends at its deadline on every thread, though it is C code: on_deadline."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing

from faulttolerance import TimeoutException, on_deadline, timeout

COUNT = "with recursive n(i) as (select 1 union all select i + 1 from n where i < {}) select count(*) from n"


@timeout(300)
def count(connection: sqlite3.Connection, most: int) -> int:
    with on_deadline(connection.interrupt):
        (number,) = connection.execute(COUNT.format(most)).fetchone()
    return int(number)


def serve() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        print(count(connection, 1000), "rows, in time")
        began = time.monotonic()
        try:
            count(connection, 2_000_000_000)
        except TimeoutException as error:
            print(error)
            took.append(time.monotonic() - began)
        print(count(connection, 1000), "rows again: the connection serves on")


took: list[float] = []
worker = threading.Thread(target=serve)
worker.start()
worker.join()
assert sum(took) < 5, "the query should have ended at its deadline"
