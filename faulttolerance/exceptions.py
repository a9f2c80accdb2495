"""The exceptions of the library.

    RuntimeError
      FaultToleranceException
        TimeoutException                    also a TimeoutError, and through it an OSError
        RefusedException                    .retry_after
          CircuitBreakerOpenException
          BulkheadException                 .reason
          RateLimitException
          ThrottleException
        FaultToleranceDefinitionException   also a ValueError; .faults, .where, .got, .allowed, .source

    UserWarning
      MillisecondsWarning

Everything here pickles, and is made without running Python code: refusals are frequent and must be cheap.
"""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from math import inf
from typing import Any, Literal, NamedTuple

from ._shown import escaped, shown

__all__ = [
    "BulkheadException",
    "CircuitBreakerOpenException",
    "Fault",
    "FaultToleranceDefinitionException",
    "FaultToleranceException",
    "MillisecondsWarning",
    "RateLimitException",
    "RefusedException",
    "ThrottleException",
    "TimeoutException",
]


class FaultToleranceException(RuntimeError):
    """The base of every exception of this library.

    Raised itself where ``retry_when`` accepted no result; ``result`` is the last one then.
    """

    result: Any = None
    """The last result, where none was accepted."""
    _words = "result refused"  # what a note says instead of the name of this very class, of no other one


class TimeoutException(FaultToleranceException, TimeoutError):
    """A guarded call took longer than its time-out allows (specification, chapter Timeout).

    It is a built-in ``TimeoutError`` and therefore an ``OSError``: a ``retry_on`` or ``skip_on`` that names ``OSError``
    matches it.
    """

    _words = "timed out"


class RefusedException(FaultToleranceException):
    """A policy did not let a call through, which therefore never began: the base of the refusals."""

    @property
    def retry_after(self) -> float | None:
        """Seconds until a call may be let through again; ``None`` where that is not known."""
        wait = float(self.args[1]) if len(self.args) > 1 else 0.0
        return wait if 0.0 < wait < inf else None

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        wait = self.retry_after
        return message if wait is None else f"{message}, next call in {wait:.1f} s"


class CircuitBreakerOpenException(RefusedException):
    """The circuit breaker is open, or half-open with all its probes under way (chapter Circuit Breaker)."""

    _words = "circuit open"


class RateLimitException(RefusedException):
    """More calls were made in the window than the rate limit allows."""

    _words = "rate limit exceeded"


class BulkheadException(RefusedException):
    """As many calls run (and wait) as the bulkhead allows (specification, chapter Bulkhead)."""

    _words = "bulkhead full"

    @property
    def reason(self) -> Literal["full", "waited", "displaced"]:
        """Why the call got no permit (rule Q5).

        ``"full"``: it came when as many ran and waited as may; ``"waited"``: it waited for as long as it may;
        ``"displaced"``: another call took its place in the queue.
        """
        return self.args[2] if len(self.args) > 2 else "full"


class ThrottleException(RefusedException):
    """The callee turns calls down, and the adaptive throttle spares it this one; when it lets one in, nobody knows."""

    _words = "throttled"


class Fault(NamedTuple):
    """One thing that is wrong in a declaration or in the configuration.

    Args:
        where: The guarded function and parameter, or the configuration key.
        problem: What is wrong, as the end of a sentence that begins with *where*.
        got: The value that was found. One that cannot be pickled arrives as the text that messages show for it.
        allowed: What would be right.
        source: Where the value came from.
    """

    where: str
    problem: str
    got: object = None
    allowed: str = ""
    source: str = ""

    def __str__(self) -> str:
        text = f"{self.where} {self.problem}"
        if self.allowed:
            text += f"; allowed: {self.allowed}"
        return escaped(f"{text} ({self.source})" if self.source else text)

    def __repr__(self) -> str:
        where, problem, got, allowed, source = self
        return f"Fault({where=}, {problem=}, got={shown(got)}, {allowed=}, {source=})"

    def __hash__(self) -> int:
        # A wrong value may be a list, a set or a dictionary. Equal faults have equal texts, and mostly different ones.
        return hash((self.where, self.problem, self.allowed, self.source))

    def __reduce__(self) -> tuple[Any, ...]:
        where, problem, got, allowed, source = self
        return Fault, (where, problem, _portable(got), allowed, source)


def _portable(value: object) -> object:
    """Give *value* if it can be sent to another process, else the text for it: a lambda, say, or a local class."""
    import pickle

    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # noqa: BLE001  # whatever it raises: the error that holds the value is what has to arrive
        return shown(value)
    return value


class FaultToleranceDefinitionException(FaultToleranceException, ValueError):
    """A policy is declared or configured wrongly. Carries every fault that was found, not only the first.

    Raised when a function or class is decorated, when a class is created, or when configuration is resolved.
    """

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Everything that is wrong."""
        return tuple(fault for fault in self.args if isinstance(fault, Fault))

    @property
    def where(self) -> str:
        """Where the first fault is: the guarded function and parameter, or the configuration key."""
        return self.faults[0].where if self.faults else ""

    @property
    def got(self) -> object:
        """The value of the first fault."""
        return self.faults[0].got if self.faults else None

    @property
    def allowed(self) -> str:
        """What the first fault's place would accept."""
        return self.faults[0].allowed if self.faults else ""

    @property
    def source(self) -> str:
        """Where the first fault's value came from."""
        return self.faults[0].source if self.faults else ""

    def __str__(self) -> str:
        return "\n".join(str(part) for part in self.args)


class MillisecondsWarning(UserWarning):
    """A duration is a bare number that looks like seconds: ``@timeout(5)`` is 5 milliseconds, by the specification.

    Text and ``timedelta`` are never warned of, and neither is a number beside which its unit is given.
    """
