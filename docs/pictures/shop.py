"""A made-up shop in the middle of an outage, always the same one: what the pictures of the status page show."""

from __future__ import annotations

from contextlib import suppress

from faulttolerance import (
    adaptive_throttle,
    bulkhead,
    circuit_breaker,
    circuit_breakers,
    configure,
    fallback,
    partition_by,
    rate_limit,
    retry,
    retry_budget,
    timeout,
)
from faulttolerance.testing import VirtualClock


class Payments:
    """The provider is down."""

    is_down = False

    @retry(max_retries=2, delay="50ms", jitter=0, retry_on=ConnectionError)
    @retry_budget
    @circuit_breaker(request_volume_threshold=20, delay="30s", fail_on=(ConnectionError, TimeoutError))
    @timeout("800ms")
    def charge(self, order: int) -> str:
        if self.is_down:
            raise ConnectionError("payments: connection refused")
        return f"charged {order}"

    @circuit_breaker(request_volume_threshold=10, delay="30s", fail_on=ConnectionError)
    @timeout("2s")
    def refund(self, order: int) -> str:
        return f"refunded {order}"


class Catalogue:
    """Well, and much asked."""

    @retry(max_retries=2, delay="20ms", jitter=0, retry_on=OSError)
    @timeout("400ms")
    @bulkhead(20)
    def product(self, number: int, fails: bool = False) -> str:
        if fails:
            raise OSError
        return f"product {number}"

    @rate_limit(200, window="1s")
    @timeout("300ms")
    def search(self, words: str) -> list[str]:
        return [words]


class Recommendations:
    """Turned down, and nobody notices."""

    is_down = False

    @fallback(lambda customer: ["bestsellers"])
    @adaptive_throttle
    @timeout("150ms")
    def for_customer(self, customer: int) -> list[str]:
        if self.is_down or customer % 9 == 0:
            raise ConnectionError
        return ["a book"]


class Carriers:
    """One circuit for each host."""

    @partition_by("host")
    @circuit_breaker(request_volume_threshold=4, delay="10s", fail_on=ConnectionError)
    @timeout("1s")
    def quote(self, host: str) -> int:
        return len(host)


class Mail:
    """Never called yet."""

    @retry(max_retries=5, delay="1s", retry_on=ConnectionError)
    @bulkhead(2)
    def confirm(self, order: int) -> None: ...


def open_for_business(clock: VirtualClock) -> None:
    """Let the day go by until payments fail."""
    configure(
        properties={
            "shop.Payments/charge/Timeout/value": "750ms",
            "shop.Catalogue/search/RateLimit/enabled": "false",
            "shop.Carriers/quote/CircuitBreaker/mode": "observe",
        }
    )
    payments, catalogue, recommendations, carriers = Payments(), Catalogue(), Recommendations(), Carriers()
    for number in range(1284):
        payments.charge(number)
        if number % 3:
            catalogue.search("lamp")
            catalogue.product(number)
        if number % 61 == 0:
            payments.refund(number)
        with suppress(OSError):
            catalogue.product(number, fails=number % 97 == 0)
        recommendations.for_customer(number)
        carriers.quote(f"carrier{number % 7}.example")
        clock.advance(0.05)
    circuit_breakers.force_open("shop.Payments.refund")
    payments.is_down = recommendations.is_down = True
    for number in range(40):
        with suppress(Exception):
            payments.charge(number)
        recommendations.for_customer(number)
        clock.advance(0.2)
