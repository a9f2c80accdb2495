"""One attempt, what it holds, and where those of asynchronous calls run: as tasks of a loop, or on threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
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
    """A call that goes on beside another one."""

MakeCall: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


class Attempt(NamedTuple):
    """One attempt that runs detached from its caller, who does not wait for it beyond the deadline."""

    record: AttemptRecord
    """The key of its permit, and the place for the facts about it."""
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    bulkhead: Bulkhead | None
    """The bulkhead whose permit it needs, queueing for it; the permit goes back when the body really ends."""
    deadline: float | None
    """When the caller stops waiting, on the shared clock; ``None``: never. The body is interrupted then, and one that
    is still queued is withdrawn and never begins."""
    interrupt: bool
    """Whether a body on a thread is interrupted at the deadline."""
    awaits: bool | None
    """Whether the outcome of an awaitable that the body returns is the attempt's; ``None``: unless that is a future of
    ``concurrent.futures``."""
    late: Callable[[AttemptRecord], str] = lambda _: "timed out"
    """Gives what the ``TimeoutException`` of *record* says."""
    seconds: float = 0.0
    """How long after its beginning the deadline is; attempts with the same length are watched together."""
    left_behind: LeftBehind | None = None
    """Notes a body that goes on after its deadline; there wherever there is one."""


class StoppedIteration(RuntimeError):
    """Stands for a ``StopIteration``, its cause, on the way into a coroutine and out: that takes one for a result."""

    @classmethod
    def of(cls, error: BaseException) -> BaseException:
        """Give *error* as it may be raised in a coroutine."""
        if not isinstance(error, StopIteration):
            return error
        stand_in = cls("the function raised StopIteration")
        stand_in.__cause__ = error
        return stand_in

    @staticmethod
    def meant(error: BaseException) -> BaseException:
        """Give what *error* stands for."""
        cause = error.__cause__ if isinstance(error, StoppedIteration) else None
        return error if cause is None else cause


class InItsContext:
    """Keeps the context of an error that is raised in the block, instead of what the caller handles."""

    __slots__ = ("_context",)

    def __init__(self, error: BaseException) -> None:
        self._context = error.__context__

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            BaseException.__setattr__(error, "__context__", self._context)  # what is frozen refuses an assignment


class Turn(NamedTuple):
    """What a call waits for until another one wakes it."""

    ident: int
    """The thread that waits; 0 where none does."""
    wake: Callable[[], object]
    """Wakes it, from any thread; before it waits, too."""
    comes: Awaitable[object]
    """To be awaited once."""


class Environment(Protocol):
    """The ways in which an asynchronous call waits. Only the driver awaits what its methods return."""

    pause: Callable[[float], Awaitable[None]]
    """Waits between two attempts."""
    attempt: Callable[[Attempt], Awaitable[Any]]
    """Runs an attempt; its result or failure, or ``TimeoutException`` at its deadline."""
    ident: Callable[[], int]
    """Returns the thread that leaves a call behind in the child of a fork, which is not there; 0: every child does."""
    turn: Callable[[], Turn]
    """Makes what the call can wait for until another one wakes it."""
    begin: Callable[[MakeCall, Callable[[], object], Callable[[Run], object], Callable[[], object]], Awaitable[None]]
    """Begins a call beside this one, in a copy of its context.

    Args:
        make: Makes the coroutine of the call.
        prepare: Sets variables of that context.
        begun: Gets the call before anything of it runs, for ``leave``, wherever this is interrupted.
        ended: Is called once the call has ended, also where it was cancelled, from any thread.
    """
    leave: Callable[[Collection[Run]], None]
    """Ends what goes on beside the call; nobody waits for it any more."""
    end: Callable[[Collection[Run]], Awaitable[None]]
    """Ends what goes on beside the call, and waits for it as the caller would, who gives up."""
    hand_on_deadline: Callable[[], Awaitable[Timer | None]]
    """Lets detached attempts that are made from now on end with the deadline that began last.

    Returns what is to be cancelled when that is over.
    """

    @staticmethod
    def call_later(seconds: float, callback: Callable[[], object], is_usual: bool = False) -> Timer:
        """Run a short callback after so long; *is_usual* says that many calls give the same number of seconds."""
        ...

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Awaitable[Any]:
        """Run a fallback or another function of the application, and await what it returns if that can be awaited."""
        ...
