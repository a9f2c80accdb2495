"""Questions as calls of the scripts that answer them on a server, and answers as they come back."""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, NamedTuple

from .._strategy.fleet import (
    Answer,
    Attend,
    CircuitRecord,
    EndProbe,
    Leased,
    LeaseProbe,
    OpenCircuit,
    Question,
    ReadCircuits,
    StartProbe,
    TakeTurn,
)

__all__ = ["Script", "answer_of", "command_of", "script_of"]

_LARGEST: Final = 4 * 10**15
"""No duration is longer for a server, which is 126 years; its numbers are exact up to more than twice that."""
_NAMES: Final[dict[type, str]] = {
    ReadCircuits: "read",
    OpenCircuit: "open",
    LeaseProbe: "lease",
    StartProbe: "start",
    EndProbe: "finish",
}


class Script(NamedTuple):
    """A script, and the digest by which a server knows it."""

    text: str
    digest: str


@cache
def script(name: str) -> Script:
    """Read the script *name* of this room."""
    text = (files("faulttolerance._fleet") / f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def script_of(question: Question) -> str:
    """Give the name of the script that answers *question*."""
    return "turn" if isinstance(question, TakeTurn) else "attend" if isinstance(question, Attend) else "circuit"


def command_of(question: Question, namespace: str, *, with_text: bool = False) -> bytes:
    """Give what is sent to ask *question*, as the server reads it; *with_text* tells it the script, too."""
    found = script(script_of(question))
    if isinstance(question, TakeTurn) and not with_text:
        return _command_of_turn(question, namespace, found.digest)
    start = ("EVAL", found.text) if with_text else ("EVALSHA", found.digest)
    return _packed(*start, 1, *_arguments(question, namespace))


@lru_cache(maxsize=1024)
def _command_of_turn(question: TakeTurn, namespace: str, digest: str) -> bytes:
    # Each call of a method asks the same one.
    return _packed("EVALSHA", digest, 1, *_arguments(question, namespace))


def _arguments(question: Question, namespace: str) -> tuple[object, ...]:
    """Give the key that its script works on, and what is said of it.

    All keys of a namespace have one hash tag, so that one node of a cluster has them.
    """
    tag = f"{{faulttolerance:{namespace}}}"
    if isinstance(question, TakeTurn):
        key, kind, *values = question
        return f"{tag}:{kind}:{key}", kind, *values
    if isinstance(question, Attend):
        return f"{tag}:processes", *question
    return f"{tag}:circuits", _NAMES[type(question)], *question


def _packed(*parts: object) -> bytes:
    written = [_bytes(part) for part in parts]
    return b"".join((b"*%d\r\n" % len(written), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in written)))


def answer_of(question: Question, reply: Any) -> Answer:
    """Read what the script replied to *question*."""
    if isinstance(question, (TakeTurn, Attend)):
        return int(reply)
    if isinstance(question, ReadCircuits):
        return {_text(reply[place]): _record(reply[place + 1 : place + 6]) for place in range(0, len(reply), 6)}
    record = _record(reply[1:])
    return Leased(bool(reply[0]), record) if isinstance(question, LeaseProbe) else record


def _record(reply: Any) -> CircuitRecord:
    version, state, wait, reopened, reason = reply
    return CircuitRecord(version, state.decode(), wait, reopened, _text(reason))


def _bytes(value: object) -> bytes:
    # A name in code may be any text, halves of surrogate pairs included.
    return b"%d" % min(value, _LARGEST) if isinstance(value, int) else str(value).encode("utf-8", "surrogatepass")


def _text(reply: bytes) -> str:
    return reply.decode("utf-8", "surrogatepass")
