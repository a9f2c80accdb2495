"""The user of Redis that the page on fleets makes may do what the scripts do, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import RedisFleet
from faulttolerance._extensions.fleet.protocol import OpenRequest, PollRequest, ProbeRequest, Request, TurnRequest
from kit.redis_server import RedisServer
from kit.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "fleet.md").read_text(encoding="utf-8")
[USER] = re.findall(r"^ACL SETUSER (\S+) (.+)$", PAGE, re.MULTILINE)


def test_the_page_names_the_commands_of_the_scripts() -> None:
    scripts = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "faulttolerance" / "_extensions" / "fleet" / "server").glob("*.lua")
    ]
    run = {name.lower() for script in scripts for name in re.findall(r"redis\.p?call\('(\w+)'", script)}

    assert set(re.findall(r"\+(\w+)", USER[1])) == run | {"eval", "evalsha"}


@pytest.mark.outside
def test_the_user_of_the_page_may_ask_everything(running_redis: RedisServer) -> None:
    """It asks in its namespace, on a server that has to be sent the scripts; the error elsewhere says "permission"."""
    running_redis.ask("SCRIPT", "FLUSH")
    running_redis.ask("ACL", "SETUSER", USER[0], *USER[1].replace("PASSWORD", "secret").split())
    url = f"redis://{USER[0]}:secret@127.0.0.1:{running_redis.port}"
    session = RedisFleet(url, namespace="shop-production", patience=2000).connect()
    stranger = RedisFleet(url, namespace="shop-staging", patience=2000).connect()

    def place(length: int, step: Any = "wish") -> Any:
        polled: Any = session.exchange([PollRequest("one", 1_000_000)])[0]
        version = polled.circuits["circuit"].version
        return session.exchange([ProbeRequest("circuit", version, "me", 1, length, step)])[0]

    try:
        turns: list[Request] = [TurnRequest("limit", kind, 2, 20_000, 2, 10) for kind in ("smooth", "fixed", "rolling")]
        for _ in range(3):
            session.exchange([*turns, *turns, *turns])
        session.exchange([OpenRequest("circuit", 0, 1000, 0, "it failed")])
        wait_until(lambda: place(1_000_000).is_granted)
        assert place(0, "success").state == "closed"
        session.exchange([PollRequest("one", 1), PollRequest("other", 1_000_000)])
        with pytest.raises(ConnectionError, match="permission"):
            stranger.exchange([PollRequest("one", 1)])
    finally:
        session.close()
        stranger.close()
        running_redis.ask("ACL", "DELUSER", USER[0])
        running_redis.ask("FLUSHALL")
