"""The possible outcomes of a call, as a table: policies, the actions of each attempt, the way of the call, the result.

Each row runs in every way of calling, and all have to agree. Where the specification or a rule makes a
difference, the row says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from faulttolerance import Interrupted, configure, last_good, remaining
from faulttolerance.testing import MemoryFleet

from .scenario import (
    Differs,
    Fatal,
    Halt,
    Scenario,
    again,
    beside_one,
    breaks,
    calls,
    calls_at,
    cancelled,
    cancelled_beside_one,
    counts,
    crowded,
    fails,
    fails_fatally_in_the_end,
    fails_when_interrupted,
    gives_a_coroutine,
    holds,
    holds_back,
    in_a_fleet,
    is_called_off,
    of_call,
    raises,
    raises_again,
    replaced,
    serves,
    serves_late,
    serves_once,
    serves_slowly_once,
    sleeps_a_little,
    sleeps_long,
    slow_at_first,
    stops,
    swallows,
    then_cancelled,
    waits,
    waits_inside,
    within,
)
from .ways import Body, Policies, Run, Scene

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
ONCE = calls(1)


def row(
    name: str,
    policies: Policies | Callable[[Run], Policies],
    body: Body,
    attempts: int,
    *outcomes: Any,
    scene: Scene = ONCE,
    **differs: Differs,
) -> None:
    """Add a row to the table."""
    made = policies if callable(policies) else lambda _: policies
    SCENARIOS[name] = Scenario(name, made, body, attempts, outcomes, scene, differs)


BREAKER = {"request_volume_threshold": 2, "failure_ratio": 1.0, "delay": 5000}
DEADLINE = {"value": 1000}
LEFT_BEHIND = "an attempt that is not over at its deadline is left behind, and nobody waits for its end (R3, R7b)"

# Without a deadline

row("success at once", {"retry": again()}, serves, 1, "served")
row(
    "success under all policies",
    lambda run: {
        "fallback": replaced(run),
        "retry": again(),
        "circuit_breaker": BREAKER,
        "rate_limit": {"value": 9, "window": 9000},
        "timeout": DEADLINE,
        "bulkhead": {"value": 1, "waiting_task_queue": 1},
    },
    serves,
    2,
    "served",
    "served",
    scene=calls(2),
)
row("failure without a policy that minds", {"timeout": DEADLINE}, fails(), 1, "ConnectionError")
row("failure, then success", {"retry": again()}, fails(times=1), 2, "served")
row(
    "failure, then success after a delay", {"retry": again(delay=300), "timeout": DEADLINE}, fails(times=2), 3, "served"
)
row("exhausted", {"retry": again()}, fails(), 3, "ConnectionError")
row("exhausted under a deadline each", {"retry": again(delay=100), "timeout": DEADLINE}, fails(), 3, "ConnectionError")
row("max_duration", {"retry": again(delay=400, max_duration=1000)}, fails(), 3, "ConnectionError")
row("not retryable", {"retry": again(abort_on=Fatal)}, fails(Fatal), 1, "Fatal")
row("not retryable after a retry", {"retry": again(abort_on=Fatal)}, fails_fatally_in_the_end, 2, "Fatal")


async def slows_down(run: Run) -> Any:
    """Sleep for 20 ms at first, and longer from the 65th attempt on; return the remaining time."""
    left = remaining()
    await run.sleep(0.02 if run.attempts <= 64 else 0.5)
    return f"{left:.3f}"


row(
    "time-out: it adapts to how long attempts take",
    {"timeout": {**DEADLINE, "adaptive": True}, "bulkhead": {"value": 1}},
    slows_down,
    65,
    *["1.000"] * 64,
    "TimeoutException",
    scene=calls(65),
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)

# Control flow

for kind, shown in ((Halt, "Halt"), (Interrupted, "interruption"), (asyncio.CancelledError, "interruption")):
    for name, more in (("", {}), (" under a deadline", {"timeout": DEADLINE})):
        row(
            f"{kind.__name__}{name}",
            lambda run, more=more: {"fallback": replaced(run), "retry": again(), "circuit_breaker": BREAKER, **more},
            fails(kind),
            1,
            shown,
        )
row(
    "own failure of a BaseException's class",
    lambda run: {
        "fallback": {**replaced(run), "apply_on": (Exception, Halt)},
        "retry": again(retry_on=Halt),
        "timeout": DEADLINE,
    },
    fails(Halt),
    3,
    "instead of Halt after 3",
)

# Deadlines

row(
    "interrupted",
    {"retry": again(), "timeout": DEADLINE},
    sleeps_long,
    3,
    "TimeoutException",
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row("in time", {"retry": again(), "timeout": DEADLINE}, fails(times=0, sleeps=0.5), 1, "served")
row(
    "interrupted and replaced",
    lambda run: {"fallback": replaced(run), "timeout": DEADLINE},
    sleeps_long,
    1,
    "instead of TimeoutException after 1",
)
row(
    "fails because it is interrupted",
    {"retry": again(), "timeout": DEADLINE},
    fails_when_interrupted,
    3,
    "TimeoutException",
    detached=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "swallows the interruption",
    {"retry": again(), "timeout": DEADLINE},
    swallows,
    3,
    "TimeoutException",
    detached=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "late return",
    {"retry": again(max_retries=1), "timeout": DEADLINE},
    serves_late,
    2,
    "TimeoutException",
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "late return with interrupt=False",
    {"retry": again(max_retries=1), "timeout": {"value": 1000, "interrupt": False}},
    serves_late,
    2,
    "TimeoutException",
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "late failure",
    {"retry": again(max_retries=1), "timeout": DEADLINE},
    fails(works=2),
    2,
    "TimeoutException",
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "late control flow",
    lambda run: {"fallback": replaced(run), "retry": again(), "circuit_breaker": BREAKER, "timeout": DEADLINE},
    fails(Halt, works=2),
    1,
    "Halt",
    offloaded=Differs(LEFT_BEHIND, 2, ("instead of CircuitBreakerOpenException after 3",)),
)
row(
    "interruption of its own, late",
    lambda run: {"fallback": replaced(run), "retry": again(), "circuit_breaker": BREAKER, "timeout": DEADLINE},
    fails(Interrupted, works=2),
    1,
    "interruption",
    offloaded=Differs(LEFT_BEHIND, 2, ("instead of CircuitBreakerOpenException after 3",)),
)

# Refusals

REFUSERS: dict[str, tuple[str, Policies, Body, Scene, tuple[str, ...]]] = {
    "breaker": (
        "CircuitBreakerOpenException",
        {"circuit_breaker": {**BREAKER, "request_volume_threshold": 1}},
        fails(),
        calls(2),
        ("ConnectionError",),
    ),
    "rate limit": ("RateLimitException", {"rate_limit": {"value": 1, "window": 60_000}}, serves, calls(2), ("served",)),
    "bulkhead": ("BulkheadException", {"bulkhead": {"value": 1, "waiting_task_queue": 1}}, holds, crowded, ()),
}
for who, (kind, policy, body, scene, before) in REFUSERS.items():

    def only(run: Run, policy: Policies = policy) -> Policies:
        return policy

    def with_retry(run: Run, policy: Policies = policy) -> Policies:
        return {**policy, "retry": again(delay=100)}

    def with_fallback(run: Run, policy: Policies = policy) -> Policies:
        return {**policy, "fallback": replaced(run)}

    def with_both(run: Run, policy: Policies = policy) -> Policies:
        return {**policy, "fallback": replaced(run), "retry": again()}

    def is_replaced(after: int, kind: str = kind, before: tuple[str, ...] = before) -> tuple[str, ...]:
        first = () if not before else ("served",) if before == ("served",) else (f"instead of {before[0]} after 1",)
        return (*first, f"instead of {kind} after {after}")

    begins = 0 if who == "bulkhead" else 1
    row(f"refused by the {who}", only, body, begins, *before, kind, scene=scene)
    row(f"refused by the {who}, replaced", with_fallback, body, begins, *is_replaced(1), scene=scene)
    retried = (kind, kind) if who == "breaker" else (*before, kind)
    row(f"refused by the {who}, retried", with_retry, body, begins, *retried, scene=scene)
    both = tuple(f"instead of {kind} after 3" if one == kind else one for one in retried)
    row(f"refused by the {who}, retried and replaced", with_both, body, begins, *both, scene=scene)

row(
    "refused by the breaker at once after a retry",
    {"retry": again(max_retries=3, delay=100), "circuit_breaker": BREAKER},
    fails(),
    2,
    "CircuitBreakerOpenException",
)
row(
    "closed again by a probe",
    {"retry": again(delay=3000), "circuit_breaker": BREAKER},
    fails(times=2),
    3,
    "CircuitBreakerOpenException",
    "served",
    scene=calls(2, gap=3),
)

# Fallbacks


row("fallback that raises", lambda run: {"fallback": raises(run), "retry": again()}, fails(), 3, "LookupError")
row(
    "fallback that raises what it was given",
    lambda run: {"fallback": raises_again(run), "retry": again()},
    fails(),
    3,
    "ConnectionError",
)
row(
    "fallback that does not apply",
    lambda run: {"fallback": {**replaced(run), "apply_on": Fatal}, "retry": again()},
    fails(),
    3,
    "ConnectionError",
)
row(
    "fallback that is to skip it",
    lambda run: {"fallback": {**replaced(run), "skip_on": ConnectionError}},
    fails(),
    1,
    "ConnectionError",
)

# From outside

ENCLOSED = Differs("a plain call is ended by the deadline of an enclosing one, which it can see", leaves_out=("left",))

row(
    "enclosing deadline in the body",
    lambda run: {
        "fallback": replaced(run),
        "retry": again(),
        "circuit_breaker": BREAKER,
        "bulkhead": {"value": 1, "waiting_task_queue": 1},
    },
    sleeps_long,
    1,
    "TimeoutException",
    scene=within(1),
)
row(
    "enclosing deadline in the body, both have one",
    lambda run: {"fallback": replaced(run), "retry": again(), "timeout": {"value": 3000}, "circuit_breaker": BREAKER},
    sleeps_long,
    1,
    "TimeoutException",
    scene=within(1),
)
row(
    "enclosing deadline is reached by the delay",
    lambda run: {"fallback": replaced(run), "retry": again(delay=5000)},
    fails(),
    1,
    "instead of ConnectionError after 1",
    scene=within(1),
)
row(
    "enclosing deadline in the fallback",
    lambda run: {"fallback": waits(run), "retry": again()},
    fails(),
    3,
    "TimeoutException",
    scene=within(1),
)
row(
    "cancelled in the body",
    lambda run: {
        "fallback": replaced(run),
        "retry": again(),
        "circuit_breaker": BREAKER,
        "timeout": {"value": 3000},
        "bulkhead": {"value": 1, "waiting_task_queue": 1},
    },
    sleeps_long,
    1,
    "cancelled",
    scene=cancelled(1),
    blocking=ENCLOSED,
)
row(
    "cancelled in the fallback",
    lambda run: {"fallback": waits(run)},
    fails(),
    1,
    "cancelled",
    scene=cancelled(1),
    blocking=ENCLOSED,
)
row(
    "cancelled in the delay",
    lambda run: {"fallback": replaced(run), "retry": again(delay=5000)},
    fails(),
    1,
    "cancelled",
    scene=cancelled(1),
    blocking=Differs(
        "a delay that would reach an enclosing deadline is not begun (R12)",
        outcomes=("instead of ConnectionError after 1",),
    ),
)


# Predicates, and code beside the attempts


row(
    "result is accepted at the second attempt",
    {"retry": again(), "retry_when": {"result": lambda n: of_call(n) < 2}},
    counts,
    2,
    2,
)
row(
    "result is never accepted",
    {"retry": again(), "retry_when": {"result": lambda value: of_call(value) == "served"}},
    serves,
    3,
    "FaultToleranceException",
)
row(
    "result is never accepted, and replaced",
    lambda run: {"fallback": replaced(run), "retry": again(), "retry_when": {"result": lambda value: True}},
    serves,
    3,
    "instead of FaultToleranceException after 3",
)
row(
    "exception by a predicate",
    {"retry": again(), "retry_when": {"exception": lambda e: isinstance(e, Fatal)}},
    fails(),
    1,
    "ConnectionError",
)


row(
    "exception predicate that raises",
    lambda run: {"fallback": replaced(run), "retry": again(), "retry_when": {"exception": breaks}},
    fails(),
    1,
    "instead of ConnectionError after 1",
)
row(
    "exception predicate that raises, no fallback",
    {"retry": again(), "retry_when": {"exception": breaks}},
    fails(),
    1,
    "ConnectionError",
)
row("result predicate that raises", {"retry": again(), "retry_when": {"result": breaks}}, serves, 1, "served")
row("back-off that raises", {"retry": again(), "custom_backoff": lambda: breaks}, fails(), 3, "ConnectionError")
row("back-off that cannot be made", {"retry": again(), "custom_backoff": breaks}, fails(), 3, "ConnectionError")
row("hook before a retry that raises", {"retry": again(), "before_retry": breaks}, fails(times=1), 2, "served")
row(
    "exception predicate whose answer is to be awaited",
    {"retry": again(), "retry_when": {"exception": gives_a_coroutine}},
    fails(),
    1,
    "ConnectionError",
)
row(
    "result predicate whose answer is to be awaited",
    {"retry": again(), "retry_when": {"result": gives_a_coroutine}},
    serves,
    1,
    "served",
)
row(
    "back-off that gives no number",
    {"retry": again(delay=300), "custom_backoff": lambda: lambda failure: "soon"},
    fails(),
    3,
    "ConnectionError",
)

# Together

row("jitter", {"retry": {"max_retries": 3, "delay": 300}}, fails(), 4, "ConnectionError")
row(
    "exponential back-off",
    {"retry": again(delay=100), "exponential_backoff": {"factor": 3}},
    fails(),
    3,
    "ConnectionError",
)
row(
    "results that are refused for ever, and given",
    lambda run: {
        "fallback": replaced(run),
        "retry": again(),
        "retry_when": {"result": lambda result: True, "give": "result"},
    },
    serves,
    3,
    "served",
)
row(
    "told to wait",
    {"retry": again(), "honor_retry_after": {"read": lambda failure: 2}},
    fails(),
    3,
    "ConnectionError",
)
row(
    "told to wait for too long",
    lambda run: {
        "fallback": replaced(run),
        "retry": again(),
        "honor_retry_after": {"max_delay": 1000, "read": lambda failure: 2},
    },
    fails(),
    1,
    "instead of ConnectionError after 1",
)
row(
    "full jitter",
    {"retry": again(delay=100, jitter_kind="full"), "exponential_backoff": {"factor": 1.5, "min_delay": 50}},
    fails(),
    3,
    "ConnectionError",
)
row(
    "decorrelated jitter",
    {"retry": again(delay=100, jitter_kind="decorrelated")},
    fails(),
    3,
    "ConnectionError",
)
row(
    "called off at the deadline",
    {"retry": again(), "timeout": DEADLINE},
    is_called_off,
    3,
    "TimeoutException",
    detached=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "held back beyond the deadline",
    {"retry": again(), "timeout": DEADLINE},
    holds_back,
    3,
    "TimeoutException",
    detached=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "held back beyond an enclosing deadline",
    {"retry": again()},
    holds_back,
    1,
    "TimeoutException",
    scene=within(1),
    offloaded=Differs("the deadline of a coroutine interrupts that, and no thread", leaves_out=("counts",)),
)
row("a guard inside", {"retry": again(), "timeout": {"value": 3000}}, waits_inside, 3, "TimeoutException")
row(
    "a guard inside, whose retry meets the deadline",
    {"retry": again(), "timeout": {"value": 700}},
    waits_inside,
    3,
    "TimeoutException",
    detached=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "enclosing deadline while retrying",
    {"retry": again(max_retries=9)},
    sleeps_a_little,
    3,
    "TimeoutException",
    scene=within(1),
)
row(
    "enclosing deadline at the very moment of its own",
    lambda run: {"fallback": replaced(run), "retry": again(max_retries=9), "timeout": DEADLINE},
    sleeps_long,
    2,
    "TimeoutException",
    scene=within(2),
)
row(
    "enclosing deadline before its own is looked at",
    {"retry": again(), "timeout": DEADLINE},
    serves_late,
    1,
    "TimeoutException",
    scene=within(1.5),
    offloaded=Differs(LEFT_BEHIND, 2, ("TimeoutException",)),
    task=Differs(
        "the caller is a task of its own, and is interrupted before it sees the end", 1, ("TimeoutException",)
    ),
)
row("fallback that ends more than the call", {"fallback": {"value": stops}, "retry": again()}, fails(), 3, "Halt")
row(
    "predicate that ends more than the call",
    lambda run: {"fallback": replaced(run), "retry": again(), "retry_when": {"exception": stops}},
    fails(),
    1,
    "Halt",
)
row(
    "hook that ends more than the call",
    lambda run: {"fallback": replaced(run), "retry": again(), "before_retry": stops},
    fails(),
    1,
    "Halt",
)
row(
    "failure that the breaker skips",
    lambda run: {"circuit_breaker": {**BREAKER, "skip_on": ConnectionError}},
    fails(),
    3,
    *["ConnectionError"] * 3,
    scene=calls(3),
)
row(
    "interrupted attempts open the circuit",
    {"circuit_breaker": BREAKER, "timeout": DEADLINE},
    sleeps_long,
    2,
    "TimeoutException",
    "TimeoutException",
    "CircuitBreakerOpenException",
    scene=calls(3),
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "late results open the circuit",
    {"circuit_breaker": BREAKER, "timeout": DEADLINE},
    serves_late,
    2,
    "TimeoutException",
    "TimeoutException",
    "CircuitBreakerOpenException",
    scene=calls(3),
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "probe that fails",
    {"circuit_breaker": BREAKER},
    fails(),
    3,
    "ConnectionError",
    "ConnectionError",
    "ConnectionError",
    "CircuitBreakerOpenException",
    scene=calls_at(0, 0, 6, 0),
)
row(
    "probe that is slower than the delay",
    {"circuit_breaker": BREAKER},
    fails(times=2, sleeps=6),
    3,
    "ConnectionError",
    "ConnectionError",
    "served",
    scene=calls_at(0, 0, 6),
)
row(
    "slow successes open the circuit",
    lambda run: {"fallback": replaced(run), "retry": again(), "circuit_breaker": {**BREAKER, "slow": 1000}},
    fails(times=0, sleeps=1),
    2,
    "served",
    "served",
    "instead of CircuitBreakerOpenException after 3",
    scene=calls(3),
)
row(
    "slow successes under a deadline, behind a bulkhead",
    {"circuit_breaker": {**BREAKER, "slow": 500}, "timeout": DEADLINE, "bulkhead": {"value": 1}},
    fails(times=0, sleeps=0.5),
    2,
    "served",
    "served",
    "CircuitBreakerOpenException",
    scene=calls(3),
)
row(
    "the next fallback is asked with what the one before raised",
    lambda run: {"fallback": {"value": [raises(run)["value"], replaced(run)["value"]]}, "retry": again()},
    fails(),
    3,
    "instead of LookupError after 3",
)
row(
    "the last good result answers",
    lambda run: {"fallback": {"value": [last_good(60_000), replaced(run)["value"]]}, "retry": again(max_retries=0)},
    serves_once,
    3,
    "served",
    "served",
    "instead of ConnectionError after 1",
    scene=calls_at(0, 30, 30),
)
row(
    "results that are failures of the circuit",
    lambda run: {"fallback": replaced(run), "circuit_breaker": BREAKER, "fail_when": {"result": lambda result: True}},
    serves,
    2,
    "served",
    "served",
    "instead of CircuitBreakerOpenException after 1",
    scene=calls(3),
)
row(
    "failures that the predicate of the circuit does not name, and one with a mistake",
    {"circuit_breaker": BREAKER, "fail_when": {"exception": breaks, "result": breaks}},
    fails(times=2),
    3,
    *["ConnectionError"] * 2,
    "served",
    scene=calls(3),
)
row(
    "failures that have left a window of time",
    {"circuit_breaker": {**BREAKER, "window": 5000}},
    fails(),
    4,
    *["ConnectionError"] * 4,
    "CircuitBreakerOpenException",
    scene=calls_at(0, 6, 6, 1, 1),
)
row(
    "probes that fail with a delay that grows",
    {"circuit_breaker": {**BREAKER, "max_delay": 60_000}},
    fails(),
    4,
    *["ConnectionError"] * 3,
    "CircuitBreakerOpenException",
    "ConnectionError",
    "CircuitBreakerOpenException",
    scene=calls_at(0, 0, 5, 8, 4, 16),
)
row(
    "rate limit that has room again",
    {"retry": again(delay=1000), "rate_limit": {"value": 1, "window": 1}},
    serves,
    2,
    "served",
    "served",
    scene=calls(2),
)

# Waiting: with a longest wait synchronous calls wait, too (rule Q1)

ROOM_SOON = {"value": 1, "waiting_task_queue": 1, "max_wait": 900}
row("waits for a permit", {"bulkhead": ROOM_SOON}, fails(times=0, sleeps=0.5), 1, "served", scene=beside_one)
row(
    "waits for a permit under a deadline, which counts the wait",
    {"timeout": DEADLINE, "bulkhead": {**ROOM_SOON, "max_wait": 5000}},
    fails(times=0, sleeps=0.6),
    1,
    "TimeoutException",
    scene=beside_one,
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "waits for a permit in vain, with a retry and a fallback",
    lambda run: {"fallback": replaced(run), "retry": again(delay=100), "bulkhead": ROOM_SOON},
    holds,
    0,
    "instead of BulkheadException after 3",
    scene=beside_one,
)
row(
    "cancelled while it waits for a permit",
    {"circuit_breaker": BREAKER, "bulkhead": {**ROOM_SOON, "max_wait": 5000}},
    holds,
    0,
    "cancelled",
    scene=cancelled_beside_one(0.3),
)

# A limit that adapts (rule A1): the counts that are compared have its gauge

row(
    "late attempts lower the limit",
    {"retry": again(), "bulkhead": {"value": 4, "latency": 250}},
    fails(sleeps=0.5),
    3,
    "ConnectionError",
)
row(
    "time-outs lower the limit, and calls in time raise it",
    {"timeout": DEADLINE, "bulkhead": {"value": 2, "latency": 250}},
    slow_at_first,
    6,
    *["TimeoutException"] * 3,
    *["served"] * 3,
    scene=calls(6, gap=9),
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "the caller gives up late",
    {"bulkhead": {"value": 4, "latency": 250}},
    sleeps_long,
    1,
    "cancelled",
    scene=cancelled(0.5),
    blocking=ENCLOSED,
)

# Turns under a rate limit (RL1)

for where, more, scene_of in (
    ("", {}, lambda scene: scene),
    ("of a fleet: ", {"fleet_wide": {}}, in_a_fleet),
    ("of a lost fleet: ", {"fleet_wide": {}}, partial(in_a_fleet, is_lost=True)),
):
    row(
        where + "waits for its turn",
        {"rate_limit": {"value": 1, "window": 1, "max_wait": 1500}, "timeout": DEADLINE, **more},
        serves,
        3,
        "served",
        "served",
        "served",
        scene=scene_of(calls(3)),
    )
    row(
        where + "a turn that would come too late, with a retry",
        {"retry": again(delay=600), "rate_limit": {"value": 1, "window": 2, "max_wait": 1000}, **more},
        serves,
        2,
        "served",
        "served",
        scene=scene_of(calls(2)),
    )
    refused = Differs("an enclosing deadline refuses it at once (RL1)", 1, ("served", "cancelled"), ("counts", "left"))
    row(
        where + "ended from outside while it waits for its turn",
        {"rate_limit": {"value": 1, "window": 2, "max_wait": 2000}, **more},
        serves,
        1,
        "served",
        "RateLimitException",
        scene=scene_of(then_cancelled(0.5)),
        queueing=Differs(
            "an enclosing deadline refuses it at once (RL1)", 1, ("served", "cancelled"), ("counts", "left")
        ),
    )
row(
    "of a fleet: a turn that is not waited for",
    {"rate_limit": {"value": 1, "window": 2}, "fleet_wide": {}},
    serves,
    2,
    "served",
    "RateLimitException",
    "served",
    scene=in_a_fleet(calls_at(0, 1, 1)),
)

# The throttle: which calls it refuses is up to the seed of the virtual time, and the same in every way

THROTTLE = {"min_requests": 3}
row(
    "throttle: a part of the calls is refused",
    {"adaptive_throttle": THROTTLE},
    fails(),
    4,
    *["ConnectionError"] * 4,
    *["ThrottleException"] * 5,
    scene=calls(9),
)
row(
    "throttle: refusals are retried and replaced",
    lambda run: {"fallback": replaced(run), "retry": again(delay=100), "adaptive_throttle": THROTTLE},
    fails(),
    4,
    "instead of ConnectionError after 3",
    *["instead of ThrottleException after 3"] * 2,
    scene=calls(3),
)
row(
    "throttle: a probe each second",
    {"adaptive_throttle": {**THROTTLE, "window": 60_000}},
    fails(),
    6,
    *["ConnectionError"] * 4,
    *["ThrottleException"] * 3,
    "ConnectionError",
    *["ThrottleException"] * 2,
    "ConnectionError",
    scene=calls_at(*[0.0] * 6, 0.6, 0.6, 0, 0.6, 0.6),
)
row(
    "throttle: interrupted attempts are failures",
    {"adaptive_throttle": THROTTLE, "timeout": {"value": 200}},
    sleeps_long,
    4,
    *["TimeoutException"] * 4,
    "ThrottleException",
    scene=calls(5),
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "throttle: what it skips is accepted",
    {"adaptive_throttle": {**THROTTLE, "skip_on": ConnectionError}},
    fails(),
    6,
    *["ConnectionError"] * 6,
    scene=calls(6),
)
row(
    "throttle: what the rate limit inside refuses is neither",
    {"adaptive_throttle": THROTTLE, "rate_limit": {"value": 1, "window": 60_000}},
    serves,
    1,
    "served",
    *["RateLimitException"] * 11,
    scene=calls(12),
)
row(
    "throttle: cancelled attempts are neither",
    {"adaptive_throttle": {"min_requests": 1}},
    sleeps_long,
    1,
    "cancelled",
    scene=cancelled(1),
    blocking=ENCLOSED,
)
row(
    "throttle: control flow is neither",
    lambda run: {"fallback": replaced(run), "adaptive_throttle": {"min_requests": 1}},
    fails(Halt),
    4,
    *["Halt"] * 4,
    scene=calls(4),
)

# A circuit of a fleet: the call that is refused when the delay is over asks for a place, and the next one is the probe


def in_fleet(scene: Scene) -> Scene:
    """Return *scene* with a fleet, of which this process is the only one."""

    async def joined(run: Run) -> None:
        configure(fleet=MemoryFleet())
        await scene(run)
        configure(fleet=None)

    return joined


SHARED: Policies = {"circuit_breaker": BREAKER, "fleet_wide": {}}
REFUSED = "CircuitBreakerOpenException"
row(
    "fleet: a probe closes the circuit",
    SHARED,
    fails(times=2),
    4,
    *["ConnectionError"] * 2,
    *[REFUSED] * 2,
    *["served"] * 2,
    scene=in_fleet(calls_at(0, 0, 0, 5.1, 0, 0)),
)
row(
    "fleet: a probe that fails opens the circuit",
    lambda run: {"fallback": replaced(run), **SHARED},
    fails(),
    3,
    *["instead of ConnectionError after 1"] * 2,
    f"instead of {REFUSED} after 1",
    "instead of ConnectionError after 1",
    f"instead of {REFUSED} after 1",
    scene=in_fleet(calls_at(0, 0, 5.1, 0, 0)),
)
row(
    "fleet: the probe is the retry of the call that was refused",
    {**SHARED, "retry": again(delay=100)},
    fails(times=2),
    3,
    REFUSED,
    "served",
    scene=in_fleet(calls_at(0, 5.1)),
)
row(
    "fleet: without one all is local",
    SHARED,
    fails(times=2),
    3,
    *["ConnectionError"] * 2,
    REFUSED,
    "served",
    scene=calls_at(0, 0, 0, 5.1),
)


async def probe_cancelled(run: Run) -> None:
    """Open the circuit, let a probe begin, end it from outside, and let another one begin."""
    for gap in (0.0, 0.0, 5.1):
        await run.passes(gap)
        await run.call()
    await run.call_cancelled(0.5)
    await run.call()
    await run.call()


async def sleeps_once(run: Run) -> Any:
    """Fail twice, then wait for long, and return from then on."""
    if run.attempts == 3:
        await run.sleep(3)
    return await fails(times=2)(run)


row(
    "fleet: a cancelled probe gives its place back",
    SHARED,
    sleeps_once,
    4,
    *["ConnectionError"] * 2,
    REFUSED,
    "cancelled",
    REFUSED,
    "served",
    scene=in_fleet(probe_cancelled),
    blocking=ENCLOSED,
)

# Calls that share a result: a call that is alone stays as it was

ALONE = {"key": None}

row(
    "coalesce: one after the other",
    lambda run: {
        "coalesce": ALONE,
        "fallback": replaced(run),
        "retry": again(),
        "circuit_breaker": {**BREAKER, "request_volume_threshold": 9},
        "timeout": DEADLINE,
        "bulkhead": {"value": 1, "waiting_task_queue": 1},
    },
    fails(times=1),
    3,
    "served",
    "served",
    scene=calls(2),
)
row("coalesce: failures", {"coalesce": ALONE, "retry": again()}, fails(), 6, *["ConnectionError"] * 2, scene=calls(2))

# The cost of retries

SPENT = {"ratio": 0, "burst": 1}

row("budget: a retry that helps is free", {"retry": again(), "retry_budget": SPENT}, fails(times=1), 2, "served")
row(
    "budget: spent, with a fallback",
    lambda run: {"fallback": replaced(run), "retry": again(delay=300), "retry_budget": SPENT},
    fails(),
    3,
    "instead of ConnectionError after 2",
    "instead of ConnectionError after 1",
    scene=calls(2),
)
row(
    "budget: time-outs and refusals cost as any",
    {
        "retry": again(max_retries=4),
        "retry_budget": {"ratio": 0, "burst": 3},
        "circuit_breaker": {**BREAKER, "request_volume_threshold": 2},
        "timeout": {"value": 200},
    },
    sleeps_long,
    2,
    "CircuitBreakerOpenException",
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "budget: a refused result costs as any",
    {"retry": again(), "retry_budget": SPENT, "retry_when": {"result": lambda result: True, "give": "result"}},
    serves,
    3,
    "served",
    "served",
    scene=calls(2),
)
row(
    "budget: control flow is not asked about",
    {"retry": again(), "retry_budget": SPENT},
    fails(Halt, times=2),
    3,
    "Halt",
    "Halt",
    "served",
    scene=calls(3),
)

# Hedges: in the asynchronous ways only

HEDGE = {"delay": 300, "quantile": 0}

row(
    "hedge: slow once",
    {
        "hedge": HEDGE,
        "retry": again(),
        "circuit_breaker": BREAKER,
        "timeout": {"value": 9000},
        "bulkhead": {"value": 2, "waiting_task_queue": 1},
    },
    serves_slowly_once,
    3,
    "served",
    "served",
    scene=calls(2, gap=9),
)
row("hedge: failure, then success", {"hedge": HEDGE, "retry": again()}, fails(times=1), 2, "served")
row("hedge: failures, two at a time", {"hedge": HEDGE, "retry": again()}, sleeps_a_little, 6, "ConnectionError")
for kind, shown in ((Halt, "Halt"), (asyncio.CancelledError, "interruption")):
    row(f"hedge: {kind.__name__}", {"hedge": HEDGE, "retry": again()}, fails(kind), 1, shown)
row("hedge: cancelled", {"hedge": HEDGE, "retry": again()}, sleeps_long, 2, "cancelled", scene=cancelled(0.5))

# Deadlines of whole calls

WHOLE = {"value": 1000}

row("deadline: in time", {"deadline": WHOLE, "retry": again(), "timeout": {"value": 500}}, serves, 1, "served")
row(
    "deadline: interrupted",
    {"deadline": WHOLE, "retry": again(), "circuit_breaker": BREAKER, "bulkhead": {"value": 1}},
    sleeps_long,
    3,
    *["TimeoutException"] * 3,
    scene=calls(3),
)
row(
    "deadline: passes in a later attempt",
    {"deadline": WHOLE, "retry": again(max_retries=9, delay=100), "timeout": {"value": 300}},
    sleeps_long,
    3,
    "TimeoutException",
    offloaded=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "deadline: a delay would reach it",
    {"deadline": WHOLE, "retry": again(max_retries=9, delay=400)},
    fails(),
    3,
    "ConnectionError",
)
row(
    "deadline: and replaced",
    lambda run: {"deadline": WHOLE, "fallback": replaced(run), "retry": again()},
    sleeps_long,
    1,
    "instead of TimeoutException after 1",
)
row(
    "deadline: ends late",
    {"deadline": WHOLE, "retry": again()},
    serves_late,
    1,
    "TimeoutException",
    detached=Differs(LEFT_BEHIND, leaves_out=("outcomes", "counts")),
)
row(
    "deadline: inside a nearer one",
    {"deadline": {"value": 5000}, "retry": again(), "circuit_breaker": BREAKER},
    sleeps_long,
    1,
    "TimeoutException",
    scene=within(0.5),
)
