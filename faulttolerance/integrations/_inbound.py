"""The time that the caller of a service still waits, read from the headers of the request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from math import floor, log10
from typing import Any, Final

from .. import FaultToleranceDefinitionException, TimeoutException, remaining
from .._extensions.deadline.decorator import WholeCall
from ..policies import Deadline
from ..typing import Duration

HEADER: Final = "X-Request-Timeout-Ms"
_GRPC: Final = "grpc-timeout"
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SHORTEST: Final = 0.001
"""The shortest useful time, in seconds: nobody answers faster."""


def longest_in_seconds(where: str, longest: Duration | None) -> float | None:
    """Convert *longest* to seconds; ``None`` and 0: no limit.

    Raises:
        FaultToleranceDefinitionException: It is no duration; *where* names its owner.
    """
    if longest is None:
        return None
    try:
        value = Deadline(longest).value
    except FaultToleranceDefinitionException as error:
        raise FaultToleranceDefinitionException(error.faults[0]._replace(where=where, source="")) from None
    milliseconds = value / timedelta(milliseconds=1) if isinstance(value, timedelta) else float(value)
    return milliseconds / 1000 or None


def time_left(header: Callable[[str], str | None], longest: float | None) -> float | None:
    """Return the seconds that a request may take, 0.0 where it is too late; ``None`` where nothing limits them.

    A header comes from outside: an unreadable header is ignored, *longest* limits its value, and three digits of the
    value are kept, rounded down, so that callers cannot make the loop keep a queue for each of a million lengths.

    Args:
        header: Returns a header of the request by its name, or ``None``.
        longest: How long the service works for a request at most, in seconds; ``None``: no limit.
    """
    text = header(_GRPC) or ""
    left = _seconds(text[:-1], _UNITS.get(text[-1:]))
    if left is None:
        left = _seconds(header(HEADER) or "", 0.001)
    if left is None or (longest is not None and left >= longest):
        return longest
    return rounded_down(left)


def rounded_down(left: float) -> float:
    """Round *left* down to three digits; 0.0 where that is less than any work takes."""
    if left < _SHORTEST:
        return 0.0
    step: float = 10.0 ** (floor(log10(left)) - 2)
    return floor(left / step + 1e-6) * step


def _seconds(digits: str, unit: float | None) -> float | None:
    """Convert a count of units to seconds; ``None`` where it is none."""
    if unit is None or not (digits.isascii() and digits.isdecimal() and len(digits) <= 8):
        return None
    return int(digits) * unit


def deadline_block(left: float | None, name: str = "this request") -> Any:
    """Return a block for the answer to a request, with a deadline in *left* seconds; ``None``: any time.

    For ``with``, and in coroutines for ``async with``, where a frame of the library opens a block for its caller.

    Raises:
        TimeoutException: No time is left.
    """
    if left == 0.0:
        raise TimeoutException("no time is left for this request")
    return nullcontext() if left is None else WholeCall(Deadline, {"value": timedelta(seconds=left)}, name)


def late_failure(failure: Exception) -> TimeoutException | None:
    """Return the time-out that *failure* amounts to, outside of all guards of a request: ``None`` if it is in time.

    A client on a thread ends by itself at the deadline, and raises an exception of its own.
    """
    if remaining() != 0.0:
        return None
    late = TimeoutException("the deadline of this request passed")
    late.__cause__ = failure
    return late
