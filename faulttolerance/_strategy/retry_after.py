"""The wait that a failure states: refusals by policies, HTTP's ``Retry-After``, gRPC's ``RetryInfo``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, timedelta
from functools import partial
from typing import Any, Final

from .._shown import shown
from ..exceptions import RefusedException
from .back_off import ApplicationFunction, ReportError, ignore_error

_SECONDS: Final = r"[0-9]+(?:\.[0-9]*)?"
_LONGEST_TEXT: Final = 100
"""No date of HTTP has more characters."""
_GRPC_STATUS: Final = "grpc-status-details-bin"
_GRPC_RETRY_INFO: Final = "google.rpc.retryinfo-bin"


class RetryAfter(ApplicationFunction):
    """A reader of the waits that failures state. An error meanwhile is reported, and counts as no statement.

    Args:
        max_delay: No wait is longer, in seconds; 0 for no limit.
        read: Called instead of ``parse_retry_after``; returns seconds, a ``timedelta`` or ``None``.
        wall_time: Returns the seconds since 1970, for dates.
        tell: Called with an error that occurred.
    """

    __slots__ = ("max_delay",)

    def __init__(
        self,
        max_delay: float,
        read: Callable[[BaseException], Any] | None,
        wall_time: Callable[[], float],
        tell: ReportError = ignore_error,
    ) -> None:
        what = "reading a failure for" if read is None else "`read` of"
        function = read or (lambda failure: parse_retry_after(failure, wall_time()))
        super().__init__(function, _seconds, partial(tell, f"{what} @honor_retry_after; the failure sets no delay"))
        self.max_delay = max_delay or math.inf


def parse_retry_after(failure: BaseException, now: float) -> float | None:
    """Return the seconds to wait that *failure* states at *now*, seconds since 1970; ``None`` where it states none.

    Headers are those of ``failure.response``, of the failure itself, or of a result that was refused.
    """
    if isinstance(failure, RefusedException):
        return failure.retry_after
    for carrier in (getattr(failure, "response", None), failure, getattr(failure, "result", None)):
        headers = getattr(carrier, "headers", None)
        if headers is not None and (text := _header(headers)) and (wait := _of_header(text, now)) is not None:
            return wait
    trailing = getattr(failure, "trailing_metadata", None)
    return _of_metadata(trailing() or ()) if callable(trailing) else None


def _seconds(answer: Any) -> float | None:
    if answer is None:
        return None
    if isinstance(answer, timedelta):
        return answer.total_seconds()
    if isinstance(answer, (int, float)) and not isinstance(answer, bool) and answer == answer:
        return float(answer) if abs(answer) < 1e300 else math.inf if answer > 0 else -math.inf
    raise TypeError(f"returned {shown(answer)}; allowed: seconds, a timedelta or None")


def _header(headers: Any) -> str:
    """Return the header's text, also from a mapping that distinguishes capital letters."""
    for name in ("Retry-After", "retry-after"):
        value = headers.get(name)
        if value is not None:
            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            return text.strip()
    return ""


def _of_header(text: str, now: float) -> float | None:
    if re.fullmatch(_SECONDS, text):
        return float(text)
    if len(text) > _LONGEST_TEXT:
        return None
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(text)
        return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


# gRPC: a google.rpc.Status in the trailing metadata, one of whose details is a google.rpc.RetryInfo


def _of_metadata(metadata: Any) -> float | None:
    entries: Mapping[str, Any] = {entry[0]: entry[1] for entry in metadata}
    try:
        info = entries.get(_GRPC_RETRY_INFO)
        for number, detail in _fields(entries.get(_GRPC_STATUS) or b""):
            if number == 3:
                parts = dict(_fields(detail))
                if isinstance(kind := parts.get(1), bytes) and kind.endswith(b"google.rpc.RetryInfo"):
                    info = parts.get(2)
        return _duration(dict(_fields(info)).get(1, b"")) if info is not None else None
    except (ValueError, TypeError, IndexError):
        return None


def _duration(message: bytes) -> float:
    """Read a google.protobuf.Duration; a negative duration counts as 0."""
    parts = dict(_fields(message))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    return 0.0 if seconds >= 1 << 63 else seconds + nanos / 1e9


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message, each with its number; values are whole numbers and bytes.

    Raises:
        ValueError, IndexError: If it is no such message.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            length, place = _varint(message, place)
        if length < 0 or place + length > len(message):
            raise ValueError("not a message of protobuf")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("not an integer of protobuf")
