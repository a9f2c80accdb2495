"""A fleet without a server, and the moves of a test on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from faulttolerance import FaultToleranceDefinitionException, configure
from faulttolerance._extensions.fleet.protocol import CircuitRecord, PollRequest, PollResponse, TurnRequest
from faulttolerance.instrumentation import FleetRegained
from faulttolerance.testing import MemoryFleet, captured_events, virtual_time

READ = PollRequest("", 1)
TURN = TurnRequest("shop", "fixed", 1, 1_000_000, 1)


def circuit(fleet: MemoryFleet) -> CircuitRecord:
    (answer,) = fleet.connect().exchange([READ])
    assert isinstance(answer, PollResponse)
    return answer.circuits["shop"]


@pytest.mark.parametrize("delay", [5_000, "5s", timedelta(seconds=5)])
def test_a_test_opens_and_closes_circuits_as_another_replica_would(delay: Any) -> None:
    """The moves are on the shared clock, and each has a version of its own."""
    with virtual_time() as clock:
        fleet = MemoryFleet()
        fleet.open("shop", delay)
        opened = circuit(fleet)
        clock.advance(2.0)
        later = circuit(fleet)
        fleet.close("shop")

    assert opened == CircuitRecord(opened.version, "open", 5_000_000, 0, "opened by another replica")
    assert later == opened._replace(wait=3_000_000)
    assert circuit(fleet) == CircuitRecord(opened.version + 2_000_000, "closed")


def test_all_sessions_of_a_fleet_share_its_windows() -> None:
    fleet = MemoryFleet()

    assert [*fleet.connect().exchange([TURN])] == [0]
    assert fleet.connect().exchange([TURN]) > [0]
    fleet.forget()
    assert [*fleet.connect().exchange([TURN])] == [0]


def test_a_lost_fleet_answers_nobody() -> None:
    fleet = MemoryFleet()
    session = fleet.connect()
    session.exchange([TURN])

    fleet.lose("the cable was cut")
    with pytest.raises(ConnectionError, match="the cable was cut"):
        session.exchange([READ])
    fleet.regain()
    assert session.exchange([TURN]) > [0]


def test_sessions_are_told_at_once_what_a_test_does_to_the_fleet() -> None:
    """Every session is told until it is closed: closed circuits ask nobody, and nothing is read from time to time."""
    fleet, heard = MemoryFleet(), list[str]()
    session = fleet.connect(lambda: heard.append("one"))
    other = fleet.connect(lambda: heard.append("two"))
    moves: list[Any] = [
        lambda: fleet.open("shop", 1),
        lambda: fleet.close("shop"),
        fleet.lose,
        fleet.regain,
        fleet.forget,
    ]

    for move in moves:
        move()
    other.close()
    session.exchange([READ])
    fleet.close("shop")

    assert sorted(heard) == ["one"] * 6 + ["two"] * 5


def test_the_time_without_a_fleet_is_that_of_the_shared_clock() -> None:
    """This holds for a fleet that was configured before the virtual time began, too."""
    fleet = MemoryFleet()
    configure(fleet=fleet)

    with virtual_time() as clock, captured_events() as events:
        fleet.lose()
        clock.advance(5)
        fleet.regain()

    assert [event.seconds for event in events if isinstance(event, FleetRegained)] == [5.0]


@pytest.mark.parametrize("delay", [-1, "soon", None])
def test_a_value_that_is_no_delay_is_refused(delay: Any) -> None:
    with pytest.raises(FaultToleranceDefinitionException, match=r"\(delay\) is .*; allowed: a dur"):
        MemoryFleet().open("shop", delay)


def test_a_fleet_shows_its_name() -> None:
    assert repr(MemoryFleet("shop")) == "MemoryFleet('shop')"
