"""The wait that a failure states: refusals by policies, HTTP's ``Retry-After``, gRPC's ``RetryInfo``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ..exceptions import RefusedException
from .back_off import ApplicationFunction, ReportError, ignore_error, seconds_of

_SECONDS: Final = r"[0-9]+(?:\.[0-9]*)?"
_GRPC_STATUS: Final = "grpc-status-details-bin"
_GRPC_RETRY_INFO: Final = "google.rpc.retryinfo-bin"
_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_DURATION: Final = re.compile(
    rb"\n(?P<length>.)(?P<fields>(?:\x08(?P<seconds>%b))?(?:\x10(?P<nanos>%b))?)" % (_VARINT, _VARINT), re.DOTALL
)
"""A google.protobuf.Duration as the first field of a message, with its length and its two fields."""


class RetryAfter(ApplicationFunction):
    """A reader of the waits that failures state. An error meanwhile is reported, and counts as no statement.

    Args:
        max_delay: No wait is longer, in seconds; 0 for no limit.
        read: Called instead of ``parse_retry_after``; returns seconds, a ``timedelta`` or ``None``.
        wall_time: Returns the seconds since 1970, for dates.
        tell: Called with an error that occurred.
    """

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
        if headers is not None and (text := _header(headers)):
            return _of_header(text, now)
    trailing = getattr(failure, "trailing_metadata", None)
    return _of_metadata(trailing() or ()) if callable(trailing) else None


def _seconds(answer: Any) -> float | None:
    return None if answer is None else seconds_of(answer)


def _header(headers: Any) -> str:
    """Return the header's text, also from a mapping that distinguishes capital letters."""
    for name in ("Retry-After", "retry-after"):
        value = headers.get(name)
        if value is not None:
            return (value.decode("latin-1") if isinstance(value, bytes) else str(value)).strip()
    return ""


def _of_header(text: str, now: float) -> float | None:
    if re.fullmatch(_SECONDS, text):
        return float(text)
    from email.utils import mktime_tz, parsedate_tz

    date = parsedate_tz(text)
    return max(0.0, mktime_tz(date) - now) if date is not None else None


# gRPC: a google.rpc.Status in the trailing metadata, one of whose details is a google.rpc.RetryInfo


def _of_metadata(metadata: Any) -> float | None:
    entries: Mapping[str, Any] = {entry[0]: entry[1] for entry in metadata}
    _, _, detail = (entries.get(_GRPC_STATUS) or b"").partition(b"google.rpc.RetryInfo\x12")
    found = _DURATION.match(detail[1:] or entries.get(_GRPC_RETRY_INFO) or b"")
    if found is None or len(found["fields"]) != found["length"][0]:  # there is more, or not all of it
        return None
    seconds, nanos = map(_whole, found.group("seconds", "nanos"))
    return 0.0 if max(seconds, nanos) >= 1 << 63 else seconds + nanos / 1e9  # a negative duration counts as 0


def _whole(varint: bytes | None) -> int:
    """Decode a whole number of protobuf: seven bits in each byte, the lowest first."""
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint or b""))
