"""The policy of ``@circuit_breaker``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from ..typing import Duration, ExceptionSet
from .kind import BRIEF, SHORT, duration, kinds, number, text
from .parameter import Contradiction, Policy
from .retry import Predicate
from .unit import ChronoUnit, Unit


@final
class CircuitBreaker(Policy, kw_only=True, is_observable=True):
    """Fail at once while the callee fails often (specification, chapter Circuit Breaker).

    Args:
        fail_on: Exceptions that count as failures.
        skip_on: Exceptions that count as successes, even if *fail_on* names them.
        delay: The time for which the circuit stays open before it admits probes, in *delay_unit*.
        delay_unit: The unit of *delay*.
        request_volume_threshold: The length of the rolling window, in calls; the circuit decides only when it is full.
        failure_ratio: The share of failures in the window that opens the circuit; from 0 to 1.
        success_threshold: The number of probes that must succeed to close the circuit; it is also the maximum number of
            probes in flight.
        slow: The duration from which a success counts as a failure of the circuit, and for nothing else, in
            milliseconds; 0 for no limit.
        window: The time for which a result counts, in milliseconds. The circuit is assessed whenever the window holds
            at least *request_volume_threshold* results, without a maximum. With 0, the last *request_volume_threshold*
            results count, of any age.
        max_delay: The maximum of a growing delay, in milliseconds, if it is more than *delay*: each time a probe opens
            the circuit again, the delay doubles up to this value, and varies by a tenth; when the circuit closes, the
            delay is reset. With 0, the delay is always *delay*.
        name: A name under which ``circuit_breakers`` finds the circuit; each living circuit breaker has its own.
            Configuration cannot change it.
    """

    _kinds = kinds(
        delay=duration(unit="delay_unit", plausible=BRIEF),
        failure_ratio=number(0.0, 1.0),
        slow=duration(note=" (0: off)", plausible=SHORT),
        window=duration(note=" (0: off)", plausible=BRIEF),
        max_delay=duration(note=" (0: off)", plausible=BRIEF),
        name=text("a name, or none", lambda name: True, is_configurable=False),
    )

    fail_on: ExceptionSet = Exception
    skip_on: ExceptionSet = ()
    delay: Duration = 5000
    delay_unit: Unit = ChronoUnit.MILLIS
    request_volume_threshold: int = 20
    failure_ratio: float = 0.5
    success_threshold: int = 1
    slow: Duration = 0
    window: Duration = 0
    max_delay: Duration = 0
    name: str = ""


@final
class CircuitBreakerName(Policy, is_configurable=False):
    """The name of the circuit breaker, as the parameter ``name`` of ``CircuitBreaker``; SmallRye's annotation.

    Args:
        value: The name, not empty; each living circuit breaker has its own.
    """

    _kinds = kinds(
        value=text("a name", bool),
    )

    value: str


@final
class FailWhen(Policy, kw_only=True):
    """Define by predicates the failures of the circuit, or of the throttle in its place, and nothing else.

    Args:
        exception: Called with an exception that ``skip_on`` does not name; true if it is a failure, in addition to
            those that ``fail_on`` names. If ``fail_on`` is ``Exception``, as by default, only the predicate decides.
            Like *result* it may be a coroutine function if the guarded function is asynchronous.
        result: Called with the function's result; true if it is a failure. The caller still receives the result.
    """

    exception: Predicate[BaseException] | None = None
    result: Predicate[Any] | None = None

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Reject a policy without a predicate."""
        if values["exception"] is None and values["result"] is None:
            yield "exception", "is None, and so is result", "at least one predicate", ("result",)
