"""An outage in an environment that has one framework and nothing else; see the session ``alone`` of ``noxfile.py``."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.metadata import version
from typing import Any

from faulttolerance import CircuitBreakerOpenException, Guard, circuit_breakers
from faulttolerance.policies import CircuitBreaker, Retry

POLICIES: dict[str, Any] = {
    "circuit_breaker": CircuitBreaker(request_volume_threshold=2, failure_ratio=1.0),
    "retry": Retry(max_retries=1, delay=0, jitter=0, abort_on=CircuitBreakerOpenException),
}
"""Two failures open the circuit, and end a call."""
EXPECTED = ("circuit breaker opened: ", "gave up after attempt 2 ")


def guard(name: str) -> Guard:
    """Return a guard whose circuit opens in the first call that fails."""
    return Guard(name=name, **POLICIES)


def down() -> None:
    """Fail as a backend that is gone."""
    raise ConnectionError("gone")


def shown(framework: str, well: Callable[[], object], badly: Callable[[], object], after: object = None) -> None:
    """Require that one call succeeds and another one fails, and that standard error shows the outage once.

    Args:
        framework: The package that is here beside the library.
        well: A guarded call that succeeds.
        badly: A guarded call that fails twice, and raises nothing.
        after: What a further call answers while the circuit is open, if anything.
    """
    with redirect_stderr(io.StringIO()) as said:
        assert well() is not None
        badly()
        refused = badly() if after is not None else None
    lines = said.getvalue().splitlines()
    assert refused == after, f"{refused!r} while the circuit is open"
    for words in EXPECTED:
        assert sum(words in line for line in lines) == 1, f"{words!r} is not once in {lines}"
    assert circuit_breakers.names(), "no circuit"
    print(
        f"{framework} {version(framework)} alone, Python {sys.version.split()[0]}: one succeeds, one fails, {lines[0]}"
    )
