"""Calls around a half-open circuit of the fleet into which a signal's handler raises: no place is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import circuit_breaker, configure, fleet_wide, testing
from faulttolerance._extensions.fleet.layer import FleetState
from faulttolerance._extensions.fleet.policy import FleetWide
from faulttolerance._extensions.fleet.protocol import PollRequest, ProbeRequest
from faulttolerance._guard.declare import registry
from faulttolerance.testing import MemoryFleet, VirtualClock, virtual_time
from kit.struck import Struck, sampled, strikes

OURS = ("fleet/circuit.py", "circuit_breaker.py", "attempt.py", "_call/settle.py", "fleet/server_link.py")


class Down(Exception):
    pass


def replica() -> Callable[[str], str]:
    """Return a function as one process has it."""

    @fleet_wide
    @circuit_breaker(request_volume_threshold=2, delay=60_000, fail_on=Down)
    def pay(how: str) -> str:
        if how == "fails":
            raise Down
        return how

    return pay


def outcome(call: Callable[[str], str], how: str = "works") -> str:
    try:
        return call(how)
    except Exception as error:
        return type(error).__name__


def members() -> list[FleetState]:
    """Return the states of the fleet that the replicas keep."""
    found = [state.strategies.get(FleetWide) for state in registry.every_state()]
    return [one for one in found if one is not None]


def half_open(clock: VirtualClock, fleet: MemoryFleet, one: Any, other: Any) -> None:
    """Open the circuit, and advance the clock beyond its delay."""
    for each in (one, other):
        outcome(each)
    fleet.open(f"{replica.__module__}.replica.<locals>.pay", "5s")
    clock.advance(5.1)


def is_free(fleet: MemoryFleet) -> bool:
    """Return whether a stranger gets the place of a probe, or there is none to get."""
    session = fleet.connect()
    (polled,) = session.exchange([PollRequest("", 1)])
    ((key, record),) = polled.circuits.items()  # type: ignore[union-attr]
    if record.state == "closed" or record.wait:
        return True
    wish = ProbeRequest(key, record.version, "stranger", 1, 1_000_000)
    answer, _ = session.exchange([wish, wish._replace(step="end")])
    return answer.is_granted  # type: ignore[union-attr, return-value]


@pytest.mark.parametrize("has_place", [False, True])
@pytest.mark.parametrize("how", ["works", "fails"])
@sampled(37)
def test_the_circuit_closes_again_wherever_a_call_was_struck(how: str, has_place: bool, step: int) -> None:
    """By rules F4 and R0, trap 28: struck is a refused call that asks, or a probe that succeeds or fails.

    A second later no process keeps a place, unless the circuit is closed or has opened again for a minute.
    """
    for strike in strikes(*OURS, step=step):
        testing.reset()
        with virtual_time() as clock:
            fleet = MemoryFleet()
            configure(fleet=fleet)
            one, other = replica(), replica()
            half_open(clock, fleet, one, other)
            if has_place:
                outcome(one)
            try:
                with strike:
                    outcome(one, how)
            except Struck:
                pass
            clock.advance(1.1)
            assert is_free(fleet), strike.where
            told: list[str] = []
            for _ in range(2):
                clock.advance(60.1)
                told = [outcome(call) for call in (other, other, one, one)]
            assert told == ["works"] * 4, strike.where
            assert [member.is_idle(clock.monotonic()) for member in members()] == [True, True], strike.where
            configure(fleet=None)
