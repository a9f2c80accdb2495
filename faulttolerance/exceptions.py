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

All exceptions can be pickled. Creating one runs no Python code: refusals are frequent and must be cheap.
"""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Iterable
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

    The class itself is raised if ``retry_when`` accepted no result; ``result`` is then the last result.
    """

    result: Any = None
    """The last result, if ``retry_when`` accepted none."""
    _words = "result refused"  # the words of a note in place of the class name, for this class alone


# Since Python 3.14 RuntimeError inherits it: without its own, ours would run those of OSError and of a client's errors.
FaultToleranceException.__init__ = RuntimeError.__init__  # type: ignore[method-assign]


class TimeoutException(FaultToleranceException, TimeoutError):
    """A guarded call took longer than its time-out allows (specification, chapter Timeout).

    It is a built-in ``TimeoutError`` and therefore an ``OSError``: a ``retry_on`` or ``skip_on`` that names ``OSError``
    matches it.
    """

    _words = "timed out"


# By its name, that of RuntimeError would be found, which refuses to create an OSError.
TimeoutException.__new__ = TimeoutError.__new__  # type: ignore[method-assign]


class RefusedException(FaultToleranceException):
    """A policy refused a call, which therefore never started: the base class of the refusals."""

    @property
    def retry_after(self) -> float | None:
        """The seconds until a call may be admitted again; ``None`` if unknown."""
        wait = self.args[1] if len(self.args) > 1 else None
        return float(wait) if isinstance(wait, (int, float)) and 0.0 < wait < inf else None

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
        """The reason why the call got no permit (rule Q5).

        ``"full"``: the maximum number of calls ran and waited when it came; ``"waited"``: it waited for the maximum
        time; ``"displaced"``: another call took its place in the queue.
        """
        return self.args[2] if len(self.args) > 2 else "full"


class ThrottleException(RefusedException):
    """The adaptive throttle refused the call, because the callee rejects many; the next admission is unpredictable."""

    _words = "throttled"


class Fault(NamedTuple):
    """One mistake in a declaration or in the configuration.

    Args:
        where: The guarded function and parameter, or the configuration key.
        problem: The mistake, as the end of a sentence that begins with *where*.
        got: The value that was found. In a pickle, a value that cannot be pickled is replaced by its text in messages.
        allowed: The allowed values.
        source: The origin of the value.
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
        # A wrong value may be an unhashable list, set or dictionary. Equal faults have equal texts, other faults
        # seldom.
        return hash((self.where, self.problem, self.allowed, self.source))

    def __reduce__(self) -> tuple[Any, ...]:
        where, problem, got, allowed, source = self
        return Fault, (where, problem, _portable(got), allowed, source)


def _portable(value: object) -> object:
    """Return *value* if another process can receive it, else its text: for example of a lambda or a local class."""
    import pickle

    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # noqa: BLE001  # the error that contains the value must arrive
        return shown(value)
    return value


class FaultToleranceDefinitionException(FaultToleranceException, ValueError):
    """A declaration or the configuration of a policy is wrong; contains every fault, not only the first.

    Raised when a function or class is decorated, when a class is created, or when configuration is resolved.
    """

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Everything that is wrong."""
        return tuple(fault for fault in self.args if isinstance(fault, Fault))

    @property
    def where(self) -> str:
        """The place of the first fault: the guarded function and parameter, or the configuration key."""
        return self.faults[0].where if self.faults else ""

    @property
    def got(self) -> object:
        """The value of the first fault."""
        return self.faults[0].got if self.faults else None

    @property
    def allowed(self) -> str:
        """The allowed values of the first fault."""
        return self.faults[0].allowed if self.faults else ""

    @property
    def source(self) -> str:
        """The origin of the first fault's value."""
        return self.faults[0].source if self.faults else ""

    def __str__(self) -> str:
        return "\n".join(str(part) for part in self.args)


def definition_error(
    where: str, problem: str, got: object = None, allowed: str = "", source: str = ""
) -> FaultToleranceDefinitionException:
    """Return the error with a single fault."""
    return FaultToleranceDefinitionException(Fault(where, problem, got, allowed, source))


def raise_faults(faults: Iterable[Fault]) -> None:
    """Raise an error with all *faults*, if there are any."""
    if found := tuple(faults):
        raise FaultToleranceDefinitionException(*found)


class MillisecondsWarning(UserWarning):
    """A duration is a bare number that looks like seconds: ``@timeout(5)`` is 5 milliseconds, by the specification.

    Text, ``timedelta``, and a number with an explicit unit cause no warning.
    """
