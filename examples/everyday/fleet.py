"""A circuit that another replica opened, and a server that goes away: how a service does, without either."""

from __future__ import annotations

from faulttolerance import (
    CircuitBreakerOpenException,
    RateLimitException,
    circuit_breaker,
    configure,
    fleet_wide,
    health,
    rate_limit,
)
from faulttolerance.testing import MemoryFleet, virtual_time

asked: list[str] = []


class Prices:
    @fleet_wide
    @rate_limit(10)
    @circuit_breaker(fail_on=OSError, skip_on=RateLimitException, delay="5s")
    def get(self, product: str) -> str:
        asked.append(product)
        return f"{product}: 9.50"


def limited(calls: int) -> int:
    """Call so many times at once; give how many were over the limit."""
    refused = 0
    for _ in range(calls):
        try:
            prices.get("tea")
        except RateLimitException:
            refused += 1
    return refused


prices, fleet = Prices(), MemoryFleet()
with virtual_time() as clock:
    configure(fleet=fleet)  # in a service: RedisFleet("redis://redis.internal", namespace="shop-production")

    fleet.open(f"{__name__}.Prices.get", delay=5000)  # another replica saw the backend fail
    try:
        prices.get("tea")
    except CircuitBreakerOpenException as refusal:
        print("nothing failed here, and yet:", refusal)
    assert asked == []

    clock.advance(5.0)
    for _ in range(2):  # the first asks for the place of a probe, unless it has it at once
        try:
            print("the probe:", prices.get("tea"))
        except CircuitBreakerOpenException:
            continue
        break
    assert asked == ["tea"]

    clock.advance(1.0)
    assert limited(15) == 5

    clock.advance(1.0)
    fleet.lose("the machine is gone")
    print(health().reasons[0])
    assert limited(15) == 5  # alone: the limit of this process

    clock.advance(1.0)
    fleet.regain()
    assert health().status == "up"
    print(f"{len(asked)} requests were sent; none was lost with the server")
