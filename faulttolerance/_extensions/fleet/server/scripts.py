"""Questions as calls of the scripts that answer them on a server, and answers as they come back."""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, NamedTuple

from ..protocol import Answer, CircuitRecord, OpenCircuit, Poll, Polled, Question, TakePlace, TakeTurn

__all__ = ["Script", "answer_of", "command_of", "script_of"]

_LARGEST: Final = 4 * 10**15
"""No duration is longer for a server, which is 126 years; its numbers are exact up to more than twice that."""
_NAMES: Final[dict[type, str]] = {Poll: "poll", OpenCircuit: "open", TakePlace: "place"}


class Script(NamedTuple):
    """A script, and the digest by which a server knows it."""

    text: str
    digest: str


@cache
def script(name: str) -> Script:
    """Read the script *name* of this room."""
    text = (files("faulttolerance._extensions.fleet.server") / f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def script_of(question: Question) -> str:
    """Give the name of the script that answers *question*."""
    return "turn" if isinstance(question, TakeTurn) else "circuit"


@lru_cache(maxsize=1024, typed=True)  # each call of a method asks the same question
def command_of(question: Question, namespace: str, *, with_text: bool = False) -> bytes:
    """Return what is sent to ask *question*, as the server reads it; *with_text* tells it the script, too."""
    found = script(script_of(question))
    start = ("EVAL", found.text) if with_text else ("EVALSHA", found.digest)
    return _packed(*start, *_arguments(question, namespace))


def _arguments(question: Question, namespace: str) -> tuple[object, ...]:
    """Return how many keys its script works on, the keys, and what is said of them.

    All keys of a namespace have one hash tag, so that one node of a cluster has them.
    """
    tag = f"{{faulttolerance:{namespace}}}"
    if isinstance(question, TakeTurn):
        key, kind, *values = question
        return 1, f"{tag}:{kind}:{key}", kind, *values
    return 2, f"{tag}:circuits", f"{tag}:processes", _NAMES[type(question)], *question


def _packed(*parts: object) -> bytes:
    written = [_bytes(part) for part in parts]
    return b"".join((b"*%d\r\n" % len(written), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in written)))


def answer_of(question: Question, reply: Any) -> Answer:
    """Return what the script replied to *question*."""
    if isinstance(question, TakeTurn):
        return int(reply)
    if isinstance(question, Poll):
        circuits = {_text(reply[at]): _record(*reply[at + 1 : at + 7]) for at in range(1, len(reply), 7)}
        return Polled(int(reply[0]), circuits)
    return _record(*reply)


def _record(version: int, state: bytes, wait: int, reopened: int, reason: bytes, is_granted: int) -> CircuitRecord:
    return CircuitRecord(version, state.decode(), wait, reopened, _text(reason), bool(is_granted))  # type: ignore[arg-type]


def _bytes(value: object) -> bytes:
    # A name in code may be any text, halves of surrogate pairs included.
    return b"%d" % min(value, _LARGEST) if isinstance(value, int) else str(value).encode("utf-8", "surrogatepass")


def _text(reply: bytes) -> str:
    return reply.decode("utf-8", "surrogatepass")
