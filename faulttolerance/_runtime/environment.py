"""Where the attempts of an asynchronous call run: as tasks of an event loop, or on threads of the pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing import TypeVarTuple

    from .._strategy.bulkhead import Bulkhead
    from .attempt_record import AttemptRecord

    Ts = TypeVarTuple("Ts")


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
    late: Callable[[], str] = lambda: "timed out"
    """Gives what the ``TimeoutException`` says."""
    seconds: float = 0.0
    """How long after its beginning the deadline is; attempts with the same length are watched together."""


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


class Environment(Protocol):
    """The ways in which an asynchronous call waits. Only the driver awaits what its methods return."""

    def pause(self, seconds: float) -> Awaitable[None]:
        """Wait between two attempts."""
        ...

    def attempt(self, attempt: Attempt) -> Awaitable[Any]:
        """Run an attempt; its result or failure, or ``TimeoutException`` at its deadline."""
        ...

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Awaitable[Any]:
        """Run a fallback or another function of the application, and await what it returns if that can be awaited."""
        ...
