"""State for each key, through public names: found by key, forgotten when idle, shared where there is no place."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    Guard,
    RateLimitException,
    adaptive_throttle,
    asynchronous,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    coalesce,
    configure,
    fallback,
    guards,
    health,
    last_good,
    partition_by,
    rate_limit,
    reload,
    retry,
    sleep,
    timeout,
)
from faulttolerance._guard.resolve import resolver
from faulttolerance._metrics.counters import ledger
from faulttolerance._strategy.bulkhead import Bulkhead as BulkheadStrategy
from faulttolerance.policies import Bulkhead, CircuitBreaker, PartitionBy
from faulttolerance.testing import configured, virtual_time
from kit import Invoke, key
from kit.definition import refused
from kit.struck import strikes


class Down(Exception):
    pass


class Client:
    """Calls hosts, of which those in ``down`` fail."""

    def __init__(self, *down: str) -> None:
        self.down = set(down)

    @partition_by("host", max_partitions=3)
    @circuit_breaker(request_volume_threshold=2, fail_on=Down, delay="60s")
    def fetch(self, host: str, path: str = "/") -> str:
        if host in self.down:
            raise Down(host)
        return host + path


FETCH = f"{__name__}.Client.fetch"


def counts_of(name: str) -> dict[Any, Any]:
    (guard,) = [guard for guard in guards() if guard.name.endswith(name)]
    return dict(guard.counts)


def outcome(call: Any, *args: Any) -> str:
    try:
        return str(call(*args))
    except Exception as error:
        return type(error).__name__


def test_a_host_that_is_down_opens_no_other_circuit() -> None:
    """By rule N1: each key has its own breaker."""
    client = Client("bad")

    outcomes = [outcome(client.fetch, host) for host in ("bad", "bad", "bad", "good", "good")]

    assert outcomes == ["Down", "Down", "CircuitBreakerOpenException", "good/", "good/"]


def test_each_key_has_its_own_permits_and_window(invoke: Invoke) -> None:
    """By rule N1: in every way of calling, a key does not use up the permits and the window of another key."""

    class Service:
        @partition_by(lambda self, tenant: tenant)
        @rate_limit(2, window="1h")
        @invoke.body
        async def work(self, tenant: str) -> str:
            return tenant

    service = Service()
    outcomes = [invoke.outcome(service.work, tenant) for tenant in ("a", "a", "a", "b", "b", "b")]

    assert outcomes == ["a", "a", RateLimitException, "b", "b", RateLimitException]


def test_permits_are_held_by_key() -> None:
    """By rule N1: the bulkhead of one key is full, that of another is not."""

    class Service:
        @partition_by(lambda tenant: tenant.lower())
        @bulkhead(1)
        def work(self, tenant: str) -> None:
            sleep(1)

    service = Service()
    with virtual_time() as clock:
        busy = clock.start(service.work, "A")
        clock.advance(0.5)

        with pytest.raises(BulkheadException):
            service.work("a")
        service.work("b")
        busy.result()


def test_a_key_function_that_raises_takes_nothing(invoke: Invoke) -> None:
    """By rule N1: the error of the key function comes out, in the way of the call, and the call takes no permit."""

    class Service:
        @partition_by(lambda tenant: tenant.lower(), max_partitions=1)
        @rate_limit(1, window="1h")
        @bulkhead(1)
        @invoke.body
        async def work(self, tenant: Any) -> Any:
            return tenant

    service = Service()

    assert [invoke.outcome(service.work, value) for value in (1, 2, "a")] == [AttributeError, AttributeError, "a"]
    assert invoke.outcome(service.work, "a") is RateLimitException


def test_the_error_for_a_key_without_a_hash_names_a_remedy(invoke: Invoke) -> None:
    """By rule N1: the error is the same as where calls share a result."""

    @partition_by(lambda key: [key])
    @bulkhead(1)
    @invoke.body
    async def work(key: str) -> None: ...

    with pytest.raises(TypeError, match="key="):
        invoke(work, "a")


def test_the_idle_key_that_was_used_least_recently_goes() -> None:
    """By rule N2: at ``max_partitions`` it makes room; its limit begins anew when the key comes again."""

    @partition_by("key", max_partitions=2)
    @rate_limit(1, window="10s")
    def work(key: str) -> str:
        return key

    with virtual_time() as clock:
        work("a")
        clock.advance(1)
        work("b")
        clock.advance(9.5)  # the window of "a" is empty, that of "b" is not
        work("c")
        assert outcome(work, "b") == "RateLimitException"
        clock.advance(11)
        work("b")
        work("a")  # "c" was used least recently

        assert [outcome(work, key) for key in "ba"] == ["RateLimitException"] * 2
    assert counts_of(work.__qualname__)["ft.partitions", ()] == 2


def test_each_call_is_a_use_of_its_key() -> None:
    """By rule N2: a key that is called again and again outlives later keys."""

    @partition_by("key", max_partitions=2)
    @circuit_breaker(request_volume_threshold=2, failure_ratio=0.5, fail_on=Down)
    def work(key: str, fails: bool = False) -> None:
        if fails:
            raise Down

    for used in ("first", "second", "first", "third"):
        work(used)
    outcome(work, "first", True)

    assert circuit_breakers.state(f"{__name__}.{work.__qualname__}", key="first") == "open"  # its successes counted


@pytest.mark.parametrize("remembers", [timeout(1000), fallback(last_good(max_age=1000)), bulkhead(5), coalesce()])
def test_the_state_of_any_policy_may_go(remembers: Callable[[Any], Any]) -> None:
    """By rule N2: this includes the state of a time-out and the last good result of each key."""

    class Many:
        @partition_by("host", max_partitions=2)
        @remembers
        def fetch(self, host: int) -> int:
            return host

    many = Many()

    assert [many.fetch(host) for host in range(5)] == [0, 1, 2, 3, 4]


def test_a_key_that_is_not_idle_stays() -> None:
    """By rule N2: an open circuit, a failure in its window, a permit, a throttle that refuses, a window in use stay."""

    @partition_by("key", max_partitions=2)
    @adaptive_throttle(min_requests=1)
    def throttled(key: str) -> None:
        if key == "bad":
            raise Down

    @partition_by("key", max_partitions=2)
    @bulkhead(1)
    def held(key: str) -> None:
        sleep(5)

    @partition_by("key", max_partitions=2)
    @circuit_breaker(request_volume_threshold=10, fail_on=Down)
    def failed(key: str) -> None:
        if key == "bad":
            raise Down

    with virtual_time() as clock:
        for _ in range(6):
            outcome(throttled, "bad")
        outcome(failed, "bad")
        busy = clock.start(held, "bad")
        clock.advance(0.1)
        for number in range(3):
            throttled(f"new {number}")
            failed(f"new {number}")
        others = [clock.start(lambda number=number: (sleep(number / 10), held(f"new {number}"))) for number in range(3)]
        clock.advance(1)

        assert outcome(held, "bad") == "BulkheadException"
        assert (
            sum(other.exception() is not None for other in others) == 1
        )  # two had the only place and the shared state
        busy.result()
        assert "ThrottleException" in [outcome(throttled, "bad") for _ in range(20)]
        assert counts_of(failed.__qualname__)["ft.partitions", ()] == 2


def test_a_flood_of_keys_neither_grows_nor_closes_an_open_circuit() -> None:
    """By rule N2: under any number of keys another key's circuit stays open, and memory stays as it was (trap 26)."""
    client = Client("bad")
    for _ in range(2):
        outcome(client.fetch, "bad")

    for number in range(2000):
        assert client.fetch(f"host {number}") == f"host {number}/"

    assert circuit_breakers.state(FETCH, key="bad") == "open"
    assert outcome(client.fetch, "bad") == "CircuitBreakerOpenException"
    assert counts_of("Client.fetch")["ft.partitions", ()] == 3


def test_calls_that_find_no_place_share_one_state() -> None:
    """By rule N2: while no key is idle, new keys share one state; once a key is idle, a new key gets its place."""
    client = Client("a", "b", "c", "d", "e")
    for host in "aabbcc":
        outcome(client.fetch, host)

    outcomes = [outcome(client.fetch, host) for host in ("d", "e", "d", "fine")]
    assert outcomes == ["Down", "Down", "CircuitBreakerOpenException", "CircuitBreakerOpenException"]

    circuit_breakers.reset(FETCH, key="b")
    assert client.fetch("fine") == "fine/"
    assert [circuit_breakers.state(FETCH, key=host) for host in "abcd"] == ["open", "open", "open", "open"]


def test_metrics_add_up_under_the_name_of_the_method() -> None:
    """By rule N3: there is one set of series for all keys; counts of a key that went stay."""
    client = Client("bad")
    for host in ("bad", "bad", "bad", "a", "b", "c", "d"):
        outcome(client.fetch, host)
    circuit_breakers.reset(FETCH, key="bad")
    for host in "efgh":
        client.fetch(host)

    counts = counts_of("Client.fetch")
    calls = {tags: count for (metric, tags), count in counts.items() if metric == "ft.circuitbreaker.calls.total"}
    assert calls == {
        (("circuitBreakerResult", "success"),): 8,
        (("circuitBreakerResult", "failure"),): 2,
        (("circuitBreakerResult", "circuitBreakerOpen"),): 1,
    }
    assert counts["ft.circuitbreaker.opened.total", ()] == 1
    assert counts["ft.partitions", ()] == 3


def test_a_circuit_is_asked_and_closed_by_key() -> None:
    """By rule N3: a name alone asks for the state of any open circuit, and closes all circuits of the name."""
    client = Client("bad", "worse")
    for host in ("bad", "bad", "worse", "worse", "fine"):
        outcome(client.fetch, host)

    assert [circuit_breakers.state(FETCH, key=key) for key in ("bad", "fine", "unknown")] == [
        "open",
        "closed",
        "closed",
    ]
    assert circuit_breakers.state(FETCH) == "open"
    circuit_breakers.reset(FETCH, key="bad")
    assert [circuit_breakers.state(FETCH, key=key) for key in ("bad", "worse")] == ["closed", "open"]
    circuit_breakers.reset(FETCH)
    assert circuit_breakers.state(FETCH) == "closed"
    (guard,) = [guard for guard in guards() if guard.name == FETCH]
    assert guard.partitions == 3

    @circuit_breaker
    def whole() -> None: ...

    whole()
    with pytest.raises(KeyError, match="has no @partition_by"):
        circuit_breakers.state(f"{__name__}.{whole.__qualname__}", key="a")


def test_a_circuit_that_is_forced_open_is_so_for_new_keys_too() -> None:
    """By rule N3: a user who forces a circuit open means the dependency with all its keys."""
    client = Client()
    client.fetch("a")
    circuit_breakers.force_open(FETCH)

    assert [outcome(client.fetch, host) for host in "ab"] == ["CircuitBreakerOpenException"] * 2

    circuit_breakers.reset(FETCH)
    assert [outcome(client.fetch, host) for host in "ab"] == ["a/", "b/"]


def test_a_forced_state_of_all_keys_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """By rule N3: one act is one event, however many keys there are, and the circuit of a later key opens with none."""
    client, heard = Client(), list[str]()
    undo = circuit_breakers.on_state_change(FETCH, lambda name, old, new: heard.append(new))
    for host in "ab":
        client.fetch(host)
    opened = counts_of("Client.fetch")["ft.circuitbreaker.opened.total", ()]
    circuit_breakers.force_open(FETCH)
    assert outcome(client.fetch, "new") == "CircuitBreakerOpenException"
    circuit_breakers.reset(FETCH)
    undo()

    assert heard == ["open", "closed"]
    assert len([record for record in caplog.records if "force_open" in record.getMessage()]) == 1
    # The circuits of both keys, and that of calls without a place.
    assert counts_of("Client.fetch")["ft.circuitbreaker.opened.total", ()] - opened == 3


def test_a_snapshot_shows_the_key_whose_state_counts() -> None:
    """By rules N3 and C7: ``snapshot`` and ``state`` agree about all keys, whichever key was called last."""
    client = Client("bad")
    assert circuit_breakers.snapshot(FETCH).state == "closed"
    for host in ("fine", "bad", "bad", "fine"):
        outcome(client.fetch, host)

    seen = circuit_breakers.snapshot(FETCH)

    assert circuit_breakers.state(FETCH) == seen.state == "open"
    assert (seen.opened, seen.forced) == (1, False)
    assert seen.half_open_at is not None


def test_listeners_and_health_hear_of_every_key() -> None:
    """By rule N3: the event has the name of the method."""
    client, heard = Client("bad"), []
    undo = circuit_breakers.on_state_change(FETCH, lambda *change: heard.append(change))
    for _ in range(2):
        outcome(client.fetch, "bad")
    undo()

    assert heard == [(FETCH, "closed", "open")]
    assert any(FETCH in reason for reason in health().reasons)


@pytest.mark.parametrize("switch", ["false", "true"])
def test_only_circuits_that_calls_pass_are_reported_after_keys_are_switched_off_or_on(switch: str) -> None:
    """By rule N3: an open circuit that no call meets any more takes no service out of rotation."""
    client = Client("bad")
    enabled = key(Client, "fetch", "PartitionBy", "enabled")
    with configured({enabled: {"false": "true", "true": "false"}[switch]}):
        client.fetch("good")
        for _ in range(2):
            outcome(client.fetch, "bad")
        (guard,) = guards(FETCH)
        before = circuit_breakers.state(FETCH), circuit_breakers.snapshot(FETCH).state, guard.impaired
        with configured({enabled: switch}):
            client.down.clear()
            passed = [client.fetch(host) for host in ("bad", "good")]
            after = circuit_breakers.state(FETCH), circuit_breakers.snapshot(FETCH).state, guard.impaired
            conditions, reasons = guard.conditions, health(FETCH).reasons

    assert before == ("open", "open", ("CircuitBreaker",))
    assert (passed, after) == (["bad/", "good/"], ("closed", "closed", ()))
    assert conditions["CircuitBreaker"] == "closed"
    assert not [reason for reason in reasons if FETCH in reason]


def test_levels_are_those_of_the_permits_that_calls_pass() -> None:
    """By rule N3: metrics of keys add up; when keys are switched off, one limit is left."""

    @partition_by("host")
    @bulkhead(5, latency="1s")
    def fetch(host: str) -> str:
        return host

    name = f"{__name__}.{fetch.__qualname__}"
    seen = []
    for switch in ("true", "false", "true"):
        with configured({f"{__name__}/{fetch.__qualname__}/PartitionBy/enabled": switch}):
            for host in "abc":
                fetch(host)
            seen.append({level: counts_of(name).get((level, ())) for level in ("ft.bulkhead.limit", "ft.partitions")})

    divided = {"ft.bulkhead.limit": 15, "ft.partitions": 3}
    assert seen == [divided, {"ft.bulkhead.limit": 5, "ft.partitions": None}, divided]


def test_a_change_of_the_configuration_reaches_every_key() -> None:
    """By rule N2: existing keys change at once; the number of keys is one of the values."""
    pytest.importorskip("pydantic_settings")
    client = Client("bad", "worse")
    with virtual_time() as clock:
        for host in ("bad", "bad", "worse", "worse"):
            outcome(client.fetch, host)
        try:
            configure(properties={"CircuitBreaker/delay": "1s", "PartitionBy/maxPartitions": "2"})
            reload()
            outcome(client.fetch, "worse")
            client.down.clear()
            clock.advance(61)
            assert [outcome(client.fetch, host) for host in ("bad", "worse")] == ["bad/", "worse/"]
            client.down.add("bad")
            for _ in range(2):
                outcome(client.fetch, "bad")
            clock.advance(1.5)
            assert circuit_breakers.state(FETCH, key="bad") == "half-open"
            for host in "abcdef":
                client.fetch(host)
            assert counts_of("Client.fetch")["ft.partitions", ()] == 2
        finally:
            configure(properties={})


def test_a_policy_that_is_switched_on_later_is_there_for_keys_that_were_before() -> None:
    """By rule N2: the missing state of a key is made when its next call comes."""
    pytest.importorskip("pydantic_settings")

    @partition_by("key")
    @circuit_breaker(request_volume_threshold=1, fail_on=Down)
    @rate_limit(1, window="1h")
    def work(key: str) -> str:
        return key

    try:
        configure(properties={"RateLimit/enabled": False})
        assert [work("a"), work("a")] == ["a", "a"]
        configure(properties={"RateLimit/enabled": True})
        assert [outcome(work, "a"), outcome(work, "a")] == ["a", "RateLimitException"]
    finally:
        configure(properties={})


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_keeps_the_state_of_each_key_and_drops_permits_of_other_threads() -> None:
    """By rule N2: permits of threads that the child does not have are given back; an open circuit stays open."""

    class Service:
        @partition_by("key")
        @circuit_breaker(request_volume_threshold=1, fail_on=Down, failure_ratio=1.0)
        @bulkhead(1)
        def work(self, key: str) -> str:
            if key == "bad":
                raise Down
            entered.set()
            go.wait(30)
            return key

    entered, go, service = threading.Event(), threading.Event(), Service()
    outcome(service.work, "bad")
    thread = threading.Thread(target=service.work, args=("busy",))
    thread.start()
    entered.wait(30)
    child = os.fork()
    if not child:
        go.set()
        is_right = (
            outcome(service.work, "busy") == "busy" and outcome(service.work, "bad") == "CircuitBreakerOpenException"
        )
        os._exit(0 if is_right else 1)
    go.set()
    thread.join(30)

    assert os.waitpid(child, 0)[1] == 0


def test_a_class_that_is_dropped_leaves_no_key_behind() -> None:
    """Rule L4: the partitions of a class are freed with it."""

    class Service:
        @partition_by("key")
        @bulkhead(1)
        def work(self, key: object) -> None: ...

    class Key:
        pass

    key = Key()
    Service().work(key)
    gone, kept = weakref.ref(Service), weakref.ref(key)
    del Service, key
    gc.collect()
    ledger.read()  # its final counts are taken when somebody reads, or when many classes have gone

    assert gone() is None
    assert kept() is None


def test_a_key_is_all_that_is_kept_of_a_call() -> None:
    """By rule N2: with the name of a parameter as key, neither the object nor other arguments stay."""

    class Service:
        @partition_by("key")
        @bulkhead(1)
        def work(self, key: str, body: object = None) -> None: ...

    service = Service()
    service.work("a", service)
    gone = weakref.ref(service)
    del service
    gc.collect()

    assert gone() is None


def test_a_guard_tells_calls_apart_by_the_parameters_of_the_called_function() -> None:
    """By rule N1: names belong to each function's parameters; a function without them is a ``TypeError``."""
    guard = Guard(
        partition_by=PartitionBy("host"),
        circuit_breaker=CircuitBreaker(request_volume_threshold=1, fail_on=Down),
        bulkhead=Bulkhead(1),
    )

    def get(host: str) -> str:
        if host == "bad":
            raise Down
        return host

    async def post(body: str, host: str) -> str:
        return get(host)

    assert [outcome(guard.call, get, host) for host in ("bad", "bad", "good")] == [
        "Down",
        "CircuitBreakerOpenException",
        "good",
    ]
    with pytest.raises(CircuitBreakerOpenException):
        asyncio.run(guard.call_async(post, "x", host="bad"))
    assert asyncio.run(guard.call_async(post, "x", "good")) == "good"
    assert guard(get)("good") == "good"
    with pytest.raises(TypeError, match="'host'"):
        guard.call(lambda other: other, 1)


def test_calls_of_several_partitions_are_different_calls() -> None:
    """By rule N1: sharing a result stays within a partition."""
    asked = []

    @partition_by("tenant")
    @coalesce(key="order")
    def load(tenant: str, order: str) -> str:
        asked.append(tenant)
        sleep(1)
        return tenant

    with virtual_time() as clock:
        calls = [clock.start(load, tenant, "o") for tenant in "aabb"]

        assert [call.result() for call in calls] == list("aabb")
    assert sorted(asked) == ["a", "b"]


def test_every_way_of_calling_finds_its_key(invoke: Invoke) -> None:
    """By rule N1: retries stay with the key with which the call began."""

    class Service:
        seen: list[str] = []  # noqa: RUF012

        @partition_by(lambda host: host)
        @retry(max_retries=2, jitter=0)
        @circuit_breaker(request_volume_threshold=2, fail_on=Down, failure_ratio=1.0)
        @invoke.body
        async def work(self, host: str) -> str:
            self.seen.append(host)
            if host == "bad":
                raise Down
            return host

    service = Service()

    assert invoke.outcome(service.work, "bad") is CircuitBreakerOpenException
    assert invoke.outcome(service.work, "good") == "good"
    assert service.seen == ["bad", "bad", "good"]


def test_arguments_without_a_meaning_are_refused() -> None:
    """By rule N1: these are no key, a name that a method does not have, and no room at all."""

    def work(host: str) -> str:
        return host

    with refused("is used without arguments"):

        @partition_by
        def bare(host: str) -> None: ...

    with refused("names 'hots'", "did you mean 'host'"):
        partition_by("hots")(work)
    with refused("@PartitionBy(max_partitions) is 0"):
        partition_by("host", 0)(work)
    with refused("@PartitionBy(key) is ()"):
        partition_by(())(work)
    with refused("names 'host'"):

        @partition_by("host")
        class Service:
            def get(self, host: str) -> None: ...

            def close(self) -> None: ...

    with refused("@PartitionBy(key) names 'host'"):

        @asynchronous
        @partition_by("host")
        async def other(hostname: str) -> None: ...


def test_hosts_that_failed_once_do_not_keep_their_places_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """By rule N2: unused keys go after a minute; calls without a place until then are counted, and logged once."""
    client = Client("a", "b", "c", "d")
    with virtual_time() as clock:
        for host in "abcd":
            outcome(client.fetch, host)
        outcome(client.fetch, "d")
        assert [outcome(client.fetch, host) for host in "xy"] == ["CircuitBreakerOpenException"] * 2
        assert counts_of("Client.fetch")["ft.partitions.shared.total", ()] == 4
        clock.advance(61)
        assert [outcome(client.fetch, host) for host in "xy"] == ["x/", "y/"]

    assert counts_of("Client.fetch")["ft.partitions.shared.total", ()] == 4
    (record,) = [record for record in caplog.records if "max_partitions" in record.getMessage()]
    assert record.levelname == "WARNING"


def test_dead_hosts_do_not_keep_their_places_for_ever() -> None:
    """By rule N2: a key whose circuit has opened goes where it is never called again, a minute after the delay."""
    client = Client("a", "b", "c", "x")
    with virtual_time() as clock:
        for host in "aabbcc":
            outcome(client.fetch, host)
        clock.advance(60 + 61)

        assert [outcome(client.fetch, host) for host in "xxxy"] == ["Down"] * 2 + ["CircuitBreakerOpenException", "y/"]


def test_the_circuit_of_a_host_that_hangs_opens_under_a_flood_of_keys(invoke: Invoke) -> None:
    """By rule N2: a key stays while a call runs in it, in every way of calling."""

    class Service:
        @partition_by(lambda host: host, max_partitions=3)
        @circuit_breaker(request_volume_threshold=2, delay="10m")
        @invoke.body
        async def fetch(self, host: str) -> str:
            if host == "hangs":
                flood = threading.Thread(target=lambda: [invoke.outcome(service.fetch, host) for host in "abcdef"])
                flood.start()
                flood.join()
                raise Down
            return host

    service = Service()

    assert [invoke.outcome(service.fetch, "hangs") for _ in range(3)] == [Down, Down, CircuitBreakerOpenException]


class Row:
    """A key with the hash and the equality that its object has at the moment."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        if self.number < 0:
            raise LookupError("detached")
        return self.number

    def __eq__(self, other: object) -> bool:
        return hash(self) == hash(other)


class Colliding(int):
    """A number with the hash of all others."""

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("kind", [int, Colliding])
def test_a_handler_of_a_signal_that_needs_places_at_any_moment_harms_no_call(kind: type[int]) -> None:
    """It removes partitions while the call below it removes the same, and each key keeps one state."""

    @partition_by(lambda key: kind(key), max_partitions=2)
    @bulkhead(1)
    def service(key: int) -> str:
        return "served"

    found = set()
    for number, strike in enumerate(strikes("partition_by/strategy.py", "partition_by/layer.py")):
        first = 10 * number
        service(first)
        service(first + 1)
        strike.handle = lambda first=first: [service(first + more) for more in (2, 3, 4)]
        with strike:
            found.add(service(first + 4))
        found.update([service(first + 4), service(first)])

    assert found == {"served"}


@pytest.mark.parametrize("later", [1_000, -1])
def test_a_key_that_changes_its_hash_harms_nobody(later: int) -> None:
    """By rule N2: new keys find places, and operations on all guards go on."""
    rows = [Row(number) for number in range(5)]

    @partition_by("key", max_partitions=3)
    @circuit_breaker(request_volume_threshold=1)
    def work(key: object) -> str:
        return "done"

    for row in rows[:3]:
        work(row)
    for row in rows[:3]:
        row.number = later

    assert [work(row) for row in rows[3:] * 2] == ["done"] * 4
    assert circuit_breakers.state(f"{__name__}.{work.__qualname__}", key=rows[4]) == "closed"
    assert counts_of(work.__qualname__)["ft.partitions", ()] == 3
    assert health().status == "up"
    assert reload() == []


def test_a_guard_whose_state_cannot_be_read_ends_nothing_for_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By rule N3: a scrape, ``health``, ``guards`` and a reload leave it out, and log this once."""

    @circuit_breaker(request_volume_threshold=1, fail_on=Down)
    def sound(how: str) -> None:
        raise Down

    @bulkhead(1)
    def broken() -> None: ...

    def fail(*args: object) -> None:
        raise LookupError("broken")

    ours = resolver.effective_policies
    outcome(sound, "")
    broken()
    for name in ("condition", "resize"):
        monkeypatch.setattr(BulkheadStrategy, name, fail)
    monkeypatch.setattr(BulkheadStrategy, "running", property(fail))

    pytest.importorskip("pydantic_settings")
    for limit in (2, 3):
        configure(properties={"Bulkhead/value": limit})
        assert ledger.read().counts[f"{__name__}.{sound.__qualname__}"]["ft.circuitbreaker.opened.total", ()] == 1
        assert [reason for reason in health().reasons if "sound" in reason]
        assert [reason for reason in health().reasons if "unknown" in reason]
        assert {"Bulkhead"} <= {name for guard in guards() for name in guard.impaired}
    monkeypatch.setattr(
        resolver,
        "effective_policies",
        lambda one, *rest, **options: fail() if one.declaration.name == "broken" else ours(one, *rest, **options),
    )
    configure(properties={"CircuitBreaker/delay": 7})
    (found,) = [guard for guard in guards() if "cannot_be_read" in guard.name]
    assert found.policies == (CircuitBreaker(delay=7, request_volume_threshold=1, fail_on=Down),)

    troubles = [record.getMessage() for record in caplog.records if "broken" in record.getMessage()]
    assert len(troubles) == len(set(troubles)) >= 2
