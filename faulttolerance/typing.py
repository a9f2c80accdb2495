"""Protocols that an application implements, and the shapes that annotations name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from ._cause import CausedBy

if TYPE_CHECKING:
    from types import CoroutineType as Coroutine  # as which pyright takes what an ``async def`` returns

    from ._event import Event
    from ._guard.callback import ExecutionContext
    from ._runtime.clock import Alarm
else:
    from collections.abc import Coroutine

__all__ = ["AsyncCall", "Clock", "Duration", "EventSink", "ExceptionSet", "FallbackHandler", "Timer"]

Duration: TypeAlias = float | timedelta | str
"""A number in the unit that stands beside it, a ``timedelta``, or text such as ``"400ms"``, ``"2s"``, ``"PT0.4S"``."""

ExceptionSet: TypeAlias = type[BaseException] | CausedBy | Iterable[type[BaseException] | CausedBy]
"""One exception class, or several; ``caused_by(...)`` counts as one."""

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class FallbackHandler(Protocol[T_co]):
    """Computes what a guarded call returns when it failed (specification, chapter Fallback).

    A new handler is made for each fallback, without arguments. ``handle`` may be a coroutine function where the guarded
    function is asynchronous.
    """

    def handle(self, context: ExecutionContext) -> T_co:
        """Return the substitute result; ``context.failure`` is what went wrong."""
        ...


class AsyncCall(Coroutine[Any, Any, T_co]):  # type: ignore[misc]  # final it is at run time only
    """What a call of an ``@asynchronous async def`` returns: a coroutine for whoever wants one, and a handle.

    It runs as a task, begun at once where a loop runs, else when it is first awaited. It may be awaited more than once.
    """

    __slots__ = ()

    @abstractmethod
    def cancel(self, msg: Any = None) -> bool:
        """Ask the call to end with ``CancelledError``; false where it is over."""

    @abstractmethod
    def cancelled(self) -> bool:
        """Whether the call ended by cancellation."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the call is over."""

    @abstractmethod
    def result(self) -> T_co:
        """What the call returned or raised; ``InvalidStateError`` while it is not over."""

    @abstractmethod
    def exception(self) -> BaseException | None:
        """What the call raised; ``InvalidStateError`` while it is not over."""

    @abstractmethod
    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call *callback* with the task, on its loop, once the call is over; begins the call."""


class Timer(Protocol):
    """A callback that is due at a moment."""

    def cancel(self) -> Any:
        """Forget the callback if it has not begun."""
        ...


class Clock(Protocol):
    """Time and chance as the library sees them; ``faulttolerance.testing.virtual_time`` swaps both."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def sleep(self, seconds: float, alarm: Alarm | None = None) -> None:
        """Block the calling thread until then, or until *alarm* rings.

        Raises ``Interrupted`` as soon as a deadline of this thread passes.
        """
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback, on a thread of the clock, once ``monotonic()`` has reached *when*."""
        ...


class EventSink(Protocol):
    """Is told of what the guards do; any function of one argument is one. See ``faulttolerance.instrumentation``."""

    def __call__(self, event: Event, /) -> object:
        """Take note of *event*: on the thread of the call, outside every lock."""
        ...
