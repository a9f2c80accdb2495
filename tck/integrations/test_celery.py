"""``faulttolerance.integrations.celery`` with workers of Celery, processes and threads, and a service that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import faulttolerance

celery = pytest.importorskip("celery")

from celery.exceptions import Ignore, SoftTimeLimitExceeded  # noqa: E402

from faulttolerance import (  # noqa: E402
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    RateLimitException,
)
from faulttolerance.integrations.celery import GuardedTask  # noqa: E402
from faulttolerance.policies import Bulkhead, CircuitBreaker, Retry  # noqa: E402
from kit.redis_server import RedisServer, free_port, redis_server  # noqa: E402

PATIENCE = 40.0
POOLS = ("prefork", "threads")

TASKS = """
import os, time
import redis
from celery import Celery
from faulttolerance import Guard, circuit_breakers, remaining, uninterruptible
from faulttolerance.policies import CircuitBreaker, Retry
from faulttolerance.integrations.celery import GuardedTask

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"], task_cls=GuardedTask)
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
breaker = CircuitBreaker(request_volume_threshold=2, failure_ratio=1, delay="500ms", success_threshold=1)
service = Guard(name="service", circuit_breaker=breaker)
backend = redis.Redis.from_url(os.environ["SERVICE"])

@app.task
def ping():
    return "pong"

@app.task(bind=True, autoretry_for=(redis.ConnectionError,), max_retries=20, default_retry_delay=1)
def visit(self):
    return service.call(backend.incr, "visits"), self.request.retries

@app.task
def trip():
    for _ in range(2):
        try:
            service.call(backend.ping)
        except redis.ConnectionError:
            pass
    return circuit_breakers.state("service")

@app.task(soft_time_limit=2)
def endless():
    while True:
        pass

@app.task(soft_time_limit=2)
def left():
    return remaining()

@app.task
def left_by_option():
    return remaining()

attempts = []
strict = CircuitBreaker(request_volume_threshold=1, failure_ratio=1, delay="60s")
careful = Guard(name="careful", circuit_breaker=strict, retry=Retry(max_retries=5, delay=0, jitter=0))

@app.task(soft_time_limit=2)
def stubborn():
    def sleeps():
        attempts.append(1)
        with uninterruptible():
            time.sleep(20)
    careful.call(sleeps)

@app.task
def after_stubborn():
    return len(attempts), circuit_breakers.state("careful")
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Yield a broker, and the service that tasks call."""
    folder = tmp_path_factory.mktemp("servers")
    with redis_server(folder) as broker, redis_server(folder) as service:
        yield broker, service


@pytest.fixture(scope="module")
def workers(
    servers: tuple[RedisServer, RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """Yield applications whose tasks a worker runs, by the kind of its pool."""
    with ExitStack() as running:
        yield {
            pool: running.enter_context(worker_of(pool, number, *servers, tmp_path_factory.mktemp(pool)))
            for number, pool in enumerate(POOLS, 1)
        }


@contextmanager
def worker_of(pool: str, number: int, broker: RedisServer, service: RedisServer, folder: Path) -> Iterator[Any]:
    """Start a worker with a database of its own at the broker; it need not be ready yet."""
    (folder / "tasks.py").write_text(TASKS)
    where = f"{broker.url}/{number}"
    program = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", pool, "--concurrency", "1"]
    program += ["--soft-time-limit", "100"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    path = os.pathsep.join([str(Path(faulttolerance.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "BROKER": where, "SERVICE": service.url, "PYTHONPATH": path}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(program + quiet, cwd=folder, env=environment, stdout=log, stderr=log)
    app = celery.Celery("client", broker=where, backend=where, set_as_current=False)
    try:
        yield app
    finally:
        # A result asks its server when it is collected: for minutes, amidst another test, if the server is gone.
        app.backend.remove_pending_result = lambda result: result
        app.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            sys.stderr.write((folder / "log").read_text())


@pytest.fixture(params=POOLS)
def worker(request: pytest.FixtureRequest, workers: dict[str, Any]) -> Any:
    return workers[request.param]


def run(app: Any, name: str) -> Any:
    """Return the result of a task that a worker runs."""
    return app.send_task(f"tasks.{name}").get(timeout=PATIENCE)


@pytest.mark.outside
def test_a_refused_task_is_delivered_again_when_the_service_is_back(
    worker: Any, servers: tuple[RedisServer, RedisServer]
) -> None:
    """The service dies in the middle; tasks wait at the broker, and the worker runs another task meanwhile."""
    _, service = servers
    assert run(worker, "visit")[1] == 0
    service.kill()
    try:
        assert run(worker, "trip") == "open"
        refused = [worker.send_task("tasks.visit") for _ in range(3)]
        assert run(worker, "ping") == "pong"
        assert not any(one.ready() for one in refused)
    finally:
        service.start()
    results = [one.get(timeout=PATIENCE) for one in refused]

    assert sorted(visits for visits, _ in results) == [1, 2, 3]
    assert all(retries > 0 for _, retries in results)


@pytest.mark.outside
def test_the_soft_time_limit_is_a_deadline(workers: dict[str, Any]) -> None:
    """It is a little earlier, has the task's name, and holds in a pool of threads, where Celery has no such limit."""
    endless = [worker.send_task("tasks.endless") for worker in workers.values()]
    for one in endless:
        with pytest.raises(Exception, match=r"tasks\.endless: deadline of 1\.5 s passed"):
            one.get(timeout=PATIENCE)
    for worker in workers.values():
        assert 0 < run(worker, "left") <= 1.5
        assert 90 < run(worker, "left_by_option") <= 99


@pytest.mark.outside
def test_a_soft_time_limit_that_comes_itself_is_nobodys_failure(workers: dict[str, Any]) -> None:
    """The limit strikes code that no deadline may interrupt: no retry follows, and the circuit counts no failure."""
    worker = workers["prefork"]
    began = time.monotonic()
    with pytest.raises(Exception, match=r"deadline of 1\.5 s passed"):
        run(worker, "stubborn")

    assert time.monotonic() - began < 15
    assert run(worker, "after_stubborn") == [1, "closed"]


# Without a worker


@pytest.fixture
def app() -> Iterator[Any]:
    """Return an application of which no worker knows."""
    where = {"broker": "memory://", "backend": "cache+memory://"}
    app = celery.Celery("alone", **where, set_as_current=False, task_cls=GuardedTask)
    yield app
    app.close()


def test_after_max_retries_the_refusal_is_the_failure(app: Any) -> None:
    """By default Celery retries 3 times; without a worker each delivery follows at once."""
    deliveries: list[int] = []

    @app.task(bind=True)
    def refused(self: Any) -> None:
        deliveries.append(self.request.retries)
        raise BulkheadException("full")

    result = refused.apply()

    assert deliveries == [0, 1, 2, 3]
    assert isinstance(result.result, BulkheadException)


@pytest.mark.parametrize("told", [None, 5.0], ids=["nobody knows", "told"])
def test_a_refusal_decides_the_time_of_the_next_delivery(
    told: float | None, app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delivery is never earlier, and later by chance, the more so the more deliveries there were."""
    countdowns: list[float] = []

    @app.task(bind=True, max_retries=4)
    def refused(self: Any) -> None:
        raise RateLimitException("no", told or 0.0)

    retry = GuardedTask.retry

    def spied(task: Any, *args: Any, **options: Any) -> Any:
        countdowns.append(options["countdown"])
        return retry(task, *args, **options)

    monkeypatch.setattr(GuardedTask, "retry", spied)
    for _ in range(10):
        refused.apply()
    least = 1.0 if told is None else told

    assert min(countdowns) == least
    assert all(countdown <= least + 2 ** (number % 5) for number, countdown in enumerate(countdowns))


@pytest.mark.parametrize("delay", ["5s", timedelta(seconds=5), -1])
def test_a_refused_delay_that_is_no_number_of_seconds_is_refused_where_it_is_declared(delay: Any, app: Any) -> None:
    """Otherwise the task fails at its first refusal, instead of being delivered again."""
    with pytest.raises(FaultToleranceDefinitionException, match=r"^order\.refused_delay is .*; allowed: seconds >= 0$"):

        @app.task(refused_delay=delay, lazy=False)
        def order() -> None: ...


@pytest.mark.parametrize("most", [-1, 1.5, "60"])
def test_a_largest_addition_that_is_no_number_of_whole_seconds_is_refused_there_too(most: Any, app: Any) -> None:
    with pytest.raises(
        FaultToleranceDefinitionException, match=r"^order\.refused_jitter_max is .*; allowed: whole seconds >= 0$"
    ):

        @app.task(refused_jitter_max=most, lazy=False)
        def order() -> None: ...


def test_a_refused_delay_may_be_computed() -> None:
    class Task(GuardedTask):
        refused_delay = cached_property(lambda self: 2.0)

    assert Task().refused_delay == 2.0


def test_a_refusal_for_thousands_of_years_is_a_delivery_in_the_calendar(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery cannot write a later date than the year 9999, and would lose the task."""
    sent: list[float] = []

    @app.task(bind=True)
    def refused(self: Any) -> None:
        raise RateLimitException("no", 1e12)

    monkeypatch.setattr(GuardedTask, "retry", lambda task, **options: sent.append(options["countdown"]) or Ignore())
    refused.apply()
    assert datetime.now(UTC) + timedelta(seconds=sent[0])


def test_a_task_that_is_called_is_a_function(app: Any) -> None:
    """No worker delivers a called task again."""

    @app.task(soft_time_limit=2)
    def refused() -> None:
        raise CircuitBreakerOpenException("open")

    with pytest.raises(CircuitBreakerOpenException):
        refused()


def test_a_task_that_calls_itself_calls_a_function(app: Any) -> None:
    """The inner call raises the refusal, which the outer call may handle; only the latter is delivered again."""
    runs: list[int] = []

    @app.task(bind=True, max_retries=1)
    def search(self: Any, depth: int, is_handled: bool) -> str:
        runs.append(depth)
        if not depth:
            raise BulkheadException("full")
        try:
            return str(self(depth - 1, is_handled))
        except BulkheadException:
            if is_handled:
                return "handled"
            raise

    handled = search.apply((1, True))
    assert (handled.result, runs) == ("handled", [1, 0])
    runs.clear()
    assert isinstance(search.apply((1, False)).result, BulkheadException)
    assert runs == [1, 0, 1, 0]


def test_other_failures_and_autoretry_are_celerys(app: Any) -> None:
    """A task with ``autoretry_for`` retries other failures, and leaves refusals to the base class."""
    runs: list[int] = []

    @app.task(autoretry_for=(Exception,), max_retries=1, retry_backoff=False, default_retry_delay=0)
    def fails(refuse: bool) -> None:
        runs.append(1)
        raise BulkheadException("full") if refuse else OSError("down")

    assert isinstance(fails.apply((False,)).result, OSError)
    assert isinstance(fails.apply((True,)).result, BulkheadException)
    assert len(runs) == 4


@pytest.mark.parametrize("control", [SoftTimeLimitExceeded(1), Ignore()], ids=["soft time limit", "ignore"])
def test_an_exception_that_steers_a_task_is_never_retried(control: Exception) -> None:
    """A guard that retries all other exceptions lets these pass."""
    attempts: list[int] = []

    def attempt() -> None:
        attempts.append(1)
        raise control

    with pytest.raises(type(control)):
        Guard(retry=Retry(max_retries=3, delay=0, jitter=0)).call(attempt)

    assert len(attempts) == 1


@pytest.mark.outside
def test_publishing_to_a_broker_that_is_gone_is_refused_soon() -> None:
    """With a guard around ``apply_async`` callers fail at once instead of waiting for Celery's own attempts."""
    app = celery.Celery("gone", broker=f"redis://127.0.0.1:{free_port()}", set_as_current=False)
    app.conf.broker_transport_options = {"max_retries": 0}

    @app.task
    def ping() -> None: ...

    breaker = CircuitBreaker(request_volume_threshold=2, failure_ratio=1, delay="60s")
    guard = Guard(circuit_breaker=breaker, bulkhead=Bulkhead(10))
    for _ in range(2):
        with pytest.raises(celery.exceptions.OperationalError):
            guard.call(ping.apply_async, retry=False)
    with pytest.raises(CircuitBreakerOpenException):
        guard.call(ping.apply_async, retry=False)
    app.close()
