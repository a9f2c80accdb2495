"""A real server: killed, frozen, emptied, slow, behind a password, sentinels or a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import RedisFleet
from faulttolerance._extensions.fleet.protocol import CircuitRecord, OpenRequest, PollRequest, PollResponse, TurnRequest
from faulttolerance._extensions.fleet.server.redis import RedisSession
from kit.redis_server import RedisServer, redis_server, slowed

pytestmark = pytest.mark.outside

READ = PollRequest("one", 3600_000_000)
NOTHING = PollResponse(1, {})
TURN = TurnRequest("shop", "fixed", 1, 60_000_000, 1)
SECRET = "hunter2"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test may end."""
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
def session_of(running_redis: RedisServer) -> Iterator[Callable[..., RedisSession]]:
    """A maker of sessions of a fleet at a URL, or at the running server; all are closed in the end."""
    made: list[RedisSession] = []

    def make(url: Any = running_redis.url, namespace: str = "shop", patience: Any = 2000) -> RedisSession:
        made.append(RedisFleet(url, namespace=namespace, patience=patience).connect())
        return made[-1]

    running_redis.ask("FLUSHALL")
    yield make
    for session in made:
        session.close()


def lost(session: RedisSession) -> str:
    """Return the error with which a question to a server that does not answer fails."""
    with pytest.raises(ConnectionError) as caught:
        session.exchange([READ])
    return str(caught.value)


def test_a_killed_server_is_found_again_when_it_is_back(redis: RedisServer, session_of: Any) -> None:
    """The server that is back has lost its data and its scripts."""
    session = session_of(redis.url)
    assert session.exchange([TURN, TURN])[0] == 0

    redis.kill()
    assert "ConnectionError" in lost(session)
    assert f"redis://127.0.0.1:{redis.port}: ConnectionError" in lost(session)
    redis.start()
    assert session.exchange([TURN, READ]) == [0, NOTHING]


def test_a_frozen_server_is_waited_for_as_long_as_patience(redis: RedisServer, session_of: Any) -> None:
    """This holds with and without a connection; when the server goes on, it is asked by a new one."""
    session = session_of(redis.url, patience=80)
    session.exchange([READ])
    redis.freeze()

    for _ in range(2):
        began = time.monotonic()
        assert "Timeout" in lost(session)
        assert 0.07 <= time.monotonic() - began < 1.0
    redis.thaw()
    assert session.exchange([READ, TURN]) == [NOTHING, 0]


def test_scripts_that_the_server_forgot_are_sent_again(running_redis: RedisServer, session_of: Any) -> None:
    """They may be missing in the middle of many questions, which are answered in their order."""
    session = session_of()
    turn = TurnRequest("flushed", "rolling", 3, 60_000_000, 3)
    running_redis.ask("SCRIPT", "FLUSH")

    answers = session.exchange([turn, READ, turn, turn, turn])
    assert [answers[place] for place in (0, 2, 3)] == [0, 0, 0]
    assert answers[1] == NOTHING
    assert answers[4] > 0


def test_a_slow_server_answers_a_patient_session(running_redis: RedisServer, session_of: Any) -> None:
    with slowed(running_redis.port) as port:
        assert session_of(f"redis://127.0.0.1:{port}", patience=20).exchange([READ]) == [NOTHING]  # late, and not lost
    with slowed(running_redis.port, 0.6) as port:
        url = f"redis://127.0.0.1:{port}"

        assert session_of(url, patience=1000).exchange([READ]) == [NOTHING]
        assert "Timeout" in lost(session_of(url, patience=20))


@pytest.mark.parametrize("user", ["", "shop"])
def test_a_password_opens_and_is_shown_nowhere(tmp_path: Path, session_of: Any, user: str) -> None:
    """The password may be that of the server or that of a user."""
    with redis_server(tmp_path, "--requirepass", SECRET) as server:
        if user:
            server.ask("ACL", "SETUSER", user, "on", f">{SECRET}", "~*", "+@all", password=SECRET)
        url = f"redis://{user}:{{}}@127.0.0.1:{server.port}"
        answer = session_of(url.format(SECRET)).exchange([TURN, READ])
        wrong = lost(session_of(url.format("hunter3")))
        none = lost(session_of(f"redis://127.0.0.1:{server.port}"))
        server.kill()
        gone = lost(session_of(url.format(SECRET)))

    assert answer == [0, NOTHING]
    assert "invalid" in wrong
    assert "Authentication required" in none
    assert not [text for text in (wrong, none, gone) if "hunter" in text]


def test_a_command_that_the_server_does_not_allow_is_named(tmp_path: Path, session_of: Any) -> None:
    with redis_server(tmp_path) as server:
        server.ask("ACL", "SETUSER", "shop", "on", f">{SECRET}", "~*", "+get")

        assert "evalsha" in lost(session_of(f"redis://shop:{SECRET}@127.0.0.1:{server.port}"))


@pytest.mark.parametrize("key", ["a b", "{}", "}", "a}:circuits", "\n", "", "\0", "ä\udc00", "x" * 5000, "%s'\"\\"])
def test_names_are_taken_as_they_are(running_redis: RedisServer, session_of: Any, key: str) -> None:
    """trap 31: no name leads to another key, or to another circuit."""
    session = session_of(namespace="trap 31")
    record = CircuitRecord(5, "open", 60_000_000, 0, key)
    opened, turn, refused, others, read = session.exchange(
        [
            OpenRequest(key, 5, 60_000_000, 0, key),
            TURN._replace(key=key),
            TURN._replace(key=key),
            TURN._replace(key=f"{key}."),
            READ,
        ]
    )

    assert opened._replace(version=5) == record
    assert (turn, others) == (0, 0)
    assert refused > 0
    assert list(read.circuits) == [key]
    with running_redis.client() as client:
        keys = client.keys("*")
    assert len(keys) == 4
    assert all(one.startswith(b"{faulttolerance:trap 31}:") for one in keys)


def test_namespaces_share_nothing(session_of: Any) -> None:
    one, other = session_of(namespace="one"), session_of(namespace="other")

    assert [one.exchange([TURN])[0], other.exchange([TURN])[0]] == [0, 0]
    one.exchange([OpenRequest("shop", 0, 1000, 0, "")])
    assert other.exchange([READ]) == [NOTHING]


def test_nothing_stays_for_ever(running_redis: RedisServer, session_of: Any) -> None:
    """Every key expires soon after nothing of it counts any more."""
    hour = 3_600_000
    kinds = ("smooth", "fixed", "rolling")
    session = session_of()
    session.exchange([TurnRequest("shop", kind, 10, 50_000_000, 10, 7_000_000) for kind in kinds])  # type: ignore[arg-type]
    session.exchange([OpenRequest("shop", 0, 5_000_000, 0, "")])

    with running_redis.client(decode_responses=True) as client:
        left = {key.rpartition("}:")[2]: client.pttl(key) for key in client.keys("*")}
    longest = {
        "smooth:shop": 7_000,
        "fixed:shop": 50_000 + hour,
        "rolling:shop": 50_000,
        "circuits": 5_000 + hour,
    }
    assert left.keys() == longest.keys()
    assert {key: longest[key] - 2_000 < left[key] <= longest[key] for key in left} == dict.fromkeys(left, True)


def test_a_window_is_kept_for_as_long_as_it_counts(session_of: Any) -> None:
    """The server uses its own clock, and its own expiry."""
    session = session_of()
    for kind in ("smooth", "fixed", "rolling"):
        question = TurnRequest("real", kind, 2, 40_000, 2)  # type: ignore[arg-type]
        count, end = 0, time.monotonic() + 0.4
        while time.monotonic() < end:
            wait = session.exchange([question])[0]
            count += not wait
            time.sleep(wait / 1e6)
        assert 2 <= count <= 23


def test_sessions_of_any_kind_of_caller_meet(session_of: Any) -> None:
    """trap 29: there is one store, and no other one for asyncio."""
    import asyncio

    async def ask() -> Any:
        return session_of().exchange([TURN])[0]

    assert session_of().exchange([TURN]) == [0]
    assert asyncio.run(ask()) > 0


def test_many_processes_get_as_many_turns_as_the_limit(session_of: Any) -> None:
    """Rule F2: all sessions together get exactly the limit."""
    question = TurnRequest("exact", "rolling", 100, 60_000_000, 100)
    sessions = [session_of() for _ in range(8)]
    taken: list[int] = []

    def ask(session: RedisSession) -> None:
        taken.append(sum(answer == 0 for _ in range(10) for answer in session.exchange([question] * 3)))

    threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(taken) == 100
