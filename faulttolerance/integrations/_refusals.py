"""Refusals and time-outs in other forms: an answer over HTTP, and an exception of the family of a client.

An answer has a status, ``Retry-After``, and words that reveal no internals. The failure itself names guards and hosts;
that is for the log, and none of it is written here.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from math import ceil
from typing import Final, NamedTuple, TypeVar

from ..exceptions import RateLimitException, RefusedException, TimeoutException

E = TypeVar("E", bound=TimeoutException)
R = TypeVar("R", bound=RefusedException)

_WORDS: Final = {
    429: "The limit of requests is reached for now.",
    503: "The service cannot accept this request now.",
    504: "The answer was not ready in time.",
}
LONGEST_WAIT: Final = 2**31 - 1
"""The longest wait that anybody is told, in seconds: clients need not read larger numbers (RFC 9111, 1.2.2)."""


class HttpAnswer(NamedTuple):
    """An answer over HTTP, or the basis of an answer in another protocol."""

    status: int
    headers: dict[str, str]
    """``Content-Type``, and ``Retry-After`` where it is known."""
    body: bytes
    words: str
    """One sentence, as in the body."""


def guard_failure_in(failure: BaseException) -> RefusedException | TimeoutException | None:
    """Return the refusal or time-out that *failure* is; of a group of nothing else, the member with the longest wait.

    ``None`` where *failure* is, or contains, anything else.
    """
    if isinstance(failure, (RefusedException, TimeoutException)):
        return failure
    if not isinstance(failure, BaseExceptionGroup):
        return None
    inside = [guard_failure_in(member) for member in failure.exceptions]
    found = [one for one in inside if one is not None]
    return max(found, key=_wait) if len(found) == len(inside) else None


def answer_to(failure: BaseException, accept: str = "") -> HttpAnswer | None:
    """Return the answer to *failure*; ``None`` where it is neither a refusal nor a time-out of the library.

    429 is for a rate limit, which a client keeps by sending less; 503 for the other refusals, which the client does not
    cause; 504 for a time-out.

    Args:
        failure: The exception of a handler.
        accept: The header ``Accept``. The body is plain text for a client that names text and no JSON, as browsers do;
            for all others it is the JSON of problem details (RFC 9457).
    """
    guard_failure = guard_failure_in(failure)
    if guard_failure is None:
        return None
    status = 429 if isinstance(guard_failure, RateLimitException) else 503
    if isinstance(guard_failure, TimeoutException):
        status = 504
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    title, words = HTTPStatus(status).phrase, _WORDS[status]
    body = f"{status} {title}\n{words}\n"
    if "text/" not in accept or "json" in accept:
        headers["Content-Type"] = "application/problem+json"
        body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": words})
    if wait := _wait(guard_failure):
        headers["Retry-After"] = str(min(ceil(wait), LONGEST_WAIT))
    return HttpAnswer(status, headers, body.encode(), words)


def _wait(failure: RefusedException | TimeoutException) -> float:
    return (failure.retry_after if isinstance(failure, RefusedException) else None) or 0.0


def client_exception(failure: RefusedException | TimeoutException, timeout: type[E], refusal: type[R]) -> E | R:
    """Convert *failure* to an exception that users of the client catch, and users of this library, too.

    It has the notes of *failure*, which is its cause.

    Args:
        failure: A time-out or a refusal of the library.
        timeout: The time-out of the client that is one of the library, too.
        refusal: The base of the client's refusals; each subclass inherits the refusal of the library that it is, too.
    """
    kinds: tuple[type[E | R], ...] = (timeout, *refusal.__subclasses__(), refusal)
    converted = next(kind for kind in kinds if isinstance(failure, kind.__bases__))(*failure.args)
    converted.__cause__, converted.__notes__ = failure, [*getattr(failure, "__notes__", ())]
    return converted
