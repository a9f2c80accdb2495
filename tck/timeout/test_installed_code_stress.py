"""Time-outs strike calls that use the pools of other libraries; nothing that a pool has lent may be lost (rule R2a).

Would have caught: an exception between a connection's leaving the pool and its owner's knowing of it; a lock that stays
held; a wake-up that goes to a waiter that has left. ``STRESS_TIMEOUTS`` says how many time-outs each pool has to stand.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from faulttolerance import TimeoutException, timeout
from kit.postgres_server import postgres_server
from kit.redis_server import redis_server

TIMEOUTS = int(os.environ.get("STRESS_TIMEOUTS", "200"))
THREADS = 6
SIZE = 4

pytestmark = [pytest.mark.stress, pytest.mark.timeout(TIMEOUTS * 0.1 + 200)]


class Subject(NamedTuple):
    """A pool under attack."""

    use: Callable[[], object]
    """The body of a call."""
    lost: Callable[[], int]
    """Counts, in the end, what the pool does not get back."""


@contextmanager
def of_sqlalchemy(folder: Path) -> Iterator[Subject]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(
        f"sqlite:///{folder}/pool.db",
        poolclass=sqlalchemy.pool.QueuePool,
        pool_size=SIZE,
        max_overflow=0,
        pool_timeout=60,
    )
    statement = sqlalchemy.text("select :number")

    def use() -> None:
        with engine.connect() as connection:
            for number in range(20):
                connection.execute(statement, {"number": number}).scalar()

    yield Subject(use, engine.pool.checkedout)
    engine.dispose()


@contextmanager
def of_psycopg(_: Path) -> Iterator[Subject]:
    psycopg_pool = pytest.importorskip("psycopg_pool")
    with (
        postgres_server() as server,
        psycopg_pool.ConnectionPool(
            server.url.replace("+psycopg", ""), min_size=SIZE, max_size=SIZE, timeout=60, open=True
        ) as pool,
    ):
        pool.wait(30)

        def use() -> None:
            with pool.connection() as connection:
                for number in range(5):
                    connection.execute("select %s", [number]).fetchone()

        yield Subject(use, lambda: missing(lambda: pool.connection(10)))


@contextmanager
def of_redis(folder: Path) -> Iterator[Subject]:
    redis = pytest.importorskip("redis")
    with redis_server(folder) as server:
        pool = redis.BlockingConnectionPool(
            host="127.0.0.1", port=server.port, max_connections=SIZE, timeout=60, socket_timeout=60
        )
        client = redis.Redis(connection_pool=pool)

        def use() -> None:
            for number in range(10):
                client.set("key", number)
                client.get("key")

        @contextmanager
        def connection() -> Iterator[None]:
            pool.timeout = 10
            taken = pool.get_connection()
            try:
                yield
            finally:
                pool.release(taken)

        yield Subject(use, lambda: missing(connection))
        pool.disconnect()


class Handler(BaseHTTPRequestHandler):
    """A handler that answers at once, on a connection that stays."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"thank")

    def log_message(self, *_: object) -> None: ...


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore a connection that an interrupted client has closed."""


@contextmanager
def web() -> Iterator[tuple[str, int]]:
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "127.0.0.1", server.server_address[1]
        server.shutdown()


@contextmanager
def of_urllib3(_: Path) -> Iterator[Subject]:
    urllib3 = pytest.importorskip("urllib3")
    with web() as (host, port), closing(urllib3.HTTPConnectionPool(host, port, maxsize=SIZE, block=True)) as pool:
        yield Subject(lambda: pool.request("GET", "/").data, lambda: SIZE - pool.pool.qsize())


@contextmanager
def of_requests(_: Path) -> Iterator[Subject]:
    requests = pytest.importorskip("requests")
    with web() as (host, port), requests.Session() as session:
        adapter = requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=SIZE, pool_block=True)
        session.mount("http://", adapter)
        url = f"http://{host}:{port}/"
        pool = adapter.poolmanager.connection_from_url(url)
        yield Subject(lambda: session.get(url).content, lambda: SIZE - pool.pool.qsize())


@contextmanager
def of_httpx(_: Path) -> Iterator[Subject]:
    httpx = pytest.importorskip("httpx")
    # No call has to wait for a connection: httpcore 1.0 loses those of its own PoolTimeout, without any guard. It also
    # closes a connection that another thread has just begun to use, and that thread then waits for its time-out.
    limits = httpx.Limits(max_connections=THREADS, max_keepalive_connections=THREADS)
    with web() as (host, port), httpx.Client(limits=limits, timeout=httpx.Timeout(10)) as client:
        url = f"http://{host}:{port}/"
        yield Subject(lambda: client.get(url).content, lambda: missing(lambda: client.stream("GET", url), THREADS))


@contextmanager
def of_a_queue(tokens: Any) -> Iterator[Subject]:
    for token in range(SIZE):
        tokens.put(token)

    def use() -> None:
        for _ in range(400):
            token = tokens.get()
            try:
                work()
            finally:
                tokens.put(token)

    yield Subject(use, lambda: SIZE - tokens.qsize())


@contextmanager
def of_futures(_: Path) -> Iterator[Subject]:
    with ThreadPoolExecutor(SIZE) as executor:

        def use() -> None:
            for _ in range(10):
                executor.submit(work).result()

        def lost() -> int:
            barrier = threading.Barrier(SIZE)
            waiting = [executor.submit(barrier.wait, 10) for _ in range(SIZE)]
            return sum(future.exception() is not None for future in waiting)

        yield Subject(use, lost)


@contextmanager
def of_logging(folder: Path) -> Iterator[Subject]:
    logger = logging.getLogger(f"pools.{folder.name}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.FileHandler(folder / "soak.log", delay=True)
    logger.addHandler(handler)

    def use() -> None:
        for number in range(50):
            logger.info("line %d", number)

    def lost() -> int:
        thread = threading.Thread(target=logger.info, args=("last",), daemon=True)
        thread.start()
        thread.join(10)
        return thread.is_alive()

    yield Subject(use, lost)
    logger.removeHandler(handler)
    handler.close()


SUBJECTS: dict[str, Callable[[Path], Any]] = {
    "sqlalchemy": of_sqlalchemy,
    "psycopg_pool": of_psycopg,
    "redis": of_redis,
    "urllib3": of_urllib3,
    "requests": of_requests,
    "httpx": of_httpx,
    "queue": lambda _: of_a_queue(queue.Queue()),
    "simple queue": lambda _: of_a_queue(queue.SimpleQueue()),
    "futures": of_futures,
    "logging": of_logging,
}


def work() -> None:
    for _ in range(100):
        pass


def missing(connection: Callable[[], Any], size: int = SIZE) -> int:
    """Return how many of the connections cannot be had, all at once."""
    with ExitStack() as stack:
        for number in range(size):
            try:
                stack.enter_context(connection())
            except Exception:
                return size - number
    return 0


def press(
    use: Callable[[], object], numbers: Iterator[int], seed: int, wrong: list[str], over: threading.Event
) -> None:
    """Call *use* under limits at which it just about ends, until there were enough time-outs."""
    dice = random.Random(seed)
    limited = [timeout(limit)(lambda: use()) for limit in ("0.3ms", "0.7ms", "1.5ms", "3ms", "6ms")]
    while not over.is_set():
        try:
            dice.choice(limited)()
        except TimeoutException:
            if next(numbers) >= TIMEOUTS:
                return
        except Exception as error:
            # A driver may say in its own words that it was interrupted; that nothing could be had is no such thing.
            if "timeout" in type(error).__name__.lower():
                wrong.append(repr(error))
                return


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the loggers: calls end late on purpose, and pools report connections that they close."""
    for name in ("faulttolerance", "sqlalchemy", "psycopg", "urllib3"):
        caplog.set_level(logging.CRITICAL, name)


@pytest.mark.filterwarnings(
    "ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # closed by the collector
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("where", ["main thread", "other threads"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_pool_gets_everything_back(name: str, where: str, tmp_path: Path) -> None:
    """Rule R2a: wherever time-outs strike; the pool then serves as many as in the beginning."""
    wrong: list[str] = []
    numbers, over = itertools.count(1), threading.Event()
    with SUBJECTS[name](tmp_path) as subject:
        threads = [
            threading.Thread(target=press, args=(subject.use, numbers, seed, wrong, over), daemon=True)
            for seed in range(THREADS if where == "other threads" else 0)
        ]
        for thread in threads:
            thread.start()
        if not threads:
            press(subject.use, numbers, 0, wrong, over)
        until = time.monotonic() + TIMEOUTS * 0.1 + 100
        for thread in threads:
            thread.join(max(0.1, until - time.monotonic()))
        still = [thread for thread in threads if thread.is_alive()]
        over.set()
        gc.collect()
        assert (subject.lost(), wrong, still) == (0, [], [])
