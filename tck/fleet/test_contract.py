"""The answers of a fleet, which are the same from the memory, from Redis and from the twin of its scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Any, Protocol

import hypothesis
import pytest
from hypothesis import strategies as st

from faulttolerance import RedisFleet
from faulttolerance._extensions.fleet.protocol import (
    ABSENT,
    CircuitRecord,
    OpenRequest,
    PollRequest,
    ProbeRequest,
    Request,
    Response,
    TurnRequest,
)
from faulttolerance._extensions.fleet.server.memory import MemoryServer
from faulttolerance._extensions.fleet.server.scripts import Script, script
from kit.redis_server import RedisServer
from kit.windows import TwinServer

pytestmark = pytest.mark.outside

SECOND = 1_000_000
READ = PollRequest("", 1)


class Server(Protocol):
    """A server with one namespace, and a clock that the test moves."""

    now: int

    def ask(self, question: Request) -> Any: ...


class InMemory:
    def __init__(self, memory: MemoryServer) -> None:
        self.now = 1_700_000_000 * SECOND
        self.memory = memory

    def ask(self, question: Request) -> Response:
        return self.memory.exchange([question], self.now)[0]


class InRedis:
    """The scripts with the clock of the test, and with a longer expiry, which counts real time."""

    def __init__(self, redis: RedisServer, patch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000 * SECOND
        self.client = redis.client()
        self.client.flushall()
        self.session = RedisFleet(redis.url, namespace="contract", patience=10_000).connect()
        patch.setattr("faulttolerance._extensions.fleet.server.scripts.script", timed)

    def ask(self, question: Request) -> Response:
        self.client.set("now", f"[{self.now // SECOND}, {self.now % SECOND}]")
        return self.session.exchange([question])[0]

    def close(self) -> None:
        self.session.close()
        self.client.close()


def timed(name: str) -> Script:
    text = script(name).text.replace("redis.call('TIME')", "cjson.decode(redis.call('GET', 'now'))")
    text = text.replace("math.ceil(length / 1000)", "math.ceil(length / 1000) + 3600000")
    assert "TIME" not in text
    return Script(text, sha1(text.encode()).hexdigest())


@pytest.fixture(params=["memory", "twin", "redis"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    if request.param != "redis":
        yield InMemory(MemoryServer() if request.param == "memory" else TwinServer())
        return
    redis = InRedis(request.getfixturevalue("running_redis"), monkeypatch)
    yield redis
    redis.close()


distant = pytest.mark.parametrize("server", ["twin", "redis"], indirect=True)
"""For what only a server of several machines can meet; a fleet in memory counts as the limit of a process does."""


def turn(
    kind: Any, limit: int, window: int = SECOND, burst: int = 0, spacing: int = 0, key: str = "shop"
) -> TurnRequest:
    return TurnRequest(key, kind, limit, window, burst or limit, spacing)


def taken(server: Server, question: TurnRequest, at_most: int = 1000) -> int:
    """Return how many turns are granted at once."""
    return next((count for count in range(at_most) if server.ask(question)), at_most)


def opened(server: Server, delay: int = SECOND, seen: int = 0, key: str = "shop") -> CircuitRecord:
    record: CircuitRecord = server.ask(OpenRequest(key, seen, delay, 0, "3 of 4 calls failed"))
    return record


def half_open(server: Server, holder: str = "one", places: int = 1) -> CircuitRecord:
    """Return a half-open circuit of which *holder* has a place."""
    record = opened(server)
    server.now += SECOND
    assert takes(server, record, holder, places)
    return record._replace(wait=0)


def takes(
    server: Server,
    record: CircuitRecord,
    holder: str = "one",
    places: int = 1,
    length: int = SECOND,
    step: Any = "wish",
) -> bool:
    """Return whether *holder* gets a place, or keeps it."""
    return bool(server.ask(ProbeRequest("shop", record.version, holder, places, length, step)).is_granted)


def end(record: CircuitRecord, holder: str = "one", places: int = 1, *, succeeds: bool = False) -> ProbeRequest:
    """Return the question that gives the place back."""
    return ProbeRequest("shop", record.version, holder, places, 0, "success" if succeeds else "end")


def known(server: Server) -> dict[str, CircuitRecord]:
    return dict(server.ask(READ).circuits)


def test_processes_that_polled_recently_are_counted(server: Server) -> None:
    """This holds also after the clock was set back; a process that polls again counts once."""

    def attend(process: str) -> Any:
        return server.ask(PollRequest(process, 3 * SECOND)).processes

    assert [attend("one"), attend("other"), attend("one")] == [1, 2, 2]
    server.now += 2 * SECOND
    assert attend("one") == 2
    server.now += SECOND
    assert attend("third") == 2
    server.now -= 2 * SECOND
    assert attend("one") == 1


@pytest.mark.parametrize("kind", ["smooth", "fixed", "rolling"])
@pytest.mark.parametrize("limit", [1, 3, 7])
def test_a_window_has_as_many_turns_as_its_limit(server: Server, kind: str, limit: int) -> None:
    """A refused question is granted exactly after the wait that it was told, and not sooner."""
    question = turn(kind, limit)

    assert taken(server, question) == limit
    wait = server.ask(question)
    server.now += wait - 1
    assert server.ask(question) == 1
    server.now += 1
    assert server.ask(question) == 0


@distant
@pytest.mark.parametrize(
    ("kind", "burst", "in_ten_seconds"), [("smooth", 3, 33), ("smooth", 1, 31), ("fixed", 3, 33), ("rolling", 3, 33)]
)
def test_no_more_turns_than_the_limit_come_back(server: Server, kind: str, burst: int, in_ten_seconds: int) -> None:
    """Ten seconds have ten windows and the turns of the beginning; a third of a second is no whole microseconds."""
    question = turn(kind, 3, burst=burst)

    count, end = 0, server.now + 10 * SECOND
    while server.now <= end:
        wait = server.ask(question)
        count += not wait
        server.now += wait
    assert count == in_ten_seconds


@distant
def test_a_part_of_a_microsecond_is_waited_for_whole(server: Server) -> None:
    """No part is lost: the third turn comes back with the whole second."""
    question = turn("smooth", 3, burst=1)
    waits = []
    for _ in range(3):
        assert server.ask(question) == 0
        waits.append(server.ask(question))
        server.now += waits[-1]

    assert waits == [333_334, 333_333, 333_333]


@pytest.mark.parametrize("kind", ["smooth", "fixed", "rolling"])
def test_spacing_keeps_turns_apart(server: Server, kind: str) -> None:
    question = turn(kind, 10, spacing=300)

    assert [server.ask(question), server.ask(question)] == [0, 300]
    server.now += 300
    assert server.ask(question) == 0


@distant
@pytest.mark.parametrize("kind", ["smooth", "fixed", "rolling"])
def test_a_clock_that_was_set_back_costs_one_window(server: Server, kind: str) -> None:
    """trap 32: no call waits until the clock is where it was."""
    question = turn(kind, 4, spacing=10)
    for _ in range(4):
        server.ask(question)
        server.now += 10
    server.now -= 3600 * SECOND

    wait = server.ask(question)
    assert 0 <= wait <= SECOND
    server.now += wait
    assert server.ask(question) == 0


def test_other_keys_and_kinds_have_windows_of_their_own(server: Server) -> None:
    assert [server.ask(turn("fixed", 1, key=key)) for key in ("a", "b")] == [0, 0]
    assert server.ask(turn("rolling", 1, key="a")) == 0
    assert server.ask(turn("fixed", 1, key="a")) == SECOND


@distant
@pytest.mark.parametrize("kind", ["smooth", "fixed", "rolling"])
def test_a_limit_that_changed_forgets_nothing(server: Server, kind: str) -> None:
    """trap 33: replicas with the old and with the new value share one window."""
    taken(server, turn(kind, 4))

    assert server.ask(turn(kind, 3)) > 0
    assert taken(server, turn(kind, 6)) <= 2


@distant
@pytest.mark.parametrize("kind", ["smooth", "fixed", "rolling"])
def test_replicas_of_two_releases_give_no_more_than_the_larger_limit(server: Server, kind: str) -> None:
    """trap 33: neither release forgets the turns of the other."""
    old, new = turn(kind, 10), turn(kind, 5)

    assert sum(server.ask(question) == 0 for _ in range(50) for question in (old, new)) == 10


def test_a_window_that_became_shorter_holds_nobody_for_as_long_as_before(server: Server) -> None:
    """trap 33: turns come back as fast as the new limit says."""
    taken(server, turn("smooth", 10, 3600 * SECOND))

    assert server.ask(turn("smooth", 10, SECOND)) <= SECOND


def test_a_closed_circuit_is_opened(server: Server) -> None:
    record = opened(server)

    assert record == CircuitRecord(record.version, "open", SECOND, 0, "3 of 4 calls failed")
    server.now += SECOND // 4
    assert known(server) == {"shop": record._replace(wait=SECOND * 3 // 4)}
    server.now += SECOND
    assert known(server) == {"shop": record._replace(wait=0)}


def test_a_process_that_opens_a_circuit_that_has_moved_is_told_of_it(server: Server) -> None:
    first = opened(server, delay=SECOND)

    assert opened(server, delay=9 * SECOND) == first


def test_a_process_that_has_seen_the_open_circuit_opens_it_anew(server: Server) -> None:
    """The failure of a probe does so."""
    first = half_open(server)
    again = server.ask(OpenRequest("shop", first.version, 9 * SECOND, 1, "a probe failed"))

    assert again == CircuitRecord(again.version, "open", 9 * SECOND, 1, "a probe failed")
    assert again.version > first.version
    assert not takes(server, again, "two")


def test_an_emptied_server_opens_a_circuit_that_it_does_not_know(server: Server) -> None:
    """The version is a new one, though the clock may be behind it."""
    seen = server.now + 5

    assert opened(server, seen=seen).version == seen + 1


def test_nobody_probes_before_the_delay_is_over(server: Server) -> None:
    record = opened(server)
    server.now += SECOND - 1

    answer = server.ask(ProbeRequest("shop", record.version, "one", 1, SECOND))
    assert answer == record._replace(wait=1)


def test_the_first_holder_that_asks_gets_the_place(server: Server) -> None:
    record = opened(server)
    server.now += SECOND

    assert [takes(server, record, holder) for holder in ("one", "two")] == [True, False]
    assert known(server) == {"shop": record._replace(wait=0)}


def test_probes_close_the_circuit_together(server: Server) -> None:
    """As many probes get a place as have to succeed, in any process, and no further one."""
    record = half_open(server, places=3)

    assert [takes(server, record, holder, 3) for holder in ("two", "three", "four")] == [True, True, False]
    assert server.ask(end(record, "one", 3, succeeds=True)) == record
    assert not takes(server, record, "four", 3)
    assert server.ask(end(record, "two", 3, succeeds=True)) == record
    closed = server.ask(end(record, "three", 3, succeeds=True))

    assert closed == CircuitRecord(closed.version, "closed")
    assert closed.version > record.version
    assert known(server) == {"shop": closed}


def test_each_process_that_asks_has_a_threshold_of_its_own(server: Server) -> None:
    """In a rolling release thresholds differ; a success counts for all of them."""
    record = half_open(server, places=3)
    server.ask(end(record, "one", 3, succeeds=True))

    assert server.ask(ProbeRequest("shop", record.version, "two", 1, SECOND)).state == "closed"


def test_a_probe_without_a_verdict_gives_its_place_back(server: Server) -> None:
    """trap 28: the place is free at once, and not only after its time."""
    record = half_open(server)
    takes(server, record, length=60 * SECOND, step="start")

    assert server.ask(end(record)) == record
    assert takes(server, record, "two")


def test_a_place_that_nobody_keeps_goes_to_the_next_holder_that_asks(server: Server) -> None:
    record = half_open(server)
    server.now += SECOND

    assert takes(server, record, "two")
    assert not takes(server, record, "one")


def test_an_unused_place_goes_to_a_process_that_is_called_more_often(server: Server) -> None:
    """It goes when its holder wants to keep it: the holder is told, so that no two processes use it."""
    record = half_open(server, "one")
    assert takes(server, record, "one", length=30 * SECOND)

    assert not takes(server, record, "two", length=SECOND)
    assert not takes(server, record, "one", length=30 * SECOND)
    assert takes(server, record, "two", length=SECOND)


def test_a_place_is_kept_from_a_process_that_is_called_as_rarely(server: Server) -> None:
    """Otherwise processes would take places from one another before a call could use one."""
    record = half_open(server, "one")
    for _ in range(5):
        assert takes(server, record, "one", length=30 * SECOND)
        assert not takes(server, record, "two", length=30 * SECOND)
        server.now += 15 * SECOND


def test_a_probe_that_began_keeps_its_place_for_as_long_as_it_said(server: Server) -> None:
    """After that its verdict still counts, but its place is free."""
    record = half_open(server)
    takes(server, record, length=30 * SECOND, step="start")

    server.now += 30 * SECOND - 1
    assert [takes(server, record, "two"), takes(server, record, step="start")] == [False, True]
    server.now += SECOND
    assert takes(server, record, "two")
    assert server.ask(end(record, succeeds=True)).state == "closed"


def test_a_probe_that_is_reported_late_has_its_place_if_nobody_else_has(server: Server) -> None:
    record = half_open(server)
    server.now += SECOND + 5
    takes(server, record, length=30 * SECOND, step="start")
    server.now += SECOND

    assert not takes(server, record, "two")


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_verdict_in_another_version_has_no_effect(server: Server, succeeds: bool) -> None:
    first = half_open(server)
    again = opened(server, seen=first.version)

    assert server.ask(end(first, succeeds=succeeds)) == again
    server.now += SECOND
    assert takes(server, again, "two")
    assert server.ask(end(first, succeeds=succeeds)) == again._replace(wait=0)


def test_probes_write_nothing_of_an_unknown_circuit(server: Server) -> None:
    assert server.ask(ProbeRequest("shop", 5, "one", 1, SECOND)) == ABSENT
    assert server.ask(ProbeRequest("shop", 5, "one", 1, 0, "success")) == ABSENT
    assert known(server) == {}


@pytest.mark.parametrize(
    "move",
    [lambda server, record: server.ask(READ), lambda server, record: takes(server, record)],
    ids=["read", "asked"],
)
def test_a_clock_that_was_set_back_costs_one_delay(server: Server, move: Callable[[Server, Any], object]) -> None:
    """trap 32: the delay counts from the next question of any process, and versions go on."""
    record = opened(server)
    server.now -= 3600 * SECOND
    move(server, record)
    server.now += SECOND

    assert takes(server, record)
    assert opened(server, seen=record.version).version == record.version + 1


def test_a_clock_that_was_set_back_costs_a_place_its_length(server: Server) -> None:
    """trap 32: the place is free after its length by the new clock."""
    record = half_open(server)
    server.now -= 3600 * SECOND
    assert not takes(server, record, "two")
    server.now += SECOND

    assert takes(server, record, "two")


def test_a_closed_circuit_is_forgotten_after_an_hour(server: Server) -> None:
    closed = server.ask(end(half_open(server), succeeds=True))
    server.now += 3600 * SECOND - 1
    assert known(server) == {"shop": closed}

    server.now += 1
    assert known(server) == {}
    assert opened(server, seen=closed.version).state == "open"


def test_an_open_circuit_is_forgotten_an_hour_after_its_delay(server: Server) -> None:
    """A guard that no release has any more does not stay for ever."""
    opened(server, delay=24 * 3600 * SECOND)
    server.now += 25 * 3600 * SECOND - 1
    assert known(server)["shop"].state == "open"

    server.now += 1
    assert known(server) == {}


ADVANCE = st.sampled_from([0, 0, 0, 1, 7, 333, 5_000, 100_000, 333_333, 333_334, SECOND, 3 * SECOND, 3_700 * SECOND])
BACK = st.sampled_from([-1, -50, -200_000, -3600 * SECOND])
TURNS = st.builds(
    TurnRequest,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["smooth", "fixed", "rolling"]),
    st.sampled_from([1, 2, 3, 7, 100, 999_983]),
    st.sampled_from([1, 10, 1000, SECOND, 86_400 * SECOND, 10**12]),
    st.sampled_from([1, 2, 3, 50]),
    st.sampled_from([0, 0, 0, 5, 400_000]),
)
DELAYS = st.sampled_from([0, 1, 5_000, SECOND, 60 * SECOND])
HOLDERS = st.sampled_from(["x", "y", "z"])
PLACES = st.sampled_from([1, 1, 2, 3])
STEPS = st.sampled_from(["wish", "wish", "start", "end", "success"])


KEYS = st.sampled_from(["a", "b"])
VERSIONS = st.integers(-3, -1)
"""Places in the list of the versions that were seen."""
REASONS = st.sampled_from(["", '3 of 4 "calls" failed\n\\', "ä\0"])
CIRCUIT_QUESTIONS = st.one_of(
    st.builds(PollRequest, HOLDERS, st.just(3 * SECOND)),
    st.builds(OpenRequest, KEYS, VERSIONS, DELAYS, st.sampled_from([0, 1, 7]), REASONS),
    *[st.builds(ProbeRequest, KEYS, VERSIONS, HOLDERS, PLACES, DELAYS, STEPS)] * 3,
)


def about(question: Request, versions: list[int]) -> Request:
    """Return *question* about one of the *versions* that were seen."""
    if isinstance(question, OpenRequest):
        return question._replace(seen=versions[question.seen])
    return question._replace(version=versions[question.version]) if isinstance(question, ProbeRequest) else question


@pytest.fixture
def both(running_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InMemory, InRedis]]:
    redis = InRedis(running_redis, monkeypatch)
    yield InMemory(TwinServer()), redis
    redis.close()


def advanced(data: st.DataObject, both: tuple[InMemory, InRedis]) -> tuple[InMemory, InRedis]:
    by = data.draw(st.one_of(ADVANCE, ADVANCE, ADVANCE, BACK))
    for server in both:
        server.now += by
    return both


def emptied(both: tuple[InMemory, InRedis]) -> None:
    both[0].memory.clear()
    both[1].client.flushall()
    for server in both:
        server.now = 1_700_000_000 * SECOND


@hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(data=st.data())
def test_memory_and_scripts_give_the_same_turns(data: st.DataObject, both: tuple[InMemory, InRedis]) -> None:
    """They agree to the microsecond for any questions, also when limits change and the clock is set back."""
    emptied(both)
    for _ in range(data.draw(st.integers(1, 25))):
        memory, redis = advanced(data, both)
        question = data.draw(TURNS)
        assert memory.ask(question) == redis.ask(question)


@hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(data=st.data())
def test_memory_and_scripts_give_the_same_circuits(data: st.DataObject, both: tuple[InMemory, InRedis]) -> None:
    """They agree in versions, states, waits and places, also when the clock is set back."""
    emptied(both)
    versions = [0, 0, 5]
    for _ in range(data.draw(st.integers(1, 25))):
        memory, redis = advanced(data, both)
        question = about(data.draw(CIRCUIT_QUESTIONS), versions)
        answer = memory.ask(question)
        assert answer == redis.ask(question)
        if isinstance(answer, CircuitRecord):
            versions.append(answer.version)
