"""The parts of the table of scenarios: its rows, and the bodies, callers and handlers in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from faulttolerance import Future, configure, on_deadline, retry, sleep, timeout, uninterruptible
from faulttolerance.testing import MemoryFleet

from .convention import INTERRUPTION
from .ways import Body, Policies, Run, Scene, Way

__all__ = [
    "Differs",
    "Fatal",
    "Halt",
    "Scenario",
    "again",
    "beside_one",
    "breaks",
    "calls",
    "calls_at",
    "cancelled",
    "cancelled_beside_one",
    "counts",
    "crowded",
    "fails",
    "fails_fatally_in_the_end",
    "fails_when_interrupted",
    "gives_a_coroutine",
    "holds",
    "holds_back",
    "in_a_fleet",
    "is_called_off",
    "of_call",
    "raises",
    "raises_again",
    "replaced",
    "serves",
    "serves_late",
    "serves_once",
    "sleeps_a_little",
    "sleeps_long",
    "slow_at_first",
    "stops",
    "swallows",
    "then_cancelled",
    "waits",
    "waits_inside",
    "within",
]


class Halt(BaseException):
    """Control flow of an application."""


class Fatal(Exception):
    """A failure that is never retried."""


class Differs(NamedTuple):
    """The outcome in a way that leaves late attempts behind, or in one that queues, and the reason."""

    why: str
    attempts: int | None = None
    outcomes: tuple[Any, ...] | None = None
    leaves_out: tuple[str, ...] = ()
    """Parts that are not compared: ``log``, ``left``, ``counts``, ``outcomes``."""


class Scenario(NamedTuple):
    """One row."""

    name: str
    policies: Callable[[Run], Policies]
    body: Body
    attempts: int
    """The number of times that the body begins."""
    outcomes: tuple[Any, ...]
    """The outcomes of the calls: their results, or the names of the classes of their exceptions."""
    scene: Scene
    differs: Mapping[str, Differs]
    """By convention; ``detached``: where late attempts are left behind; ``queueing``: where attempts may wait."""

    def difference(self, way: Way) -> Differs | None:
        """Return the outcome that the rules allow *way* instead, if any."""
        kinds = (way.convention, "detached" if way.is_detached else "", "queueing" if way.queues else "")
        return next((self.differs[kind] for kind in kinds if kind in self.differs), None)


def fails(kind: type[BaseException] = ConnectionError, times: int | None = None, **late: float) -> Body:
    """Return a body that fails so often, after it was busy for a time; ``None``: always."""

    async def body(run: Run) -> Any:
        if "works" in late:
            run.work(late["works"])
        if "sleeps" in late:
            await run.sleep(late["sleeps"])
        if times is None or run.attempts <= times:
            raise kind("it failed")
        return "served"

    return body


async def fails_fatally_in_the_end(run: Run) -> Any:
    """Fail at first with a failure to retry, and then with one that is never retried."""
    raise ConnectionError("it failed") if run.attempts == 1 else Fatal("it failed")


async def serves(run: Run) -> Any:
    """Return a result."""
    return "served"


async def serves_once(run: Run) -> Any:
    """Return a result at first, and fail from then on."""
    if run.attempts > 1:
        raise ConnectionError("it failed")
    return "served"


async def serves_slowly_once(run: Run) -> Any:
    """Sleep for long at first, and briefly from then on."""
    await run.sleep(5.0 if run.attempts == 1 else 0.1)
    return "served"


async def serves_late(run: Run) -> Any:
    """Return a result after the deadline; no interruption reaches the body."""
    run.work(2)
    return "served"


async def sleeps_long(run: Run) -> Any:
    """Wait beyond the deadline."""
    await run.sleep(5)
    return "served"


async def slow_at_first(run: Run) -> Any:
    """Wait beyond the deadline three times, and return soon from then on."""
    if run.attempts <= 3:
        await run.sleep(5)
    return "served"


async def holds_back(run: Run) -> Any:
    """Forbid interruptions for longer than there is time."""
    with uninterruptible():
        await run.sleep(2)
    return "served"


async def is_called_off(run: Run) -> Any:
    """Wait beyond the deadline in a block of ``on_deadline``, and fail when it is called off."""
    called: list[str] = []
    with on_deadline(lambda: called.append("off")):
        try:
            await run.sleep(5)
        except INTERRUPTION:
            raise OSError(f"called {called}") from None
    return "served"


async def sleeps_a_little(run: Run) -> Any:
    """Wait for less than there is time."""
    await run.sleep(0.4)
    raise ConnectionError("it failed")


async def waits_inside(run: Run) -> Any:
    """Wait in a guard of its own, whose deadline is the nearer one."""
    if run.way.is_on_loop:

        @retry(max_retries=1, jitter=0)
        @timeout(500)
        async def inner() -> None:
            await run.sleep(5)

        return await inner()

    @retry(max_retries=1, jitter=0)
    @timeout(500)
    def inner() -> None:  # type: ignore[no-redef, misc]
        sleep(5)

    return inner()


async def swallows(run: Run) -> Any:
    """Catch the interruption, and go on."""
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
    """Return a scene with so many calls, one after the other."""
    return calls_at(0.0, *[gap] * (count - 1))


def calls_at(*gaps: float) -> Scene:
    """Return a scene with a call after each of these times."""

    async def scene(run: Run) -> None:
        for gap in gaps:
            if gap:
                await run.passes(gap)
            await run.call()

    return scene


def within(seconds: float) -> Scene:
    """Return a scene with a call under an enclosing deadline."""

    async def scene(run: Run) -> None:
        await run.call_within(seconds)

    return scene


def cancelled(seconds: float) -> Scene:
    """Return a scene with a call that is ended from outside."""

    async def scene(run: Run) -> None:
        await run.call_cancelled(seconds)

    return scene


async def crowded(run: Run) -> None:
    """Call while the most calls run and wait."""
    await run.hold(2 if run.way.queues else 1)
    await run.call()


async def beside_one(run: Run) -> None:
    """Call while one call runs."""
    await run.hold(1)
    await run.call()


def cancelled_beside_one(seconds: float) -> Scene:
    """Return a scene with a call that is ended from outside while another one runs."""

    async def scene(run: Run) -> None:
        await run.hold(1)
        await run.call_cancelled(seconds)

    return scene


def then_cancelled(seconds: float) -> Scene:
    """Return a scene with two calls, the second of which is ended from outside."""

    async def scene(run: Run) -> None:
        await run.call()
        await run.call_cancelled(seconds)

    return scene


def in_a_fleet(scene: Scene, *, is_lost: bool = False) -> Scene:
    """Return *scene* with a configured fleet."""

    async def shared(run: Run) -> None:
        fleet = MemoryFleet()
        configure(fleet=fleet)
        if is_lost:
            fleet.lose()
        await scene(run)
        configure(fleet=None)

    return shared


async def holds(run: Run) -> Any:
    """Hold the permit while the scenario goes on."""
    await run.sleep(50)
    return "served"


def replaced(run: Run) -> Policies:
    """Return a fallback that reports its context."""

    def handler(context: Any) -> Any:
        run.look()
        return f"instead of {type(context.failure).__name__} after {context.attempt}"

    return {"value": handler}


def again(**values: Any) -> Policies:
    """Return retries without jitter."""
    return {"max_retries": 2, "delay": 0, "jitter": 0, **values}


def raises(run: Run) -> Policies:
    """Return a fallback with a failure of its own."""

    def handler(context: Any) -> Any:
        raise LookupError("no substitute")

    return {"value": handler}


def raises_again(run: Run) -> Policies:
    """Return a fallback that raises the call's failure again."""

    def handler(context: Any) -> Any:
        raise context.failure

    return {"value": handler}


def waits(run: Run) -> Policies:
    """Return a fallback that takes long."""
    if run.way.is_on_loop:

        async def awaited(context: Any) -> Any:
            run.look()
            await run.sleep(5)

        return {"value": awaited}

    def handler(context: Any) -> Any:
        run.look()
        sleep(5)

    return {"value": handler}


def stops(*_: Any) -> Any:
    """Raise control flow: a handler, predicate or hook that ends more than the call."""
    raise Halt("all of it")


def of_call(value: Any) -> Any:
    """Return the body's result; a predicate of a body with a future gets the future (R7)."""
    return value.result() if isinstance(value, Future) else value


async def counts(run: Run) -> Any:
    """Return the number of the attempt."""
    return run.attempts


def breaks(*_: Any) -> Any:
    """Raise an error: a predicate with a mistake."""
    raise ZeroDivisionError("a mistake")


def gives_a_coroutine(*_: Any) -> Any:
    """Return a coroutine: a predicate whose answer cannot be awaited."""

    async def answer() -> bool:
        return True

    return answer()
