"""Protocols for applications to implement, the arguments they receive, and the shapes that annotations name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import timedelta
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from ._cause import CausedBy
from ._parameters import signature_of

if TYPE_CHECKING:
    from types import CoroutineType as Coroutine  # pyright's type of the result of an ``async def``

    from ._event import Event
else:
    from collections.abc import Coroutine

__all__ = ["AsyncCall", "Clock", "Duration", "EventSink", "ExceptionSet", "FallbackHandler", "Invocation", "Timer"]

Duration: TypeAlias = float | timedelta | str
"""A number in the unit of its parameter, a ``timedelta``, or text such as ``"400ms"``, ``"2s"``, ``"PT0.4S"``."""

ExceptionSet: TypeAlias = type[BaseException] | CausedBy | Iterable[type[BaseException] | CausedBy]
"""One exception class, or several; ``caused_by(...)`` counts as one."""

Key: TypeAlias = Callable[..., Hashable] | str | tuple[str, ...] | None
"""A callable with the parameters of the guarded function, the names of some parameters, or ``None``.

``None`` means the target and all arguments. For a method, the callable may omit the instance or the class.
"""

T_co = TypeVar("T_co", covariant=True)


class ExecutionContext:
    """One guarded call, as fallbacks and ``before_retry`` see it (specification, ``ExecutionContext``).

    Attributes:
        method: The guarded function.
        target: The instance on which a method was called, the class for a class method, ``None`` for a function.
        args: The positional arguments as they were passed, without *target*.
        kwargs: The keyword arguments as they were passed.
        failure: The exception with which the call failed.
        attempt: The number of the attempt, the first being 1: for a fallback the last attempt, before a retry the
            attempt that is about to start.
    """

    __slots__ = ("args", "attempt", "failure", "kwargs", "method", "target")

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

    @property
    def parameters(self) -> tuple[Any, ...]:
        """One value per parameter in the order of the signature, without *target*; defaults for omitted arguments.

        The value for ``*args`` is a tuple, the value for ``**kwargs`` a dictionary. Raises ``TypeError`` if the call's
        arguments do not fit the signature, or the function has none.
        """
        method = self.method if self.target is None else MethodType(self.method, self.target)
        signature = signature_of(method)
        if signature is None:
            raise TypeError(f"{self.method!r} has no signature")
        bound = signature.bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def __repr__(self) -> str:
        name = getattr(self.method, "__qualname__", repr(self.method))
        return f"<ExecutionContext of {name}: attempt {self.attempt}, failure {self.failure!r}>"


class Invocation:
    """One call on its way through an interceptor.

    Attributes:
        method: The guarded function.
        target: The instance, the class for a class method, ``None`` for a function.
        args: The positional arguments without *target*; the next step receives the tuple that is assigned here.
        kwargs: The keyword arguments; they can be assigned, too.
    """

    __slots__ = ("_proceed", "args", "kwargs", "method", "target")

    def __init__(
        self,
        method: Callable[..., Any],
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        proceed: Callable[[tuple[Any, ...], Mapping[str, Any]], Any],
    ) -> None:
        self.method = method
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self._proceed = proceed

    def proceed(self) -> Any:
        """Return the result of the next interceptor, of the policies, or of the method (or its awaitable)."""
        own = () if self.target is None else (self.target,)
        return self._proceed((*own, *self.args), self.kwargs)


@runtime_checkable
class FallbackHandler(Protocol[T_co]):
    """A handler that computes the result of a guarded call that failed (specification, chapter Fallback).

    A new handler is created for each fallback, without arguments. ``handle`` may be a coroutine function if the guarded
    function is asynchronous.
    """

    def handle(self, context: ExecutionContext) -> T_co:
        """Return the substitute result; ``context.failure`` is the failure of the call."""
        ...


class AsyncCall(Coroutine[Any, Any, T_co]):  # type: ignore[misc]  # final only at run time
    """The result of calling an ``@asynchronous async def``: a coroutine to await, and a handle.

    It runs as a task, started at once if a loop runs, else when it is first awaited. It may be awaited more than once.
    """

    __slots__ = ()

    @abstractmethod
    def cancel(self, msg: Any = None) -> bool:
        """Request that the call ends with ``CancelledError``; return false if it has already ended."""

    @abstractmethod
    def cancelled(self) -> bool:
        """Return whether the call ended by cancellation."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether the call has ended."""

    @abstractmethod
    def result(self) -> T_co:
        """Return the result of the call, or raise its exception; raise ``InvalidStateError`` before it has ended."""

    @abstractmethod
    def exception(self) -> BaseException | None:
        """Return the exception of the call; raise ``InvalidStateError`` before the call has ended."""

    @abstractmethod
    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call *callback* with the task, on its loop, when the call has ended; start the call if it has not started."""


class Timer(Protocol):
    """A callback that is due at a moment."""

    def cancel(self) -> Any:
        """Cancel the callback if it has not started."""
        ...


class Alarm(Protocol):
    """The means to end one sleep early, from any thread."""

    rings: bool
    """Whether the alarm rang, before the sleep or during it."""

    def ends(self, sleep: Callable[[], object] | None) -> None:
        """Register *sleep*, the function that ends a sleep; the sleeper reads ``rings`` afterwards."""
        ...


class Clock(Protocol):
    """Time and randomness for the library; ``faulttolerance.testing.virtual_time`` replaces both."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment; the value never decreases."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def sleep(self, seconds: float, alarm: Alarm | None = None) -> None:
        """Block the calling thread for *seconds*, or until *alarm* rings.

        Raises ``Interrupted`` as soon as a deadline of this thread passes.
        """
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run a short callback, on a thread of the clock, once ``monotonic()`` has reached *when*."""
        ...


class EventSink(Protocol):
    """A receiver of events; any function of one argument is a sink. See ``faulttolerance.instrumentation``."""

    def __call__(self, event: Event, /) -> object:
        """Receive *event*: on the thread of the call, outside every lock."""
        ...
