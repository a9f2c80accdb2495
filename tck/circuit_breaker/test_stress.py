"""Circuits with windows of time, growing delays, predicates and operators, under threads and cancelled tasks."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

from faulttolerance import CircuitBreakerOpenException, Guard, circuit_breakers, last_good
from faulttolerance._guard.declare import registry
from faulttolerance._strategy.circuit_breaker import HalfOpen
from faulttolerance.policies import CircuitBreaker, FailWhen, Fallback

POLICY = CircuitBreaker(
    request_volume_threshold=5, window=50, delay=1, max_delay=4, slow=2, success_threshold=3, failure_ratio=0.4
)


async def is_bad(result: Any) -> bool:
    """Wait, so that calls are cancelled while they are judged."""
    await asyncio.sleep(0)
    return bool(result == "bad")


def steer(name: str, chance: random.Random) -> None:
    """Run an operation that an operator may run at any moment."""
    operation = chance.choice(["force_open", "force_closed", "reset", "snapshot", "reset", "reset"])
    getattr(circuit_breakers, operation)(name)


def held(guard: Guard) -> int:
    """Count the probes under way."""
    (breaker,) = [state.circuit_breaker for state in registry.every_state() if state.name == guard.name]
    assert breaker is not None
    return len(breaker.state.probes) if isinstance(breaker.state, HalfOpen) else 0


def test_threads_and_operators_leave_a_circuit_whole() -> None:
    """64 threads: the numbers of a snapshot add up at every moment, and the circuit works afterwards (rules C5, C7)."""
    guard = Guard(circuit_breaker=POLICY, fail_when=FailWhen(result=lambda result: result == "bad"), name="threads")
    wrong: list[object] = []

    def call_often(seed: int) -> None:
        chance = random.Random(seed)
        for step in range(150):
            try:
                guard.call(lambda: "bad" if chance.random() < 0.3 else 1 / chance.randrange(3))
                if not step % 50:
                    steer("threads", chance)
                seen = circuit_breakers.snapshot("threads")
                if not 0 <= seen.failures <= seen.results or (seen.half_open_at is not None) != (
                    seen.state == "open" and not seen.forced
                ):
                    wrong.append(seen)
            except (CircuitBreakerOpenException, ZeroDivisionError):
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=call_often, args=(seed,)) for seed in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert held(guard) == 0
    circuit_breakers.reset("threads")
    assert guard.call(int) == 0
    guard.close()


def test_cancelled_tasks_give_the_places_of_their_probes_back() -> None:
    """Many of 10,000 tasks are cancelled anywhere, also while they are judged (rules R4, C6, Y1)."""
    guard = Guard(
        circuit_breaker=POLICY,
        fail_when=FailWhen(result=is_bad),
        fallback=Fallback(last_good(10_000, key="number"), lambda context: "makeshift"),
        name="tasks",
    )
    chance = random.Random(3)

    @guard
    async def service(number: int, roll: float) -> str:
        await asyncio.sleep(0)
        if roll < 0.3:
            raise ConnectionError
        return "bad" if roll < 0.4 else f"served {number}"

    async def main() -> list[Any]:
        outcomes: list[Any] = []
        for _ in range(100):
            tasks = [asyncio.ensure_future(service(number, chance.random())) for number in range(100)]
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            for task in tasks:
                if chance.random() < 0.3:
                    task.cancel()
            outcomes += await asyncio.gather(*tasks, return_exceptions=True)
        return outcomes

    outcomes = asyncio.run(main())

    unexpected = [one for one in outcomes if not isinstance(one, (str, asyncio.CancelledError))]
    assert unexpected == []
    assert held(guard) == 0
    guard.close()
