"""The shop's backend, in a process of its own: an ASGI application that misbehaves by a timetable.

    python backend.py PORT BEGIN DATABASE

BEGIN is the moment, on the system's monotonic clock, from which the timetable counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import uvicorn

CRASH_STATUS = 70


@dataclass(frozen=True)
class Spell:
    """How the backend behaves for a while."""

    name: str
    since: float
    """Seconds after the begin."""
    until: float
    label: str = ""
    """One word for a timeline; empty where all is well."""
    slower: float = 1.0
    """What latencies are multiplied by."""
    errors: float = 0.0
    """The part of the requests that is answered with 503."""
    hangs: float = 0.0
    """The part of the requests that is not answered within any reasonable time."""
    crash: bool = False
    """Whether the process ends without a word; its supervisor starts it again when the spell is over."""


TIMETABLE = (
    Spell("all is well", 0.0, 1.5),
    Spell("errors", 1.5, 4.0, "errors", errors=0.3),
    Spell("crashed", 4.0, 5.5, "crash", crash=True),
    Spell("all is well again", 5.5, 7.0),
    Spell("slow, some hang", 7.0, 9.0, "hangs", slower=3.0, hangs=0.12),
    Spell("all is well again", 9.0, 13.0),
)
CRASH = next(spell for spell in TIMETABLE if spell.crash)
END = TIMETABLE[-1].until

LATENCY = {"products": (0.005, 0.02), "stock": (0.005, 0.02), "recommendations": (0.06, 0.12)}
"""Seconds that an answer takes, from and to, by the first part of the path."""
OTHER_LATENCY = (0.005, 0.03)
HANG = 60.0

Message = MutableMapping[str, Any]


def spell_at(seconds: float) -> Spell:
    """What the timetable says about a moment."""
    return next((spell for spell in TIMETABLE if seconds < spell.until), TIMETABLE[-1])


class Ledger:
    """Orders and mails that were taken, each under its key once. It survives a crash."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")  # what is written survives the process, and that will do
        self._database.execute("CREATE TABLE IF NOT EXISTS entry (kind TEXT, key TEXT, PRIMARY KEY (kind, key))")

    def enter(self, kind: str, key: str) -> None:
        """Take the order or mail, unless it was taken before."""
        self._database.execute("INSERT OR IGNORE INTO entry VALUES (?, ?)", (kind, key))

    def keys(self, kind: str) -> set[str]:
        """All that was taken."""
        return {key for (key,) in self._database.execute("SELECT key FROM entry WHERE kind = ?", (kind,))}


class Backend:
    """The ASGI application."""

    def __init__(self, begin: float, ledger: Ledger) -> None:
        self._begin = begin
        self._ledger = ledger
        self._chance = random.Random(os.getpid())

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        kind, _, key = scope["path"].strip("/").partition("/")
        if kind == "alive":
            await self._answer(send, 200, {})
            return
        spell = spell_at(time.monotonic() - self._begin)
        await asyncio.sleep(self._chance.uniform(*LATENCY.get(kind, OTHER_LATENCY)) * spell.slower)
        fate = self._chance.random()
        if kind in ("orders", "mails") and fate < 1 - spell.errors / 2:
            # Half of the errors strike after the order was taken, as a lost answer would.
            self._ledger.enter(kind, key)
        if fate < spell.hangs:
            await asyncio.sleep(HANG)
        if fate >= 1 - spell.errors:
            await self._answer(send, 503, {"error": "not now"})
        else:
            await self._answer(send, 200, self._content(kind, key))

    def _content(self, kind: str, key: str) -> dict[str, Any]:
        match kind:
            case "products":
                return {"number": int(key), "name": f"Product {key}", "cents": 100 + int(key) * 7}
            case "stock":
                return {"pieces": self._chance.randrange(20)}
            case "recommendations":
                return {"products": self._chance.sample(range(100), 3)}
            case _:
                return {"receipt": f"{kind}/{key}"}

    async def _answer(self, send: Callable[[Message], Awaitable[None]], status: int, content: dict[str, Any]) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(content).encode()})


async def serve(port: int, begin: float, database: str) -> None:
    """Answer until the process is ended, or ends itself where the timetable says so."""
    loop = asyncio.get_running_loop()
    if (left := begin + CRASH.since - time.monotonic()) > 0:
        loop.call_later(left, os._exit, CRASH_STATUS)
    application: Any = Backend(begin, Ledger(database))
    config = uvicorn.Config(application, host="127.0.0.1", port=port, log_level="error", lifespan="off", ws="none")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))
