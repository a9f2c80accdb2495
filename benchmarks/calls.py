"""The cost of one call: the rows of single policies, of stacks, and of calls that fail.

OpenTelemetry is imported, as in most services: a call in trouble asks it for a span. Refusals are measured without it,
too, in a process of their own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from . import ours, peers
from .table import Row, cheaper, near
from .timing import BARE, Contender, overheads, overheads_async

__all__ = ["refusals", "rows"]

KINDS = ("retry", "circuit_breaker", "bulkhead", "timeout", "fallback")
NEAREST = {
    "retry": "httpware Retry",
    "circuit_breaker": "httpware consecutive",
    "bulkhead": "BoundedSemaphore",
    "timeout": "executor",
    "fallback": "circuitbreaker fallback",
}
"""The cheapest peer that promises the same: any thread may call, any number of them at a time."""


def rows(rounds: int) -> list[Row]:
    """Measure, and compare."""
    from . import floors  # it imports OpenTelemetry

    return [
        *_smooth(rounds),
        *asyncio.run(_smooth_async(rounds, floors)),
        *_failing(rounds, floors),
    ]


def _contenders(bare: Any, calls: Mapping[str, Any]) -> list[Contender]:
    return [Contender(BARE, bare), *(Contender(name, call) for name, call in calls.items())]


def _smooth(rounds: int) -> list[Row]:
    guarded = ours.Guarded()
    for _ in range(ours.WINDOW):
        guarded.all_failures(1)
    for _ in range(64):
        guarded.all(1)
        guarded.circuit_breaker(1)
    singles = peers.sync_singles()
    mine = {kind: getattr(guarded, kind) for kind in KINDS}
    everything = {
        "all": guarded.all,
        **mine,
        **{name: call for kind in KINDS for name, call in singles[kind].items()},
        **peers.sync_stacks(),
    }
    contenders = _contenders(peers.bare, everything)
    contenders.append(Contender("all, failures in the window", guarded.all_failures, guarded.fail_once))
    cost = overheads(contenders, rounds)
    stacks = [name for name in cost if name.startswith("stack")]
    rows = [
        Row(
            "sync, five policies, metrics on",
            _ns(cost, "all"),
            [
                cheaper(cost, "all", "pybreaker"),
                cheaper(cost, "all", "tenacity", 10),
                cheaper(cost, "all", "stamina", 10),
                *(cheaper(cost, "all", stack, 60) for stack in stacks),
            ],
            [
                cheaper(cost, "all", "pybreaker", 2),
                cheaper(cost, "all", "tenacity", 18),
                cheaper(cost, "all", "stamina", 18),
            ],
            cost,
        ),
        Row(
            "the same, failures in the window",
            _ns(cost, "all, failures in the window"),
            [cheaper(cost, "all, failures in the window", "pybreaker")],
        ),
    ]
    for kind in KINDS:
        peer = NEAREST[kind]
        rows.append(Row(f"{kind} only", _ns(cost, kind), [cheaper(cost, kind, peer)], [cheaper(cost, kind, peer, 2)]))
    return rows


async def _smooth_async(rounds: int, floors: ModuleType) -> list[Row]:
    guarded = ours.GuardedAsync()
    for _ in range(64):
        await guarded.all(1)
        await guarded.no_timeout(1)
    calls = {
        "all": guarded.all,
        "timeout": guarded.timeout,
        "rate limit": guarded.rate_limit,
        "all without time-out": guarded.no_timeout,
        "floor of a rate limit": floors.rate_limited_async(peers.bare_async),
        **peers.async_singles(),
        **peers.async_stacks(),
    }
    cost = await overheads_async(_contenders(peers.bare_async, calls), rounds * 10)
    return [
        Row(
            "async, five policies, metrics on",
            _ns(cost, "all"),
            [
                cheaper(cost, "all", "asyncio.timeout", 3),
                cheaper(cost, "all", "stack hyx", 12),
                cheaper(cost, "all", "stack httpware", 5),
            ],
            figures=cost,
        ),
        Row("async, time-out only", _ns(cost, "timeout"), figures={}),
        Row("async, all without time-out", _ns(cost, "all without time-out"), figures={}),
        Row(
            "async, rate limit only",
            _ns(cost, "rate limit"),
            [],
            [cheaper(cost, "rate limit", "hyx rate limit"), near(cost, "rate limit", "floor of a rate limit")],
        ),
    ]


def _failing(rounds: int, floors: ModuleType) -> list[Row]:
    theirs, theirs_async = peers.failing()
    mine, mine_async = ours.Failing(), ours.Failing()
    theirs_async["floor"] = floors.retrying_async(peers.Turns().call_async)
    retrying = _contenders(theirs.pop("bare"), {"retry": mine.retry, **theirs})
    retrying_async = _contenders(theirs_async.pop("bare"), {"retry": mine_async.retry_async, **theirs_async})
    cost = overheads(retrying, rounds, collecting=True)
    cost_async = asyncio.run(overheads_async(retrying_async, rounds, collecting=True))
    refused, refused_async = refusals(rounds, floors)
    alone, alone_async = _alone(rounds)
    return [
        Row(
            "one failure, then success, sync",
            _ns(cost, "retry"),
            [cheaper(cost, "retry", "tenacity", 20), cheaper(cost, "retry", "backoff", 15)],
            figures=cost,
        ),
        Row(
            "one failure, then success, async",
            _ns(cost_async, "retry"),
            [cheaper(cost_async, "retry", "hyx async")],
            [cheaper(cost_async, "retry", "pyfailsafe async"), near(cost_async, "retry", "floor")],
            cost_async,
        ),
        _refusal("refused by an open breaker, sync", alone, refused),
        _refusal("refused by an open breaker, async", alone_async, refused_async),
    ]


def refusals(rounds: int, floors: ModuleType | None = None) -> tuple[dict[str, float], dict[str, float]]:
    """What a refusal costs in all, sync and async: the function that raises by itself is no part of it."""
    mine = ours.Failing()
    refusing, refusing_async = peers.refusing()
    fails, fails_async = refusing.pop("bare"), refusing_async.pop("bare")
    refused = {"breaker": mine.refused, "all": mine.refused_all, **refusing}
    refused_async = {"breaker": mine.refused_async, **refusing_async}
    if floors is not None:
        refused["floor"], refused_async["floor"] = floors.refusing(fails), floors.refusing_async(fails_async)
    for call in refused.values():
        ours.use_up(call, 64)
    cost = overheads(_contenders(fails, refused), rounds, raising=True)
    return _whole(cost), _whole(asyncio.run(_refused_async(fails_async, refused_async, rounds)))


async def _refused_async(fails: Any, refused: Mapping[str, Any], rounds: int) -> dict[str, float]:
    for call in refused.values():
        for _ in range(64):
            try:
                await call(1)
            except Exception:  # noqa: BLE001  # it is to fail
                pass
    return await overheads_async(_contenders(fails, refused), rounds, raising=True)


def _whole(cost: Mapping[str, float]) -> dict[str, float]:
    bare = cost[BARE]
    return {BARE: bare, **{name: spent + bare for name, spent in cost.items() if name != BARE}}


_ALONE = """
import json, sys
from benchmarks import calls, ours
ours.metrics_on()
for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
    del sys.modules[name]  # a peer has imported it
measured = calls.refusals({rounds})
assert "opentelemetry.trace" not in sys.modules
print(json.dumps(measured))
"""


def _alone(rounds: int) -> list[dict[str, float]]:
    """``refusals`` in a process without OpenTelemetry."""
    done = subprocess.run(
        [sys.executable, "-c", _ALONE.format(rounds=rounds)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _refusal(what: str, alone: dict[str, float], whole: dict[str, float]) -> Row:
    aim = [cheaper(whole, "breaker", "circuitbreaker", 1.5), near(whole, "breaker", "floor")]
    measured = f"{whole['breaker']:,.0f} ns in all, without OpenTelemetry {alone['breaker']:,.0f} ns"
    return Row(what, measured, [cheaper(alone, "breaker", "circuitbreaker")], aim, whole)


def _ns(cost: Mapping[str, float], name: str) -> str:
    return f"{cost[name]:,.0f} ns over {cost[BARE]:,.0f} ns bare"
