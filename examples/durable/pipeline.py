"""Orders: reserve and charge in two branches, ship if both went well, and notify the customer.

The guards decide how a task is called: circuits, permits, time-outs, the retry of a conflict. The engine (DBOS) records
how far each order has come, and waits: a task that a guard refuses, or that failed, returns a delay, and the engine's
queue keeps it until then. No thread sleeps, and a process that dies loses nothing.

Guards are inside steps and nowhere else. They read clocks, draw random numbers and keep state. A workflow runs again
after a crash and has to decide the same again; the results of its steps come from the database.
"""

from __future__ import annotations

import http.client
import random
from collections.abc import Callable
from typing import NamedTuple

from dbos import DBOS, SetEnqueueOptions, WorkflowHandleAsync
from sqlalchemy.exc import OperationalError

from faulttolerance import Guard, RefusedException, fingerprint
from faulttolerance.policies import Bulkhead, CircuitBreaker, PartitionBy, Retry, Timeout

from .partners import DeclinedError, UnavailableError, ask
from .shop import ConflictError, SoldOutError, hold, release

TROUBLE = (OSError, http.client.HTTPException, UnavailableError, OperationalError)
"""Failures that another attempt may cure, later: the engine makes it. A time-out is an `OSError`."""
FINAL = (DeclinedError, SoldOutError)
"""Failures that no other attempt would change."""
PAUSE, LONGEST_PAUSE = 0.2, 2.0
"""Seconds until the next try if the failure names none: the first value, doubled with each try, up to the second."""
TRIES = 60
"""The tries of one task before an order is given up. Cleaning up has no limit."""
PERMITS = 6
"""The tasks of one kind that run at once in a process."""
THRESHOLD, DELAY = 6, 2.0
"""The calls that a circuit counts before it opens, and the seconds for which it stays open."""
POLL = 0.25
"""Seconds between two looks of the engine into its tables."""


class Order(NamedTuple):
    """An order of a customer, in the shop of one tenant."""

    number: str
    tenant: str
    article: str
    pieces: int
    card: str


class Outcome(NamedTuple):
    """The end of one try of a task: done, declined for good, or to be tried again after some seconds."""

    done: str = ""
    declined: str = ""
    after: float | None = None
    reason: str = ""


# The part of the guards.


def permits(kind: str) -> Guard:
    """Return the bulkhead of a kind of task, for all tenants. `ORDERS_CHARGE_BULKHEAD_VALUE=2` changes one."""
    return Guard(name=f"orders.{kind}", bulkhead=Bulkhead(PERMITS))


def tenant(order: Order, *_: str) -> str:
    """Return the key of the circuits."""
    return order.tenant


def circuit(kind: str) -> Guard:
    """Return the circuit of a kind of task: one for each tenant, because each has a bank and a carrier of its own."""
    return Guard(
        name=f"orders.{kind}.tenant",
        partition_by=PartitionBy(tenant),
        circuit_breaker=CircuitBreaker(
            fail_on=TROUBLE, request_volume_threshold=THRESHOLD, failure_ratio=0.7, delay=f"{DELAY}s"
        ),
        timeout=Timeout("2s"),
    )


conflicts = Guard(
    name="orders.conflicts",
    retry=Retry(max_retries=10, delay="15ms", jitter="15ms", retry_on=ConflictError),
)
"""The only retry inside the process: it takes milliseconds, and the next attempt reads the new version."""


@permits("reserve")
@circuit("reserve")
@conflicts
def reserve(order: Order) -> str:
    return hold(order.number, order.article, order.pieces)


@permits("charge")
@circuit("charge")
def charge(order: Order) -> str:
    return ask("POST", "charge", order.tenant, order.number, order.card)


@permits("ship")
@circuit("ship")
def ship(order: Order) -> str:
    return ask("POST", "ship", order.tenant, order.number)


@permits("undo")
@circuit("undo")
def undo(order: Order) -> str:
    """Call off shipping and payment, whether or not they have happened: an answer may have been lost."""
    try:
        ask("DELETE", "ship", order.tenant, order.number)
    except DeclinedError:
        return SHIPPED
    ask("DELETE", "charge", order.tenant, order.number)
    conflicts.call(release, order.number)
    return "undone"


@permits("notify")
@circuit("notify")
def notify(order: Order, text: str) -> str:
    return ask("POST", "notify", order.tenant, order.number, text)


SHIPPED = "shipped"
TASKS: tuple[Callable[..., str], ...] = (reserve, charge, ship, undo, notify)
KINDS: dict[str, Callable[..., str]] = {task.__name__: task for task in TASKS}


# The seam between the two.


def attempt(kind: str, order: Order, tries: int, *more: str) -> Outcome:
    """Return how a try ended. Only mistakes in the code raise: the engine's own retries are off."""
    try:
        return Outcome(done=KINDS[kind](order, *more))
    except FINAL as failure:
        return Outcome(declined=str(failure))
    except (RefusedException, ConflictError, *TROUBLE) as failure:
        asked: float | None = getattr(failure, "retry_after", None)
        pause = min(PAUSE * 2**tries, LONGEST_PAUSE) if asked is None else asked
        # At least as long as the callee asks for; and not all tasks at the same moment.
        return Outcome(after=pause * random.uniform(1.0, 1.5), reason=type(failure).__name__)


# The part of the engine.


@DBOS.workflow(name="task")
async def task(kind: str, order: Order, tries: int, *more: str) -> Outcome:
    """Try a task once. If the process dies, another tries again; the idempotency key makes that harmless."""
    return await DBOS.run_step_async({"name": kind}, attempt, kind, order, tries, *more)


async def done(order: Order, kinds: tuple[str, ...], *more: str, tries: int | None = None) -> dict[str, Outcome]:
    """Start the tasks of an order at once, try each until it is done or declined, and return how they ended."""
    begun: dict[str, WorkflowHandleAsync[Outcome]] = {}
    tried = dict.fromkeys(kinds, 0)
    ended: dict[str, Outcome] = {}
    for kind in kinds:
        begun[kind] = await DBOS.enqueue_workflow_async(kind, task, kind, order, 0, *more)
    while begun:
        first = await DBOS.wait_first_async(list(begun.values()), polling_interval_sec=POLL)
        [kind] = [kind for kind, handle in begun.items() if handle.workflow_id == first.workflow_id]
        outcome: Outcome = await first.get_result(polling_interval_sec=POLL)
        tried[kind] += 1
        if outcome.after is None:
            ended[kind] = outcome
        elif tried[kind] == tries:
            ended[kind] = Outcome(declined=f"given up after {tries} tries: {outcome.reason}")
        else:
            with SetEnqueueOptions(delay_seconds=outcome.after):
                begun[kind] = await DBOS.enqueue_workflow_async(kind, task, kind, order, tried[kind], *more)
            continue
        del begun[kind]
    return ended


@DBOS.workflow(name="fulfil", max_recovery_attempts=None)
async def fulfil(order: Order) -> str:
    """Reserve and charge at the same time; if both went well, ship."""
    for kinds in (("reserve", "charge"), ("ship",)):
        for outcome in (await done(order, kinds, tries=TRIES)).values():
            if outcome.declined:
                return f"refused: {outcome.declined}"
    return SHIPPED


@DBOS.workflow(name="order", max_recovery_attempts=None)
async def take(order: Order) -> str:
    """Fulfil an order, and clean up however that ended: a refusal, a mistake in the code, an operator's `cancel`.

    `fulfil` is a workflow of its own so that this one, the finalizer, goes on after it. It outlives the process, too.
    """
    began = await DBOS.run_step_async({"name": "configuration"}, fingerprint)
    await DBOS.update_workflow_attributes_async(order.number, {"configuration": began})
    try:
        handle = await DBOS.enqueue_workflow_async("fulfil", fulfil, order)
        end = await handle.get_result(polling_interval_sec=POLL)
    except Exception as failure:  # noqa: BLE001  # the finalizer runs after every end
        end = f"failed: {type(failure).__name__}"
    if end != SHIPPED:
        undone = (await done(order, ("undo",)))["undo"]
        end = SHIPPED if undone.done == SHIPPED else end
    await done(order, ("notify",), end)
    return end
