"""Protocols that an application implements, what it is given there, and the shapes that annotations name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from ._cause import CausedBy

if TYPE_CHECKING:
    from types import CoroutineType as Coroutine  # as which pyright takes what an ``async def`` returns

    from ._event import Event
else:
    from collections.abc import Coroutine

__all__ = ["AsyncCall", "Clock", "Duration", "EventSink", "ExceptionSet", "FallbackHandler", "Timer"]

Duration: TypeAlias = float | timedelta | str
"""A number in the unit that stands beside it, a ``timedelta``, or text such as ``"400ms"``, ``"2s"``, ``"PT0.4S"``."""

ExceptionSet: TypeAlias = type[BaseException] | CausedBy | Iterable[type[BaseException] | CausedBy]
"""One exception class, or several; ``caused_by(...)`` counts as one."""

Key: TypeAlias = Callable[..., Hashable] | str | tuple[str, ...] | None
"""A callable with the parameters of the guarded function, the names of some of these, or ``None``: the target and all
arguments. Of a method, the callable may leave the instance or the class out."""

T_co = TypeVar("T_co", covariant=True)


class ExecutionContext:
    """One guarded call, as fallbacks and ``before_retry`` see it (specification, ``ExecutionContext``).

    Attributes:
        method: The guarded function.
        target: The instance on which a method was called, the class for a class method, ``None`` for a function.
        args: The positional arguments as they were passed, without *target*.
        kwargs: The keyword arguments as they were passed.
        failure: What the call failed with.
        attempt: The number of the attempt, the first being 1: for a fallback the last one that was made, before a retry
            the one that is about to begin.
    """

    __slots__ = ("_parameters", "args", "attempt", "failure", "kwargs", "method", "target")

    def __init__(
        self,
        method: Callable[..., Any],
        target: Any = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        failure: BaseException | None = None,
        attempt: int = 1,
    ) -> None:
        self.method = method
        self.target = target
        self.args = args
        self.kwargs: Mapping[str, Any] = {} if kwargs is None else kwargs
        self.failure = failure
        self.attempt = attempt
        self._parameters: tuple[Any, ...] | None = None

    @property
    def parameters(self) -> tuple[Any, ...]:
        """One value per parameter in the order of the signature, without *target*; the default where none was passed.

        The value for ``*args`` is a tuple, that for ``**kwargs`` a dictionary. Raises ``TypeError`` where the call's
        arguments do not fit the signature.
        """
        if self._parameters is None:
            import inspect

            signature = inspect.signature(self.method)
            target = () if self.target is None else (self.target,)
            bound = signature.bind(*target, *self.args, **self.kwargs)
            bound.apply_defaults()
            values = tuple(bound.arguments.values())
            if target and next(iter(signature.parameters.values())).kind is inspect.Parameter.VAR_POSITIONAL:
                values = (values[0][1:], *values[1:])  # a method that takes itself as one of *args
            elif target:
                values = values[1:]
            self._parameters = values
        return self._parameters

    def __repr__(self) -> str:
        name = getattr(self.method, "__qualname__", repr(self.method))
        return f"<ExecutionContext of {name}: attempt {self.attempt}, failure {self.failure!r}>"


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


class Alarm(Protocol):
    """Ends one sleep early, from any thread."""

    rings: bool
    """Whether it rang, before the sleep or in it."""

    def ends(self, sleep: Callable[[], object] | None) -> None:
        """End a sleep by calling *sleep*, which looks at ``rings`` afterwards."""
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
