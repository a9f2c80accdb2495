"""Where the attempts of an asynchronous call run: as tasks of an event loop, or on threads of the pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing import TypeVarTuple

    from .._strategy.bulkhead import Bulkhead
    from .attempt_record import AttemptRecord

    Ts = TypeVarTuple("Ts")

__all__ = ["Attempt", "Environment", "StoppedIteration"]


class Attempt:
    """One attempt that runs apart from its caller, who does not wait for it beyond the deadline.

    Args:
        record: The identity under which it holds its permit; ``timed_out``, ``running_since`` and ``admitted`` are
            written for the caller to read.
        function: The body.
        bulkhead: Where it has to get a permit, queueing for it; the permit goes back when the body really ends.
        deadline: When the caller stops waiting, on the shared clock; ``None``: never. The body is interrupted then, and
            one that is still queued is withdrawn and never begins.
        interrupt: Whether a body on a thread is interrupted at the deadline.
        awaits: Whether an awaitable that the body returns is part of the attempt: then its outcome is the attempt's.
            ``None``: it is unless it is a future of ``concurrent.futures``.
        late: Gives what the ``TimeoutException`` says.
        seconds: How long after its beginning the deadline is; attempts with the same length are watched together.
    """

    __slots__ = (
        "args",
        "awaits",
        "bulkhead",
        "deadline",
        "function",
        "interrupt",
        "kwargs",
        "late",
        "record",
        "seconds",
    )

    def __init__(
        self,
        record: AttemptRecord,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        bulkhead: Bulkhead | None,
        deadline: float | None,
        interrupt: bool,
        awaits: bool | None,
        late: Callable[[], str] = lambda: "timed out",
        seconds: float = 0.0,
    ) -> None:
        self.record = record
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.bulkhead = bulkhead
        self.deadline = deadline
        self.interrupt = interrupt
        self.awaits = awaits
        self.late = late
        self.seconds = seconds


class StoppedIteration(RuntimeError):
    """Stands for a ``StopIteration``, its cause, on the way into a coroutine and out: that takes one for a result."""

    @classmethod
    def of(cls, error: BaseException) -> BaseException:
        """*error* as it may be raised in a coroutine."""
        if not isinstance(error, StopIteration):
            return error
        stand_in = cls("the function raised StopIteration")
        stand_in.__cause__ = error
        return stand_in

    @staticmethod
    def meant(error: BaseException) -> BaseException:
        """What *error* stands for."""
        cause = error.__cause__ if isinstance(error, StoppedIteration) else None
        return error if cause is None else cause


class Environment(Protocol):
    """How an asynchronous call waits. What its methods return is awaited by the driver and by nothing else."""

    def pause(self, seconds: float) -> Awaitable[None]:
        """Wait between two attempts."""
        ...

    def attempt(self, attempt: Attempt) -> Awaitable[Any]:
        """Run an attempt; its result or failure, or ``TimeoutException`` at its deadline."""
        ...

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Awaitable[Any]:
        """Run a fallback or another function of the application, and await what it returns if that can be awaited."""
        ...
