"""One circuit for every function that calls one service: a guard as a value."""

from __future__ import annotations

from faulttolerance import CircuitBreakerOpenException, Guard
from faulttolerance.policies import CircuitBreaker

ledger = Guard(name="ledger", circuit_breaker=CircuitBreaker(request_volume_threshold=4, fail_on=ConnectionError))


@ledger
def balance(account: str) -> int:
    raise ConnectionError(f"no answer for {account}")


@ledger
def transfer(source: str, target: str, amount: int) -> str:
    return f"{amount} from {source} to {target}"


for account in ("ada", "ben", "cleo", "dora"):
    try:
        balance(account)
    except ConnectionError as error:
        print(error)
try:
    transfer("ada", "ben", 10)
except CircuitBreakerOpenException as refusal:
    print(refusal)
else:
    raise SystemExit("the circuit should be open")
