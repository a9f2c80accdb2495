"""The environments of asynchronous calls, and the description of an attempt that runs in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from .._deadline.attempt_record import AttemptRecord

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    from typing import TypeVarTuple

    from .._strategy.bulkhead import Bulkhead
    from .._strategy.left_behind import LeftBehind
    from ..typing import Timer

    Ts = TypeVarTuple("Ts")
    Run: TypeAlias = asyncio.Task[Any] | concurrent.futures.Future[Any]
    """A call that runs beside another call."""

MakeCall: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


class Attempt(NamedTuple):
    """One attempt that runs detached from its caller, who does not wait for it beyond the deadline."""

    record: AttemptRecord
    """The key of the attempt's permit, and the place for the facts about the attempt."""
    function: Callable[..., Any]
    args: Iterable[Any]
    kwargs: Mapping[str, Any]
    bulkhead: Bulkhead | None
    """The bulkhead whose permit the attempt waits for; the permit is released when the body really ends."""
    deadline: float | None
    """The moment at which the caller stops waiting, on the shared clock; ``None``: never.

    The body is interrupted then. A queued attempt is withdrawn, and its body never starts."""
    interrupt: bool
    """Whether a body on a thread is interrupted at the deadline."""
    awaits: bool | None
    """Whether the outcome of an awaitable that the body returns is the outcome of the attempt.

    ``None``: unless the awaitable is a future of ``concurrent.futures``."""
    timeout_message: Callable[[AttemptRecord], str] = lambda _: "timed out"
    """Returns the message of the ``TimeoutException`` of *record*."""
    seconds: float = 0.0
    """Seconds from the start of the attempt to the deadline; attempts with the same length are watched together."""
    left_behind: LeftBehind | None = None
    """Records a body that runs on after its deadline; set whenever there is a deadline."""


class StoppedIteration(RuntimeError):
    """The replacement of a ``StopIteration``, its cause, in a coroutine, which would take it for a result."""

    @classmethod
    def of(cls, error: BaseException) -> BaseException:
        """Return *error* as it may be raised in a coroutine."""
        if not isinstance(error, StopIteration):
            return error
        stand_in = cls("the function raised StopIteration")
        stand_in.__cause__ = error
        return stand_in

    @staticmethod
    def meant(error: BaseException) -> BaseException:
        """Return the error that *error* replaces, or *error* itself."""
        cause = error.__cause__ if isinstance(error, StoppedIteration) else None
        return error if cause is None else cause


class Wait(NamedTuple):
    """A wait of a call until another call wakes it."""

    ident: int
    """The thread that waits; 0 if no thread does."""
    wake: Callable[[], object]
    """Wakes the call, from any thread; also before the wait starts."""
    awaitable: Awaitable[object]
    """To be awaited once."""


class Environment(Protocol):
    """The ways in which an asynchronous call waits; only the driver awaits the results of its methods."""

    pause: Callable[[float], Awaitable[None]]
    """Waits between two attempts."""
    attempt: Callable[[Attempt], Awaitable[Any]]
    """Runs an attempt; returns its result, or raises its failure, or ``TimeoutException`` at its deadline."""
    ident: Callable[[], int]
    """Returns the thread whose absence in the child of a fork leaves the call behind; 0: every child leaves it."""
    new_wait: Callable[[], Wait]
    """Creates a wait of the call, until another call wakes it."""
    start_child: Callable[
        [MakeCall, Callable[[], object], Callable[[Run], object], Callable[[], object]], Awaitable[None]
    ]
    """Starts a call beside the running call, in a copy of its context.

    Args:
        make: Creates the coroutine of the call.
        prepare: Sets variables of that context.
        on_start: Receives the call before its code runs, so that it can be cancelled after any interruption.
        on_end: Is called from any thread when the call has ended, also by a cancellation.
    """
    await_children: Callable[[Collection[Run]], Awaitable[None]]
    """Waits for cancelled calls that run beside the call, as a caller that cancels them would."""
    bind_detached_calls: Callable[[], Awaitable[Timer | None]]
    """Marks the deadline that started last, so that detached attempts that are made from now on end with it.

    Returns an object to cancel when the deadline is over.
    """

    @staticmethod
    def call_later(seconds: float, callback: Callable[[], object], is_usual: bool = False) -> Timer:
        """Run a short callback after *seconds*; *is_usual*: many calls pass the same number of seconds."""
        ...

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Awaitable[Any]:
        """Run a fallback or another function of the application, and await its result if that is awaitable."""
        ...
