"""A client that never raises: a status decides what is a failure of the circuit, and callers get each answer."""

from __future__ import annotations

from typing import NamedTuple

from faulttolerance import CircuitBreakerOpenException, Guard
from faulttolerance.policies import CircuitBreaker, FailWhen


class Answer(NamedTuple):
    status: int


answers = iter([404, 404, 404, 503, 503, 503, 503, 200])


def fetch() -> Answer:
    return Answer(next(answers))


client = Guard(
    circuit_breaker=CircuitBreaker(fail_on=OSError, request_volume_threshold=4, failure_ratio=1.0),
    fail_when=FailWhen(result=lambda answer: answer.status >= 500),
)

seen = []
for _ in range(8):
    try:
        seen.append(client.call(fetch).status)
    except CircuitBreakerOpenException as refusal:
        print(refusal)
        break
print(seen)
assert seen == [404, 404, 404, 503, 503, 503, 503]
