"""MicroProfile Fault Tolerance 4.1 for Python: policies around calls, declared by decorators.

>>> from faulttolerance import retry, timeout
>>> @retry(max_retries=2, retry_on=OSError)
... @timeout("500ms")
... def fetch() -> str:
...     return "fetched"
>>> fetch()
'fetched'
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import exceptions as exceptions, policies as policies
from ._cause import caused_by
from ._policy import ChronoUnit
from .exceptions import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    FaultToleranceException,
    RateLimitException,
    RefusedException,
    TimeoutException,
)
from .policies import (
    adaptive_throttle,
    asynchronous,
    asynchronous_non_blocking,
    before_retry,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    coalesce,
    custom_backoff,
    deadline,
    exponential_backoff,
    fail_when,
    fallback,
    fibonacci_backoff,
    fleet_wide,
    hedge,
    honor_retry_after,
    partition_by,
    rate_limit,
    retry,
    retry_budget,
    retry_when,
    timeout,
)
from .typing import ExecutionContext, FallbackHandler

if sys.implementation.name != "cpython":
    raise RuntimeError(f"faulttolerance needs CPython; this interpreter is {sys.implementation.name}")
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise RuntimeError(
        "faulttolerance needs the GIL, which this interpreter has disabled; set PYTHON_GIL=1 to enable it"
    )

if TYPE_CHECKING:
    from ._control.configure import configure, guards, reload, unguarded, validate, veto_retries
    from ._deadline.interruption import remaining, sleep
    from ._deadline.on_deadline import on_deadline
    from ._deadline.threads.async_exception import Interrupted
    from ._deadline.uninterruptible import uninterruptible
    from ._event import degradations
    from ._execution.criticality import criticality
    from ._execution.future import Future, completed_future
    from ._execution.thread import shutdown
    from ._extensions.fleet.server.redis import RedisFleet
    from ._extensions.last_good.policy import last_good
    from ._guard.decorate.interceptor import around_invoke
    from ._guard.resolve.circuit_breakers import circuit_breakers
    from ._guard.resolve.fingerprint import fingerprint
    from ._guard_value.guard import Guard, apply_guard
    from ._inspection.explanation import explain
    from ._inspection.health import health
    from ._recommended import recommended

    __version__: str

__all__ = [
    "BulkheadException",
    "ChronoUnit",
    "CircuitBreakerOpenException",
    "ExecutionContext",
    "FallbackHandler",
    "FaultToleranceDefinitionException",
    "FaultToleranceException",
    "Future",
    "Guard",
    "Interrupted",
    "RateLimitException",
    "RedisFleet",
    "RefusedException",
    "TimeoutException",
    "adaptive_throttle",
    "apply_guard",
    "around_invoke",
    "asynchronous",
    "asynchronous_non_blocking",
    "before_retry",
    "bulkhead",
    "caused_by",
    "circuit_breaker",
    "circuit_breaker_name",
    "circuit_breakers",
    "coalesce",
    "completed_future",
    "configure",
    "criticality",
    "custom_backoff",
    "deadline",
    "degradations",
    "explain",
    "exponential_backoff",
    "fail_when",
    "fallback",
    "fibonacci_backoff",
    "fingerprint",
    "fleet_wide",
    "guards",
    "health",
    "hedge",
    "honor_retry_after",
    "last_good",
    "on_deadline",
    "partition_by",
    "rate_limit",
    "recommended",
    "reload",
    "remaining",
    "retry",
    "retry_budget",
    "retry_when",
    "shutdown",
    "sleep",
    "timeout",
    "unguarded",
    "uninterruptible",
    "validate",
    "veto_retries",
]

_LATER = {
    "._event": ("Degradation", "degradations"),
    "._extensions.fleet.server.redis": ("RedisFleet",),
    "._extensions.last_good.policy": ("last_good",),
    "._control.configure": ("configure", "guards", "reload", "unguarded", "validate", "veto_retries"),
    "._inspection.explanation": ("explain",),
    "._guard_value.guard": ("Guard", "apply_guard"),
    "._guard.resolve.fingerprint": ("fingerprint",),
    "._inspection.health": ("health",),
    "._recommended": ("recommended",),
    "._guard.decorate.interceptor": ("around_invoke",),
    "._guard.resolve.circuit_breakers": ("circuit_breakers",),
    "._execution.criticality": ("criticality",),
    "._execution.future": ("Future", "completed_future"),
    "._deadline.threads.async_exception": ("Interrupted",),
    "._deadline.interruption": ("remaining", "sleep"),
    "._deadline.uninterruptible": ("uninterruptible",),
    "._execution.thread": ("shutdown",),
    "._deadline.on_deadline": ("on_deadline",),
}
"""Names that are imported at their first use: declarations need none of them, and some import much."""
_MODULES = (policies, exceptions)
"""What an import of the package executes, also one that is lazy; they have the names that were public here before."""
_HOMES = {name: home for home, names in _LATER.items() for name in names}


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                return version(__name__)
            except PackageNotFoundError as error:  # a copy of the package within an application's own files
                raise AttributeError(f"module {__name__!r} is not installed, and has no version") from error
        if name in _HOMES:
            from importlib import import_module

            value = getattr(import_module(_HOMES[name], __name__), name)
            if name in __all__:
                globals()[name] = value
            return value
        for module in _MODULES:
            if name in module.__all__:
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
