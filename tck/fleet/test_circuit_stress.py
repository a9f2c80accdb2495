"""Circuits of a fleet under threads and cancelled tasks, which open, probe and close again and again: no place is lost.

Would have caught: a place that a cancelled probe keeps, two probes at once, a circuit that stays half-open.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from faulttolerance import CircuitBreakerOpenException, circuit_breaker, circuit_breakers, configure, fleet_wide
from faulttolerance._extensions.fleet.policy import FleetWide
from faulttolerance._extensions.fleet.protocol import ProbeRequest
from faulttolerance._extensions.fleet.server.circuits import Circuit
from faulttolerance._guard.declare import registry
from kit.fleet import DistantFleet
from kit.waiting import wait_until

pytestmark = [pytest.mark.stress, pytest.mark.timeout(120)]

THREADS, CALLS, TASKS, REPLICAS = 64, 60, 10_000, 3
PROBES = 10
"""More probes have to begin, or nothing was tried."""


class Down(Exception):
    pass


def left(name: str) -> list[Any]:
    """Return the circuits of replicas that still hold a place in the fleet."""
    members = [state.strategies.get(FleetWide) for state in registry.every_state() if state.name == name]
    circuits = [member._circuit() for member in members if member is not None]
    return [circuit for circuit in circuits if circuit is not None and circuit._probes]


def places(fleet: DistantFleet, name: str) -> dict[str, Any]:
    """Return the places that the server has lent, by their holders."""
    circuit: Circuit | None = fleet.memory._circuits.get(name)
    return (
        {}
        if circuit is None
        else {holder: until for holder, until in circuit.places.items() if until > fleet.now() * 1e6 + 1e6}
    )


def probes(fleet: DistantFleet) -> int:
    """Return how many probes have begun."""
    return sum(isinstance(question, ProbeRequest) and question.step == "start" for question in [*fleet.asked])


@pytest.fixture
def fleet() -> Any:
    fleet = DistantFleet(poll=0.01, patience=5.0)
    configure(fleet=fleet)
    yield fleet
    configure(fleet=None)


def test_threads_of_several_replicas_leave_no_place_behind(fleet: DistantFleet) -> None:
    """By rule F4: the calls of 64 threads open and close the circuit; in the end it closes, and no place is held."""

    def replica() -> Callable[[random.Random], str]:
        @fleet_wide
        @circuit_breaker(request_volume_threshold=4, failure_ratio=0.5, delay=5, fail_on=Down)
        def pay(chance: random.Random) -> str:
            if chance.random() < 0.4:
                raise Down
            if chance.random() < 0.1:
                raise KeyboardInterrupt
            return "paid"

        return pay

    replicas = [replica() for _ in range(REPLICAS)]
    name = f"{__name__}.{replica.__qualname__}.<locals>.pay"
    outcomes: Counter[str] = Counter()

    def run(seed: int) -> None:
        chance = random.Random(seed)
        for number in range(20 * CALLS):
            if number >= CALLS and not number % 20 and probes(fleet) > PROBES:
                break  # a quick machine makes all calls in the time of a few probes
            try:
                outcomes[replicas[seed % REPLICAS](chance)] += 1
            except BaseException as error:
                outcomes[type(error).__name__] += 1
            time.sleep(chance.random() * 0.002)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes["CircuitBreakerOpenException"] > 0
    assert set(outcomes) == {"paid", "Down", "KeyboardInterrupt", "CircuitBreakerOpenException"}
    assert left(name) == []
    wait_until(lambda: not places(fleet, name))
    closes_again(fleet, name, replicas)


def test_tasks_that_are_cancelled_leave_no_place_behind(fleet: DistantFleet) -> None:
    """By rule F4, trap 28: 10,000 calls are cancelled anywhere; in the end the circuit closes, and no place is held."""

    def replica() -> Callable[[random.Random], Any]:
        @fleet_wide
        @circuit_breaker(request_volume_threshold=4, failure_ratio=0.5, delay=5, success_threshold=2, fail_on=Down)
        async def pay(chance: random.Random) -> str:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                raise Down
            return "paid"

        return pay

    replicas = [replica() for _ in range(REPLICAS)]
    name = f"{__name__}.{replica.__qualname__}.<locals>.pay"
    outcomes: Counter[str] = Counter()

    async def one(seed: int) -> None:
        chance = random.Random(seed)
        call = asyncio.ensure_future(replicas[seed % REPLICAS](chance))
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            call.cancel()
        try:
            outcomes[await call] += 1
        except BaseException as error:
            outcomes[type(error).__name__] += 1

    async def main() -> None:
        for batch in range(20 * TASKS // 50):
            if 50 * batch >= TASKS and probes(fleet) > PROBES:
                break
            await asyncio.gather(*(one(50 * batch + number) for number in range(50)))
            await asyncio.sleep(0.002)

    asyncio.run(main())

    assert sum(outcomes.values()) >= TASKS
    assert set(outcomes) == {"paid", "Down", "CancelledError", "CircuitBreakerOpenException"}
    assert left(name) == []
    wait_until(lambda: not places(fleet, name))
    closes_again(fleet, name, [lambda _, each=each: asyncio.run(each(Fine())) for each in replicas])  # type: ignore[misc]


class Fine(random.Random):
    """A chance with which every call succeeds."""

    def random(self) -> float:
        return 0.99

    def randrange(self, *_: Any) -> int:  # type: ignore[override]
        return 0


def closes_again(fleet: DistantFleet, name: str, replicas: list[Callable[[random.Random], Any]]) -> None:
    """Call until the circuit is closed in every replica."""

    def is_closed() -> bool:
        for call in replicas:
            try:
                call(Fine())
            except CircuitBreakerOpenException:
                pass
        states = [state.circuit_breaker for state in registry.every_state() if state.name == name]
        return all(breaker is not None and breaker.state.is_closed for breaker in states)

    wait_until(is_closed)
    assert circuit_breakers.state(name) == "closed"
    assert places(fleet, name) == {}
    assert probes(fleet) > PROBES
