"""The policy of ``@circuit_breaker``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from ..typing import Duration, ExceptionSet
from .kind import BRIEF, SHORT, duration, exceptions, function, integer, kinds, number, text, unit
from .parameter import Contradiction, Policy
from .retry import Predicate
from .unit import ChronoUnit, Unit


@final
class CircuitBreaker(Policy, kw_only=True, is_observable=True):
    """Fail at once while the callee is failing often (specification, chapter Circuit Breaker).

    Args:
        fail_on: What counts as a failure.
        skip_on: What counts as a success, also where *fail_on* names it.
        delay: How long the circuit stays open before probes are let through, in *delay_unit*.
        delay_unit: What *delay* counts.
        request_volume_threshold: The length of the rolling window, in calls; nothing is decided before it is full.
        failure_ratio: The circuit opens when this part of the window failed; from 0 to 1.
        success_threshold: Probes that must succeed to close the circuit; never more are in flight at once.
        slow: A success that took at least this long, in milliseconds, counts as a failure of the circuit, and as
            nothing else; 0: however long it took.
        window: How long a result counts, in milliseconds: the circuit is assessed whenever the window holds at least
            *request_volume_threshold* results, which may be any number of them; 0: the last
            *request_volume_threshold* results count, however old they are.
        max_delay: Where it is more than *delay*, in milliseconds: each time a probe opens the circuit again, it stays
            open twice as long, up to this, and varied by a tenth; closing it sets that back. 0: always *delay*.
    """

    _kinds = kinds(
        fail_on=exceptions(),
        skip_on=exceptions(),
        delay=duration(unit="delay_unit", plausible=BRIEF),
        delay_unit=unit(),
        request_volume_threshold=integer(1),
        failure_ratio=number(0.0, 1.0),
        success_threshold=integer(1),
        slow=duration(note=" (0: off)", plausible=SHORT),
        window=duration(note=" (0: off)", plausible=BRIEF),
        max_delay=duration(note=" (0: off)", plausible=BRIEF),
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


@final
class CircuitBreakerName(Policy, is_configurable=False):
    """A name by which ``circuit_breakers`` finds the breaker of a method: no configuration changes it.

    Args:
        value: Not empty; one living breaker per name.
    """

    _kinds = kinds(
        value=text("a name", bool),
    )

    value: str


@final
class FailWhen(Policy, kw_only=True):
    """Let predicates decide what is a failure of the circuit, or of the throttle in its place, and nothing else.

    Args:
        exception: Given an exception that ``skip_on`` does not name; true means that it is a failure, beside those that
            ``fail_on`` names. Where that is ``Exception``, as by default, the predicate alone decides. Like *result* it
            may be a coroutine function where the guarded function is asynchronous.
        result: Given what the function returned; true means that it is a failure. The caller gets it all the same.
    """

    _kinds = kinds(
        exception=function("a predicate or None"),
        result=function("a predicate or None"),
    )

    exception: Predicate[BaseException] | None = None
    result: Predicate[Any] | None = None

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> Iterable[Contradiction]:
        """Refuse to have no predicate."""
        if values["exception"] is None and values["result"] is None:
            yield "exception", "is None, and so is result", "at least one predicate", ("result",)
