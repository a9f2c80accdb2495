"""The circuit of a function that a fleet shares under the name of its guard, through public names."""

from __future__ import annotations

import asyncio
import hashlib
import os
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faulttolerance import (
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    RedisFleet,
    adaptive_throttle,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    explain,
    fleet_wide,
    guards,
    health,
    hedge,
    partition_by,
    reload,
    unguarded,
)
from faulttolerance._extensions.fleet.fleet_link import fleet_link
from faulttolerance._extensions.fleet.protocol import ABSENT, CircuitRecord, PollRequest
from faulttolerance.policies import AdaptiveThrottle, FleetWide, RateLimit
from faulttolerance.testing import MemoryFleet, VirtualClock, configured, reset, virtual_time
from kit.definition import refused
from kit.fleet import DistantFleet
from kit.program import QUIET, python
from kit.waiting import wait_until


class Down(Exception):
    pass


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with virtual_time() as clock:
        yield clock


@pytest.fixture
def fleet(clock: VirtualClock) -> Iterator[MemoryFleet]:
    fleet = MemoryFleet()
    configure(fleet=fleet)
    yield fleet
    configure(fleet=None)


def replica(**values: Any) -> Callable[..., str]:
    """Return a function as one process has it; all replicas have the same name."""

    @fleet_wide
    @circuit_breaker(**{"request_volume_threshold": 2, "failure_ratio": 1.0, "delay": 5000, "fail_on": Down, **values})
    def pay(works: bool = True) -> str:
        if not works:
            raise Down
        return "paid"

    return pay


PAY = f"{__name__}.replica.<locals>.pay"


def outcome(call: Callable[..., Any], *args: Any) -> str:
    try:
        return str(call(*args))
    except Exception as error:
        return type(error).__name__


REFUSED = CircuitBreakerOpenException.__name__


def record(fleet: MemoryFleet, key: str = PAY) -> CircuitRecord:
    """Return the record of the circuit that another process would read."""
    (found,) = fleet.connect().exchange([PollRequest("", 1)])
    return found.circuits.get(key, ABSENT)  # type: ignore[union-attr]


def broken(call: Callable[..., Any]) -> None:
    """Open the circuit by calls that fail."""
    assert [outcome(call, False) for _ in range(2)] == ["Down", "Down"]


# Definition


@pytest.mark.parametrize("beside", [{}, {"adaptive_throttle": AdaptiveThrottle()}], ids=["nothing", "a throttle"])
def test_a_fleet_wide_guard_with_nothing_to_share_is_a_definition_error(beside: dict[str, Any]) -> None:
    """By rule X9: a throttle finds by itself how many calls it may let through (F6)."""
    with refused("@FleetWide is used without @CircuitBreaker or @RateLimit"):
        Guard(fleet_wide=FleetWide(), **beside)

    @fleet_wide
    @adaptive_throttle
    def function() -> None: ...

    with refused("@FleetWide is used without @CircuitBreaker or @RateLimit", "@circuit_breaker or @rate_limit"):
        function()


def test_a_fleet_wide_class_shares_the_methods_that_have_something_to_share(fleet: MemoryFleet) -> None:
    """Each method is shared under a name of its own."""

    @fleet_wide
    class Client:
        @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, fail_on=Down)
        def pay(self, works: bool) -> str:
            raise Down

        @bulkhead
        def look(self) -> str:
            return "seen"

    broken(Client().pay)

    assert record(fleet, f"{__name__}.{Client.__qualname__}.pay").state == "open"
    assert Client().look() == "seen"


def test_a_guard_without_a_fleet_is_local_and_silent(clock: VirtualClock) -> None:
    """Development and tests need no server."""
    one, other = replica(), replica()
    broken(one)

    assert [outcome(one), outcome(other)] == [REFUSED, "paid"]
    clock.advance(5.1)
    assert outcome(one) == "paid"
    assert "local: no fleet is configured" in str(explain(one))


NAMELESS = """
import logging, sys
from faulttolerance import *
from faulttolerance.policies import *
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)

one = Guard(name="one", rate_limit=RateLimit(1), fleet_wide=FleetWide())
other = Guard(name="other", circuit_breaker=CircuitBreaker(), fleet_wide=FleetWide())
"""
LOCAL = "is fleet-wide, but local: no fleet is configured"


@pytest.mark.outside
def test_a_forgotten_fleet_is_logged_once_and_shown_in_health() -> None:
    """A missing line would silently multiply a quota by the number of processes."""
    done = python(f"{NAMELESS}print(health().status); one.call(int); other.call(int); print(health())")
    first, warning, health_of_it = done.stdout.splitlines()

    assert (first, done.stderr) == ("up", "")
    assert warning.startswith(f"WARNING one {LOCAL}")
    assert "degraded" in health_of_it
    assert "one: FleetWide is local: no fleet is configured" in health_of_it
    assert "other: FleetWide is local: no fleet is configured" in health_of_it


@pytest.mark.outside
def test_a_program_that_says_that_there_is_no_fleet_is_not_warned() -> None:
    """A service with one process needs no fleet."""
    done = python(f"{NAMELESS}configure(fleet=None); one.call(int); print(health())")

    assert (done.returncode, done.stderr) == (0, "")
    assert "FleetWide" not in done.stdout
    assert LOCAL not in done.stdout


def test_a_reset_takes_back_what_the_program_said_of_a_fleet(caplog: pytest.LogCaptureFixture) -> None:
    """The next test begins as a new process does, with the fleet of the environment or the warning."""
    configure(fleet=None)
    reset()
    one = Guard(name="one", rate_limit=RateLimit(1), fleet_wide=FleetWide())
    one.call(int)

    assert LOCAL in caplog.text
    assert "one: FleetWide is local: no fleet is configured" in str(health())


def name_server(monkeypatch: pytest.MonkeyPatch, url: str, namespace: str) -> Guard:
    """Name the server by the environment, as if the process had just begun, and return a guard."""
    monkeypatch.setattr(fleet_link, "is_chosen", False)
    monkeypatch.setenv("FAULTTOLERANCE_FLEET_URL", url)
    monkeypatch.setenv("FAULTTOLERANCE_FLEET_NAMESPACE", namespace)
    return Guard(name="named", rate_limit=RateLimit(1), fleet_wide=FleetWide())


@pytest.mark.parametrize("chooses", [False, True], ids=["the environment", "the program"])
def test_the_server_can_be_named_by_the_environment(
    chooses: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Operations set it without code; a fleet of the program goes first."""
    pytest.importorskip("redis")
    one = name_server(monkeypatch, "redis://127.0.0.1:1/3", "shop")
    if chooses:
        configure(fleet=RedisFleet("redis://127.0.0.1:2", namespace="mine"))
    one.call(int)
    port, namespace = ("2", "mine") if chooses else ("1/3", "shop")

    assert f"RedisFleet('redis://127.0.0.1:{port}', namespace='{namespace}')" in repr(fleet_link.current.fleet)
    assert LOCAL not in caplog.text


@pytest.mark.parametrize(
    ("url", "namespace", "problem"),
    [
        ("redis://u:hunter2@host:port", "shop", "redis-py cannot read"),
        ("redis://host", "", "namespace"),
    ],
)
def test_a_wrong_server_of_the_environment_is_a_definition_error(
    url: str, namespace: str, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By rule X9: the first call raises it, with the variables and without the password."""
    pytest.importorskip("redis")
    one = name_server(monkeypatch, url, namespace)

    with pytest.raises(FaultToleranceDefinitionException) as raised:
        one.call(int)

    assert problem in str(raised.value)
    assert "environment variables FAULTTOLERANCE_FLEET_URL and FAULTTOLERANCE_FLEET_NAMESPACE" in str(raised.value)
    assert "hunter2" not in f"{raised.value} {raised.value!r} {caplog.text}"


def test_a_shared_guard_names_its_fleet(fleet: MemoryFleet) -> None:
    """By rule X10: ``explain()`` and ``guards()`` name it, before the first call, too."""
    pay = replica()

    assert "shared in 'memory'" in str(explain(pay))
    assert [one.conditions for one in guards() if one.method is pay] == [{"FleetWide": "shared in 'memory'"}]
    pay()
    assert "shared in 'memory'" in str(explain(pay))


# The circuit


def test_a_replica_opens_the_circuit_of_all_and_a_probe_closes_it(fleet: MemoryFleet, clock: VirtualClock) -> None:
    """By rules F3 and F4: each replica has listeners, snapshot and health of its own circuit, which follows."""
    one, other = replica(), replica()
    moves: list[tuple[str, str]] = []
    undo = circuit_breakers.on_state_change(PAY, lambda name, old, new: moves.append((old, new)))
    other()
    broken(one)

    assert [outcome(one), outcome(other)] == [REFUSED, REFUSED]
    assert (snapshot := circuit_breakers.snapshot(PAY)).state == "open"
    assert snapshot.half_open_at == pytest.approx(clock.monotonic() + 5.0)
    assert health(critical=[PAY]).status == "down"
    assert moves == [("closed", "open")] * 2

    clock.advance(5.1)
    assert outcome(other) == REFUSED
    assert outcome(one) == REFUSED
    assert outcome(other) == "paid"
    assert [outcome(one), record(fleet).state, health().status] == ["paid", "closed", "up"]
    assert moves[2:] == [("open", "half-open"), ("half-open", "closed")] * 2  # of each replica in turn
    undo()


def test_a_circuit_that_another_process_opens_is_open_here(fleet: MemoryFleet, clock: VirtualClock) -> None:
    """By rule F3: a replica that comes later sees it open, too, until the other process closes it."""
    one = replica()
    one()
    fleet.open(PAY, "5s")
    late = replica()

    assert [outcome(one), outcome(late)] == [REFUSED, REFUSED]
    fleet.close(PAY)
    assert [outcome(one), outcome(late)] == ["paid", "paid"]


@pytest.mark.parametrize("looked_at", ["health", "guards", "state"])
@pytest.mark.parametrize("is_distant", [False, True], ids=["in this process", "distant"])
def test_a_circuit_that_the_fleet_has_opened_is_open_before_the_first_call(looked_at: str, is_distant: bool) -> None:
    """By rule F3: a readiness check or a person may look before the first call."""
    fleet = DistantFleet(poll=0.02) if is_distant else MemoryFleet()
    (fleet.memory if is_distant else fleet._server).set_circuit(PAY, round(time.monotonic() * 1e6), 60_000_000)  # type: ignore[union-attr]
    configure(fleet=fleet)
    wait_until(lambda: bool(fleet_link.current._records))  # type: ignore[union-attr]
    pay = replica()
    try:
        if looked_at == "health":
            assert health(critical=[PAY]).status == "down"
        elif looked_at == "guards":
            assert [one.impaired for one in guards() if one.method is pay] == [("CircuitBreaker",)]
        else:
            assert circuit_breakers.state(PAY) == "open"
    finally:
        configure(fleet=None)


@pytest.mark.parametrize("key", ["CircuitBreaker/mode", "CircuitBreaker/enabled"])
def test_a_guard_that_shares_nothing_now_is_not_said_to_be_shared(fleet: MemoryFleet, key: str) -> None:
    """By rule F6: ``explain()`` says that its policies are switched off or observed."""
    pay = replica()
    pay()
    with configured({key: "observe" if key.endswith("mode") else "false"}):
        assert "now local: the policies that it would share are switched off or observed" in str(explain(pay))
    assert "shared in 'memory'" in str(explain(pay))


def test_an_observed_breaker_shares_nothing(fleet: MemoryFleet) -> None:
    """By rules F6 and X7: it neither opens the circuit of the fleet nor follows it."""
    one, other = replica(), replica()
    one()
    with configured({"CircuitBreaker/mode": "observe"}):
        broken(one)
        assert record(fleet).state == "closed"
        fleet.open(PAY, "5s")
        assert [outcome(one), outcome(other)] == ["paid", "paid"]
        fleet.close(PAY)


def test_a_guard_is_local_while_its_sharing_is_switched_off(fleet: MemoryFleet) -> None:
    """The key ``FleetWide/enabled`` switches it off at any time."""
    one, other = replica(), replica()
    other()
    with configured({"FleetWide/enabled": "false"}):
        broken(one)
        assert [outcome(one), outcome(other), record(fleet).state] == [REFUSED, "paid", "closed"]
        circuit_breakers.reset(PAY)
        fleet.open(PAY, "5s")
        assert outcome(other) == "paid"
        fleet.close(PAY)
    broken(one)

    assert [outcome(one), outcome(other), record(fleet).state] == [REFUSED, REFUSED, "open"]


def test_force_reset_and_unguarded_are_local(fleet: MemoryFleet, clock: VirtualClock) -> None:
    """By rule F6: a reset holds until the circuit of the fleet moves; a forced circuit follows nothing."""
    pay = replica()

    class Client:
        @unguarded
        def pay(self) -> str:
            return "paid"

    pay()
    circuit_breakers.force_open(PAY)
    assert [outcome(pay), record(fleet).state, Client().pay()] == [REFUSED, "closed", "paid"]
    circuit_breakers.reset(PAY)
    fleet.open(PAY, "5s")
    assert outcome(pay) == REFUSED
    circuit_breakers.reset(PAY)
    assert [outcome(pay), record(fleet).state] == ["paid", "open"]
    fleet.open(PAY, "5s")
    assert outcome(pay) == REFUSED
    circuit_breakers.force_closed(PAY)
    fleet.open(PAY, "5s")

    assert outcome(pay) == "paid"


def test_the_fleet_may_go_in_the_middle_of_a_probe(fleet: MemoryFleet, clock: VirtualClock) -> None:
    """By rules F5 and X2: ``configure(fleet=None)`` keeps the known state, and this process judges the probe."""
    pay = replica()
    fleet.open(PAY, "5s")
    assert outcome(pay) == REFUSED
    clock.advance(5.1)
    assert outcome(pay) == REFUSED
    configure(fleet=None)
    assert circuit_breakers.state(PAY) == "half-open"
    assert outcome(pay, False) == "Down"
    assert circuit_breakers.state(PAY) == "open"
    configure(fleet=fleet)

    assert outcome(pay) == REFUSED
    clock.advance(5.1)
    assert [outcome(pay), outcome(pay)] == [REFUSED, "paid"]


def test_new_values_reach_the_shared_circuit(fleet: MemoryFleet, clock: VirtualClock) -> None:
    """By rule X2: a changed delay applies to the next opening; an open circuit stays open."""
    pay = replica()
    pay()
    configure(properties={"CircuitBreaker/delay": "30000"})
    try:
        broken(pay)
        assert record(fleet).wait == 30_000_000
        reload()
        assert outcome(pay) == REFUSED
    finally:
        configure(properties={})


def test_a_further_name_is_known_here_only(fleet: MemoryFleet) -> None:
    """The fleet knows the circuit by the name of its guard."""

    @fleet_wide
    @circuit_breaker_name("payments")
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, fail_on=Down)
    def named(works: bool) -> str:
        raise Down

    broken(named)

    assert circuit_breakers.state("payments") == "open"
    assert [guard.name for guard in guards() if record(fleet, guard.name).state == "open"] == [
        f"{__name__}.{named.__qualname__}"
    ]


def test_a_half_open_circuit_of_a_fleet_has_no_hedge_and_no_verdict_of_the_loser_of_a_race(
    fleet: MemoryFleet, clock: VirtualClock
) -> None:
    """By rules H2, H5 and F4: the first attempt is the probe, and the fleet is told its end."""
    began: list[float] = []

    @fleet_wide
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, fail_on=Down)
    @hedge(delay=100)
    async def pay() -> str:
        began.append(clock.monotonic())
        await asyncio.sleep(1)
        return "paid"

    async def main() -> list[str]:
        return [await pay(), await pay()] if not began else [await pay()]

    name = f"{__name__}.{pay.__qualname__}"
    clock.run(main())
    fleet.open(name, "5s")
    clock.advance(5.1)
    with pytest.raises(CircuitBreakerOpenException):
        clock.run(main())
    began.clear()
    began.append(0.0)
    clock.run(main())

    assert len(began) == 2
    assert record(fleet, name).state == "closed"


# Keys


def test_each_key_is_shared_by_itself_under_a_name_that_tells_nothing(fleet: MemoryFleet) -> None:
    """By rules F7 and N1, trap 31: the fleet sees 16 digits of the hash of a key, for any text."""

    @fleet_wide
    @partition_by("host")
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, fail_on=Down)
    def fetch(host: str, works: bool = True) -> str:
        if not works:
            raise Down
        return host

    name = f"{__name__}.{fetch.__qualname__}"
    key = f"{name}#{hashlib.sha256(repr('a}{b').encode()).hexdigest()[:16]}"
    broken(lambda works: fetch("a}{b", works))

    assert record(fleet, key).state == "open"
    assert [outcome(fetch, "a}{b"), outcome(fetch, "c")] == [REFUSED, "c"]
    fleet.close(key)
    assert outcome(fetch, "a}{b") == "a}{b"


def test_a_flood_of_keys_evicts_no_circuit_that_the_fleet_has_opened(fleet: MemoryFleet) -> None:
    """By rule N2, trap 26: an open circuit is not idle; the further keys share a circuit under the name alone."""

    @fleet_wide
    @partition_by("host", max_partitions=2)
    @circuit_breaker(request_volume_threshold=2, failure_ratio=1.0, fail_on=Down)
    def fetch(host: str, works: bool = True) -> str:
        if not works:
            raise Down
        return host

    name = f"{__name__}.{fetch.__qualname__}"
    for host in "ab":
        fetch(host)
        fleet.open(f"{name}#{hashlib.sha256(repr(host).encode()).hexdigest()[:16]}", "60s")
    assert [outcome(fetch, host) for host in "abcdefab"] == [REFUSED] * 2 + list("cdef") + [REFUSED] * 2
    broken(lambda works: fetch("g", works))

    assert record(fleet, name).state == "open"
    assert circuit_breakers.state(name, key="h") == "open"


# Threads and processes


def test_listeners_hear_of_moves_from_elsewhere_on_a_thread_that_may_wait() -> None:
    """By rule F3: a listener that blocks delays no answer, and may call guarded functions."""
    fleet = DistantFleet(poll=0.02)
    configure(fleet=fleet)
    pay, told, may_go_on = replica(), threading.Event(), threading.Event()
    names: list[str] = []

    def listen(*_: str) -> None:
        names.append(outcome(pay))
        told.set()
        may_go_on.wait(20)

    undo = circuit_breakers.on_state_change(PAY, listen)
    try:
        pay()
        fleet.memory.set_circuit(PAY, round(fleet.now() * 1e6), 60_000_000)
        assert told.wait(20)
        asked = len(fleet.asked)
        wait_until(lambda: len(fleet.asked) > asked + 2)
        assert names == [REFUSED]
    finally:
        may_go_on.set()
        undo()
        configure(fleet=None)


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_no_place_of_its_parent() -> None:
    """By rules F4 and L5: the place stays with the parent, whose next call is the probe; the child asks for its own."""
    done = python(
        QUIET
        + textwrap.dedent("""
        import os
        from faulttolerance import *
        from faulttolerance.policies import *
        from faulttolerance.testing import MemoryFleet, virtual_time

        pay = Guard(circuit_breaker=CircuitBreaker(), fleet_wide=FleetWide(), name="pay")

        def outcome():
            try:
                return pay.call(lambda: "paid")
            except CircuitBreakerOpenException:
                return "refused"

        with virtual_time() as clock:
            fleet = MemoryFleet()
            configure(fleet=fleet)
            assert outcome() == "paid"
            fleet.open("pay", "5s")
            clock.advance(5.1)
            assert outcome() == "refused"
            pid = os.fork()
            if not pid:
                first, second = outcome(), outcome()
                clock.advance(1.1)
                third, fourth = outcome(), outcome()
                os._exit((first, second, third, fourth) != ("refused", "refused", "refused", "paid"))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert outcome() == "paid"
        """),
        "-W",
        "error",
        seconds=50,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
