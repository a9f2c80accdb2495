"""``faulttolerance.integrations.redis`` with redis-py itself, and servers that are frozen and killed in the middle."""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import CircuitBreakerOpenException, FaultToleranceDefinitionException, Guard, TimeoutException
from faulttolerance.policies import CircuitBreaker, Deadline, Fallback, PartitionBy, Retry, Timeout
from kit.counted_key import CountedKey
from kit.crowd import on_thread

redis = pytest.importorskip("redis")
pytest.importorskip("redis.asyncio")

from faulttolerance.integrations.redis import install  # noqa: E402
from kit.redis_server import RedisServer, redis_server  # noqa: E402

pytestmark = pytest.mark.outside

LATE = Timeout("300ms")
LOST = (redis.ConnectionError, redis.TimeoutError, TimeoutException)
THREE = Retry(max_retries=2, delay=0, jitter=0, retry_on=LOST)
FINAL = "may have run, and its answer is lost: name it in idempotent= if it may run twice"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "redis.md"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(started: RedisServer) -> Iterator[RedisServer]:
    """Yield an empty server, and restart it afterwards."""
    yield started
    with suppress(AssertionError):
        started.thaw()
    started.restart()


@contextmanager
def client_of(server: RedisServer, guard: Guard, idempotent: tuple[str, ...] = (), **settings: Any) -> Iterator[Any]:
    with install(server.client(decode_responses=True, **settings), guard, idempotent=idempotent) as client:
        yield client


def taken_from(pool: Any) -> Any:
    """Return a connection of *pool*; redis-py 5.0 asks for the name of a command, and later versions warn of that."""
    try:
        return pool.get_connection()
    except TypeError:
        return pool.get_connection("GET")


def when_blocked(server: RedisServer, then: Callable[[], object]) -> threading.Thread:
    """Call *then* as soon as a client waits in a command that blocks."""

    def run() -> None:
        with server.client() as other:
            while not other.info("clients")["blocked_clients"]:
                time.sleep(0.005)
        then()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


# Deadlines


@pytest.mark.parametrize(
    "command",
    [
        lambda client: client.get("a"),
        lambda client: client.pipeline().get("a").execute(),
        lambda client: client.dbsize(),
    ],
    ids=["a command", "a pipeline", "another command"],
)
def test_a_command_ends_at_its_deadline_on_every_thread(command: Callable[[Any], Any], server: RedisServer) -> None:
    """Rule S3: the time-out of the socket ends it; the server accepts connections and sends no answer."""
    with client_of(server, Guard(timeout=LATE)) as client:
        client.set("a", 1)
        server.freeze()
        failure, elapsed = on_thread(lambda: command(client))
        server.thaw()

        assert isinstance(failure, TimeoutException)
        assert isinstance(failure.__cause__, redis.TimeoutError)
        assert elapsed < 10
        assert client.get("a") == "1"


def test_connecting_ends_at_the_deadline_too(server: RedisServer) -> None:
    """The kernel accepts connections for a frozen server; the first answer does not come."""
    server.freeze()
    with client_of(server, Guard(timeout=LATE)) as client:
        failure, elapsed = on_thread(lambda: client.get("a"))

    assert isinstance(failure, TimeoutException)
    assert elapsed < 10


def test_a_command_that_blocks_ends_at_the_deadline(server: RedisServer) -> None:
    """A shorter time-out of the command counts."""
    with client_of(server, Guard(timeout=LATE)) as client:
        assert client.blpop("nothing", timeout=0.05) is None
        failure, elapsed = on_thread(lambda: client.blpop("nothing", timeout=20))

    assert isinstance(failure, TimeoutException)
    assert elapsed < 10


def test_the_own_time_out_of_the_client_is_there_afterwards(server: RedisServer) -> None:
    with client_of(server, Guard(), socket_timeout=0.2) as client:
        with pytest.raises(redis.TimeoutError):
            Guard(timeout=Timeout("1s")).call(client.blpop, "nothing", timeout=20)
        client.get("a")
        connection = taken_from(client.connection_pool)
        assert connection._sock.gettimeout() == 0.2
        client.connection_pool.release(connection)


def test_no_call_waits_for_a_connection_longer_than_the_remaining_time(server: RedisServer) -> None:
    """A pool that blocks waits for 20 s by itself."""
    pool = redis.BlockingConnectionPool(port=server.port, max_connections=1, timeout=20)
    with install(redis.Redis(connection_pool=pool), Guard(timeout=LATE)) as client:
        held = taken_from(pool)
        failure, elapsed = on_thread(lambda: client.get("a"))
        pool.release(held)

        assert isinstance(failure, TimeoutException)
        assert elapsed < 10
        assert (client.get("a"), pool.timeout) == (None, 20)
    pool.disconnect()


# Answers that were half read


def watched(client: Any) -> None:
    with client.pipeline() as pipe:
        pipe.watch("a")
        pipe.get("a")


@pytest.mark.parametrize("is_begun", [False, True], ids=["before redis-py reads", "as redis-py begins to read"])
@pytest.mark.parametrize(
    ("run", "last"),
    [
        (lambda client: client.get("a"), 1),
        (lambda client: client.pipeline(transaction=False).get("a").get("a").execute(), 2),
        (watched, 2),
    ],
    ids=["a command", "a pipeline", "a command after watch"],
)
def test_a_connection_with_unread_answers_is_closed(
    run: Callable[[Any], Any], last: int, is_begun: bool, server: RedisServer
) -> None:
    """After an exception between a command and its answer, the next user would read the wrong answer."""
    with client_of(server, Guard()) as client:
        client.mset({"a": "A", "b": "B", "c": "C"})
        kind = redis.connection.AbstractConnection if is_begun else client.connection_pool.connection_class
        read = kind.read_response
        reads: list[int] = []

        def strikes(connection: Any, *args: Any, **options: Any) -> Any:
            reads.append(1)
            if len(reads) == last:  # the answers before it were read
                server.freeze()  # else the answer would be there when the pool looks
                threading.Timer(0.1, server.thaw).start()
                raise KeyboardInterrupt
            return read(connection, *args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "read_response", strikes)
            with pytest.raises(KeyboardInterrupt):
                run(client)

        assert client.get("b") == "B"
        assert client.pipeline().get("b").get("c").execute() == ["B", "C"]


def test_an_error_of_the_server_is_an_answer_that_was_read(server: RedisServer) -> None:
    with client_of(server, Guard()) as client:
        client.set("a", "A")
        before = client.client_id()
        with pytest.raises(redis.ResponseError):
            client.lpush("a", 1)
        assert client.client_id() == before


def test_a_cancelled_call_leaves_no_answer_behind(server: RedisServer) -> None:
    """This holds at each step of a command, of a pipeline and of the next call."""

    async def main() -> None:
        guard = Guard()
        async with install(redis.asyncio.Redis(port=server.port, decode_responses=True), guard) as client:
            await client.mset({"a": "A", "b": "B"})
            for pipelined in (False, True):
                for steps in range(8):
                    call = client.pipeline().get("a").get("a").execute() if pipelined else client.get("a")
                    task = asyncio.ensure_future(call)
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                    assert await client.get("b") == "B"

    asyncio.run(main())


def test_a_deadline_that_ends_a_coroutine_leaves_no_answer_behind(server: RedisServer) -> None:
    async def main() -> None:
        async with install(redis.asyncio.Redis(port=server.port, decode_responses=True), Guard(timeout=LATE)) as client:
            await client.mset({"a": "A", "b": "B"})
            server.freeze()
            with pytest.raises(TimeoutException):
                await client.get("a")
            with pytest.raises(TimeoutException):
                await client.pipeline().get("a").execute()
            server.thaw()
            assert await client.get("b") == "B"

    asyncio.run(main())


# Attempts


def test_a_server_that_dies_in_the_middle_of_a_write_gets_it_once(server: RedisServer) -> None:
    """The command may have been carried out, so ``retry_on`` does not count."""
    guard = Guard(retry=THREE)
    with client_of(server, guard) as client:
        client.get("a")
        killer = when_blocked(server, server.kill)
        with pytest.raises(redis.ConnectionError) as raised:
            client.blpop("queue", timeout=20)
        killer.join()

        assert "1 attempt in 0." in raised.value.__notes__[-1]
        assert f"no more, because BLPOP {FINAL}" in raised.value.__notes__[-1]


def test_a_write_whose_answer_is_read_too_late_is_not_sent_again(server: RedisServer) -> None:
    class SlowConnection(redis.Connection):  # type: ignore[misc,name-defined]
        seconds = 0.0

        def read_response(self, *args: Any, **options: Any) -> Any:
            answer = super().read_response(*args, **options)
            time.sleep(self.seconds)
            return answer

    pool = redis.ConnectionPool(SlowConnection, port=server.port, decode_responses=True)
    with install(redis.Redis(connection_pool=pool), Guard(retry=THREE, timeout=LATE)) as client:
        client.get("a")
        SlowConnection.seconds = 0.4
        with pytest.raises(TimeoutException) as raised:
            client.append("visits", "1")

    assert f"no more, because APPEND {FINAL}" in raised.value.__notes__[-1]
    assert server.ask("GET", "visits") == "1"


def test_a_write_of_a_coroutine_whose_answer_is_read_too_late_is_not_sent_again(server: RedisServer) -> None:
    class SlowConnection(redis.asyncio.Connection):  # type: ignore[misc,name-defined]
        seconds = 0.0

        async def read_response(self, *args: Any, **options: Any) -> Any:
            answer = await super().read_response(*args, **options)
            time.sleep(self.seconds)  # noqa: ASYNC251  # the loop is busy
            return answer

    async def main() -> None:
        pool = redis.asyncio.ConnectionPool(SlowConnection, port=server.port)
        async with install(redis.asyncio.Redis(connection_pool=pool), Guard(retry=THREE, timeout=LATE)) as client:
            await client.get("a")
            SlowConnection.seconds = 0.4
            with pytest.raises(TimeoutException):
                await client.append("visits", "1")
        await pool.disconnect()

    asyncio.run(main())

    assert server.ask("GET", "visits") == "1"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_guard_that_a_fallback_calls_makes_its_own_retries(server: RedisServer, is_lost: bool) -> None:
    """That the write may not be sent again concerns the write alone, whether its answer was an error or is lost."""
    failure = redis.ConnectionError if is_lost else TimeoutException
    store, failures = Guard(retry=THREE), [failure("not yet"), failure("not yet")]

    def count() -> int:
        if failures:
            raise failures.pop()
        return 7

    with client_of(server, Guard(fallback=Fallback(lambda context: store.call(count)))) as client:
        client.rpush("visits", "one")
        killer = when_blocked(server, server.kill) if is_lost else None
        assert (client.blpop("queue", timeout=20) if killer is not None else client.incr("visits")) == 7
        if killer is not None:
            killer.join()


def test_the_page_quotes_the_note_of_a_write_that_is_not_sent_again() -> None:
    assert f"the note `no more, because INCRBY {FINAL}`" in PAGE.read_text(encoding="utf-8")


def test_a_command_that_is_idempotent_by_name_is_sent_again(server: RedisServer) -> None:
    """Also a command that was never sent, because no connection was to be had."""
    pushed: list[Any] = []

    def restart() -> None:
        server.restart()
        pushed.append(server.ask("RPUSH", "queue", "one"))

    again = Retry(max_retries=200, delay=20, jitter=0, retry_on=LOST)
    with client_of(server, Guard(retry=again), idempotent=("blpop",)) as client:
        killer = when_blocked(server, restart)
        assert client.blpop("queue", timeout=20) is not None
        killer.join()
        server.kill()
        starter = threading.Thread(target=server.start)
        starter.start()
        assert client.incr("visits") == 1
        starter.join()


HEALTH: dict[str, Any] = {"health_check_interval": 0.1, "decode_responses": True}
HALTED: dict[str, Any] = {"retry": Retry(max_retries=50, delay=20, jitter=0, retry_on=LOST), "timeout": LATE}


def test_a_write_before_which_the_health_check_fails_was_not_sent(server: RedisServer) -> None:
    with install(server.client(**HEALTH), Guard(**HALTED)) as client:
        client.get("a")
        time.sleep(0.2)
        server.freeze()
        end = threading.Timer(0.5, server.thaw)
        end.start()
        assert client.incr("visits") == 1
        end.join()


def test_a_write_of_a_coroutine_before_which_the_health_check_fails_was_not_sent(server: RedisServer) -> None:
    async def main() -> None:
        async with install(redis.asyncio.Redis(port=server.port, **HEALTH), Guard(**HALTED)) as client:
            await client.get("a")
            await asyncio.sleep(0.2)
            server.freeze()
            asyncio.get_running_loop().call_later(0.5, server.thaw)
            assert await client.incr("visits") == 1

    asyncio.run(main())


def test_a_pipeline_is_sent_again_whole_or_not_at_all(server: RedisServer) -> None:
    """redis-py forgets the commands of a pipeline that fails; a pipeline with a write is a write."""
    with client_of(server, Guard(retry=THREE, timeout=LATE)) as client:
        client.set("a", "A")
        server.freeze()
        with pytest.raises(TimeoutException) as raised:
            client.pipeline().get("a").set("a", "B").execute()
        server.thaw()
        assert f"SET {FINAL}" in raised.value.__notes__[-1]

        server.kill()
        server.start()
        client.set("a", "A")
        client.connection_pool.disconnect()
        attempts = [redis.ConnectionError("refused"), None]
        connect = client.connection_pool.connection_class._connect

        def refused_once(connection: Any) -> Any:
            if failure := attempts.pop(0):
                raise failure
            return connect(connection)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client.connection_pool.connection_class, "_connect", refused_once)
            assert client.pipeline().get("a").set("a", "B").execute() == ["A", True]


def test_a_pipeline_that_watches_keys_is_not_sent_again(server: RedisServer) -> None:
    """Another attempt would not watch the keys any more."""
    with client_of(server, Guard(retry=Retry(max_retries=2, delay=0, jitter=0))) as client:
        with client.pipeline() as pipe:
            pipe.watch("a")
            server.ask("SET", "a", "other")
            pipe.multi()
            pipe.set("a", "mine")
            with pytest.raises(redis.WatchError) as raised:
                pipe.execute()
        assert "watch them again" in raised.value.__notes__[-1]

        def swap(pipe: Any) -> None:
            pipe.multi()
            pipe.set("a", "mine")

        client.transaction(swap, "a")
        assert client.get("a") == "mine"


def test_attempts_of_redis_py_do_not_multiply() -> None:
    """redis-py makes four attempts by itself, or two, depending on its version."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[int] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()
                    accepted.append(1)

        thread = threading.Thread(target=accept)
        thread.start()
        client = install(redis.Redis(port=server.getsockname()[1]), Guard(retry=THREE))
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        server.shutdown(socket.SHUT_RDWR)
        thread.join()

    assert len(accepted) == 3


def test_a_refused_answer_is_an_answer(server: RedisServer) -> None:
    """The server did not carry out the command, and its connection serves on."""
    with client_of(server, Guard(retry=Retry(max_retries=1, delay=0, jitter=0))) as client:
        client.set("a", "text")
        identity = client.client_id()
        with pytest.raises(redis.ResponseError) as raised:
            client.incr("a")

        assert "2 attempts" in raised.value.__notes__[-1]
        assert client.client_id() == identity


def test_a_circuit_opens_and_closes(server: RedisServer) -> None:
    """The server has one circuit, for all commands; refused calls open no connection."""
    breaker = CircuitBreaker(request_volume_threshold=2, failure_ratio=1, delay="60s", success_threshold=1)
    guard = Guard(circuit_breaker=breaker, name="test_redis.circuit")
    with client_of(server, guard) as client:
        server.kill()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.get("a")
        with pytest.raises(CircuitBreakerOpenException):
            client.pipeline().set("a", 1).execute()
    guard.close()


def test_a_key_is_fitted_to_the_commands_once(server: RedisServer) -> None:
    """Later commands and pipelines call it, and nothing else, in threads and in coroutines."""
    key = CountedKey(lambda: "tenant")
    guard = Guard(partition_by=PartitionBy(key))
    with client_of(server, guard) as client:
        client.get("a")
        fitted = key.inspected
        assert [client.get("a"), client.pipeline().get("a").execute()] == [None, [None]]
        assert (key.called, key.inspected) == (3, fitted)

    async def main() -> None:
        async with install(redis.asyncio.Redis(port=server.port), guard) as client:
            await client.get("a")
            fitted = key.inspected
            assert [await client.get("a"), await client.pipeline().get("a").execute()] == [None, [None]]
            assert (key.called, key.inspected) == (6, fitted)

    asyncio.run(main())


def test_publish_and_subscribe_run_as_ever(server: RedisServer) -> None:
    with client_of(server, Guard(deadline=Deadline("5s"))) as client, client.pubsub() as subscriber:
        subscriber.subscribe("news", "more")
        assert client.publish("news", "rain") == 1
        kinds = [message["type"] for _, message in zip(range(3), subscriber.listen(), strict=False)]
        identity = subscriber.connection
        subscriber.unsubscribe("more")
        assert next(subscriber.listen())["type"] == "unsubscribe"

        assert kinds == ["subscribe", "subscribe", "message"]
        assert subscriber.connection is identity


def test_a_client_is_guarded_once_and_two_may_have_one_pool(server: RedisServer) -> None:
    with client_of(server, Guard()) as client:
        with redis.Redis(connection_pool=client.connection_pool) as second:
            assert install(second, Guard()).ping()
        with pytest.raises(FaultToleranceDefinitionException, match=r"install\(client\) is .*unguarded"):
            install(client, Guard())


def test_a_client_whose_connections_are_fakes_is_guarded() -> None:
    """Tests of services use fakeredis, whose sockets have no time-outs."""

    class Fake(redis.Connection):
        def connect(self) -> None:
            self._sock = object()

        def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            pass

        def read_response(self, *args: Any, **options: Any) -> Any:
            return "PONG"

        def can_read(self, timeout: float = 0) -> bool:
            return False

        def disconnect(self, *args: Any) -> None:
            self._sock = None

    with redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Fake)) as client:
        assert install(client, Guard(timeout=LATE)).ping()


def test_a_client_that_was_instrumented_by_itself_is_guarded(server: RedisServer) -> None:
    """OpenTelemetry's ``instrument_client`` wraps the method of this client alone; it then sees each attempt."""
    seen = []
    with server.client() as client:
        before = client.execute_command

        @functools.wraps(before)
        def traced(*args: Any, **options: Any) -> Any:
            seen.append(args[0])
            return before(*args, **options)

        client.execute_command = traced
        assert install(client, Guard()).ping()
    assert seen == ["PING"]


def test_wrong_values_are_refused(server: RedisServer) -> None:
    """By rule R9."""
    guard, wrong = Guard(), {"client": "redis://", "guard": Timeout("1s"), "idempotent": ([3], 3)}
    with server.client(single_connection_client=True) as single, server.client() as client:
        for got in (wrong["client"], single):
            with pytest.raises(FaultToleranceDefinitionException, match=r"install\(client\) is .*allowed: a Redis"):
                install(got, guard)
        with pytest.raises(FaultToleranceDefinitionException, match=r"install\(guard\) is .*allowed: a Guard"):
            install(client, wrong["guard"])
        for got in wrong["idempotent"]:
            refusal = rf"install\(idempotent\) is {re.escape(str(got))}; allowed: names"
            with pytest.raises(FaultToleranceDefinitionException, match=refusal):
                install(client, guard, idempotent=got)
        assert install(client, guard).ping()  # nothing was done to it
