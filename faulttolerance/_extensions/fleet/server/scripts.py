"""The encoding of requests as calls of server scripts, and the decoding of their replies."""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, NamedTuple

from ..protocol import (
    CircuitRecord,
    OpenRequest,
    PollRequest,
    PollResponse,
    ProbeRequest,
    Request,
    Response,
    TurnRequest,
)

_LARGEST: Final = 4 * 10**15
"""The longest duration for a server, 126 years; its numbers are exact up to more than twice that."""
_NAMES: Final[dict[type, str]] = {PollRequest: "poll", OpenRequest: "open", ProbeRequest: "place"}


class Script(NamedTuple):
    """A script, and the digest by which a server knows it."""

    text: str
    digest: str


@cache
def script(name: str) -> Script:
    """Read the script *name* of this folder."""
    text = (files("faulttolerance._extensions.fleet.server") / f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


@lru_cache(maxsize=1024, typed=True)  # each call of a method asks the same request
def command_of(request: Request, namespace: str, *, with_text: bool = False) -> bytes:
    """Return the bytes to send for *request*; *with_text* includes the text of the script."""
    found = script("turn" if isinstance(request, TurnRequest) else "circuit")
    start = ("EVAL", found.text) if with_text else ("EVALSHA", found.digest)
    return _encode_command(*start, *_arguments(request, namespace))


def _arguments(request: Request, namespace: str) -> tuple[object, ...]:
    """Return the number of keys of the script, the keys, and its arguments.

    All keys of a namespace have one hash tag, so that they are on one node of a cluster.
    """
    tag = f"{{faulttolerance:{namespace}}}"
    if isinstance(request, TurnRequest):
        key, kind, *values = request
        return 1, f"{tag}:{kind}:{key}", kind, *values
    return 2, f"{tag}:circuits", f"{tag}:members", _NAMES[type(request)], *request


def _encode_command(*parts: object) -> bytes:
    encoded = [_bytes(part) for part in parts]
    return b"".join((b"*%d\r\n" % len(encoded), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded)))


def answer_of(request: Request, reply: Any) -> Response:
    """Return the answer to *request* in the script's *reply*."""
    if isinstance(request, TurnRequest):
        return int(reply)
    if isinstance(request, PollRequest):
        circuits = {_text(reply[at]): _record(*reply[at + 1 : at + 7]) for at in range(1, len(reply), 7)}
        return PollResponse(int(reply[0]), circuits)
    return _record(*reply)


def _record(version: int, state: bytes, wait: int, reopened: int, reason: bytes, is_granted: int) -> CircuitRecord:
    return CircuitRecord(version, state.decode(), wait, reopened, _text(reason), bool(is_granted))  # type: ignore[arg-type]


def _bytes(value: object) -> bytes:
    # A name in code may be any text, even with unpaired surrogates.
    return b"%d" % min(value, _LARGEST) if isinstance(value, int) else str(value).encode("utf-8", "surrogatepass")


def _text(reply: bytes) -> str:
    return reply.decode("utf-8", "surrogatepass")
