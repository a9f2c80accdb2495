"""What the how-to page on fleets lets a user of Redis do is what the scripts do."""

from __future__ import annotations

import re
from pathlib import Path

from faulttolerance import RedisFleet
from faulttolerance._fleet.scripts import script
from faulttolerance._strategy.fleet import (
    EndProbe,
    LeaseProbe,
    OpenCircuit,
    Question,
    ReadCircuits,
    StartProbe,
    TakeTurn,
)
from kit.redis_server import redis_server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "fleet.md"


def test_the_rights_on_the_page_are_enough_and_none_is_for_nothing(tmp_path: Path) -> None:
    """For every question, on a server that has to be told the scripts."""
    [line] = re.findall(r"^ACL SETUSER shop (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rules = line.replace("shop-production", "shop").split()
    circuit = LeaseProbe("circuit", 0, "one", 1, 1000)
    turns = [TakeTurn("limit", kind, 2, 1000, 2) for kind in ("smooth", "fixed", "rolling")]  # type: ignore[arg-type]
    questions: list[Question] = [ReadCircuits(), OpenCircuit("circuit", 0, 0, ""), *turns, *turns]
    with redis_server(tmp_path) as server:
        server.ask("ACL", "SETUSER", "shop", *rules)
        session = RedisFleet(
            f"redis://shop:PASSWORD@127.0.0.1:{server.port}", namespace="shop", patience=5000
        ).connect()
        opened = session.exchange(questions)[1]
        leased = session.exchange([circuit._replace(version=opened.version)])[0]  # type: ignore[union-attr]
        version = leased.circuit.version  # type: ignore[union-attr]
        session.exchange(
            [
                StartProbe("circuit", version, "one", 1000),
                EndProbe("circuit", version, "one", "success", 1, 1000),
                ReadCircuits(),
            ]
        )
        session.close()
        scripts = "".join(script(name).text for name in ("circuit", "turn")).lower()

    commands = {right.removeprefix("+") for right in rules if right.startswith("+")}
    assert commands - {"eval", "evalsha"} == set(re.findall(r"redis\.call\('(\w+)'", scripts))
