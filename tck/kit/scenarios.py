"""What can become of a call, as a table: policies, what each attempt does, how it is called, what comes out.

Each row runs in every way of calling, and all have to agree. Where the specification or the contract makes a
difference, the row says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from faulttolerance import Future, Interrupted, sleep

from .convention import INTERRUPTION
from .ways import Body, Policies, Run, Scene, Way

__all__ = ["SCENARIOS", "Differs", "Scenario"]


class Halt(BaseException):
    """Control flow of an application."""


class Fatal(Exception):
    """A failure that nobody retries."""


class Differs(NamedTuple):
    """What a way that leaves late attempts behind, or one that queues, comes to instead, and why."""

    why: str
    attempts: int | None = None
    outcomes: tuple[Any, ...] | None = None
    leaves_out: tuple[str, ...] = ()
    """What is not compared: ``log``, ``left``, ``counts``, ``outcomes``."""


class Scenario(NamedTuple):
    """One row."""

    name: str
    policies: Callable[[Run], Policies]
    body: Body
    attempts: int
    """How often the body begins."""
    outcomes: tuple[Any, ...]
    """What the calls come to: what they return, or the class of what they raise by its name."""
    scene: Scene
    differs: Mapping[str, Differs]
    """By convention, or ``apart`` for those that leave late attempts behind, ``queueing`` for those that may wait."""

    def difference(self, way: Way) -> Differs | None:
        """What the contract lets *way* do otherwise."""
        kinds = (way.convention, "apart" if way.is_apart else "", "queueing" if way.queues else "")
        return next((self.differs[kind] for kind in kinds if kind in self.differs), None)


SCENARIOS: dict[str, Scenario] = {}


async def _once(run: Run) -> None:
    await run.call()


def row(
    name: str,
    policies: Policies | Callable[[Run], Policies],
    body: Body,
    attempts: int,
    *outcomes: Any,
    scene: Scene = _once,
    **differs: Differs,
) -> None:
    """Put a row into the table."""
    made = policies if callable(policies) else lambda _: policies
    SCENARIOS[name] = Scenario(name, made, body, attempts, outcomes, scene, differs)


def fails(kind: type[BaseException] = ConnectionError, times: int | None = None, **late: float) -> Body:
    """Make a body that fails so often, after it was busy for a time; ``None``: always."""

    async def body(run: Run) -> Any:
        if "works" in late:
            run.work(late["works"])
        if "sleeps" in late:
            await run.sleep(late["sleeps"])
        if times is None or run.attempts <= times:
            raise kind("it failed")
        return "served"

    return body


async def serves(run: Run) -> Any:
    """Succeed."""
    return "served"


async def serves_late(run: Run) -> Any:
    """Succeed after the deadline, which does not reach it."""
    run.work(2)
    return "served"


async def sleeps_long(run: Run) -> Any:
    """Wait beyond the deadline."""
    await run.sleep(5)
    return "served"


async def swallows(run: Run) -> Any:
    """Take the interruption for no reason to end."""
    try:
        await run.sleep(5)
    except INTERRUPTION:
        pass
    return "served"


async def fails_when_interrupted(run: Run) -> Any:
    """Fail because of the interruption."""
    try:
        await run.sleep(5)
    except INTERRUPTION:
        raise OSError("lost") from None


def calls(count: int, gap: float = 0.0) -> Scene:
    """Call so often, one after the other."""

    async def scene(run: Run) -> None:
        for number in range(count):
            if number and gap:
                await run.passes(gap)
            await run.call()

    return scene


def within(seconds: float) -> Scene:
    """Call under an enclosing deadline."""

    async def scene(run: Run) -> None:
        await run.call_within(seconds)

    return scene


def cancelled(seconds: float) -> Scene:
    """Call, and end it from outside."""

    async def scene(run: Run) -> None:
        await run.call_cancelled(seconds)

    return scene


async def crowded(run: Run) -> None:
    """Call while as many calls run and wait as may."""
    await run.hold(2 if run.way.queues else 1)
    await run.call()


async def holds(run: Run) -> Any:
    """Hold what was taken while the scenario goes on."""
    await run.sleep(50)
    return "served"


def replaced(run: Run) -> Policies:
    """A fallback that tells what it sees."""

    def handler(context: Any) -> Any:
        run.look()
        return f"instead of {type(context.failure).__name__} after {context.attempt}"

    return {"value": handler}


def again(**values: Any) -> Policies:
    """Retries without jitter."""
    return {"max_retries": 2, "delay": 0, "jitter": 0, **values}


BREAKER = {"request_volume_threshold": 2, "failure_ratio": 1.0, "delay": 5000}
DEADLINE = {"value": 1000}
LEFT_BEHIND = "an attempt that is not over at its deadline is left behind, and nobody waits for its end (R3, R7b)"
LOG = ("log",)

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
row("not retryable after a retry", {"retry": again(abort_on=Fatal)}, fails(Fatal, sleeps=0.1), 1, "Fatal")

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
    apart=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
)
row(
    "swallows the interruption",
    {"retry": again(), "timeout": DEADLINE},
    swallows,
    3,
    "TimeoutException",
    apart=Differs(LEFT_BEHIND, leaves_out=("outcomes",)),
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


def raises(run: Run) -> Policies:
    """A fallback with a failure of its own."""

    def handler(context: Any) -> Any:
        raise LookupError("no substitute")

    return {"value": handler}


def raises_again(run: Run) -> Policies:
    """A fallback that gives up too."""

    def handler(context: Any) -> Any:
        raise context.failure

    return {"value": handler}


def waits(run: Run) -> Policies:
    """A fallback that takes long."""
    if run.way.is_on_loop:

        async def awaited(context: Any) -> Any:
            run.look()
            await run.sleep(5)

        return {"value": awaited}

    def handler(context: Any) -> Any:
        run.look()
        sleep(5)

    return {"value": handler}


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


# Predicates and what runs beside


def of_call(value: Any) -> Any:
    """What the body returned; where that is to be a future, a predicate is given the future (R7)."""
    return value.result() if isinstance(value, Future) else value


async def counts(run: Run) -> Any:
    """Give the number of the attempt."""
    return run.attempts


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


def breaks(*_: Any) -> Any:
    """A predicate with a mistake."""
    raise ZeroDivisionError("a mistake")


def gives_a_coroutine(*_: Any) -> Any:
    """A predicate whose answer nobody can await."""

    async def answer() -> bool:
        return True

    return answer()


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
