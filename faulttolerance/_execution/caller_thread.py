"""The parts of a synchronous guard that run on the caller's thread, besides the call of the method."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import CoroutineType
from typing import Any, TypeAlias
from weakref import ref

from .._deadline.clock import Alarm, clock
from .._log import WARNING, log
from .._platform.event_loop import loop_here
from .._platform.frames import module_of
from .._platform.unpatched import get_ident
from .._strategy.bulkhead import Bulkhead, Waiter
from .criticality import Criticality

Arguments: TypeAlias = tuple[Any, ...]
GuardedCall: TypeAlias = Callable[[Arguments, Mapping[str, Any]], Any]
"""A guarded function that receives its arguments as a tuple and a mapping, unspread."""
Callback: TypeAlias = Callable[[Arguments, Mapping[str, Any], BaseException, int], Any]
"""Code of the application beside the method: takes the arguments, the failure and the number of attempts of a call."""

_HEAP_TYPE = 1 << 9
"""``Py_TPFLAGS_HEAPTYPE``: a class that a program created, and that may disappear."""

_warned: set[str] = set()


def acquire_on_thread(bulkhead: Bulkhead, permit: object) -> Callable[[], float] | None:
    """Acquire a permit for an attempt of this thread: at once (returns ``None``), or by a call of the result.

    Raises:
        BulkheadException: The bulkhead and its queue are full.
    """
    alarm = Alarm()
    waiter = Waiter(permit, get_ident(), alarm.ring if bulkhead.max_wait else None, Criticality.current())
    return None if bulkhead.enter(waiter) is None else partial(_wait_for_permit, bulkhead, waiter, alarm)


def _wait_for_permit(bulkhead: Bulkhead, waiter: Waiter, alarm: Alarm) -> float:
    """Sleep until the permit is granted; return that moment.

    Raises:
        BulkheadException: No permit became free in time, or another call took the place.
        Interrupted: A deadline of this thread passed.
    """
    clock.sleep(max(0.0, waiter.until - clock.monotonic()), alarm)
    if not (waiter.admitted or waiter.reason):
        bulkhead.expire(waiter)
    if waiter.reason:
        raise bulkhead.refusal(waiter.reason)
    return clock.monotonic()


def pause(name: str, seconds: float) -> None:
    """Wait between two attempts; warn once per guard if that blocks an event loop (rule R12)."""
    if name not in _warned and loop_here() is not None:
        _warned.add(name)
        log(
            WARNING,
            "%s delays a retry by %.3f s on the thread of a running event loop; every task of the loop waits meanwhile",
            name,
            seconds,
        )
    clock.sleep(seconds)


_PLAIN_CLASSES: dict[int, ref[type]] = {}
"""The classes of results that need no ``await``, by their ids; the classes themselves are not kept alive."""


def is_pending(result: object) -> bool:
    """Return whether *result* must be awaited, or is a future without a successful result."""
    kind = type(result)
    if id(kind) in _PLAIN_CLASSES:
        return False
    if issubclass(kind, getattr(sys.modules.get("concurrent.futures"), "Future", ())):
        future: Any = result
        return not future.done() or future.cancelled() or future.exception(0) is not None
    if any("__await__" in vars(base) for base in kind.__mro__):
        return True
    ident = id(kind)
    _PLAIN_CLASSES[ident] = ref(kind, lambda _: _PLAIN_CLASSES.pop(ident, None))
    return False


def is_kept_by_module(kind: type) -> bool:
    """Return whether the module of *kind* keeps it alive; other code may keep it alive, too."""
    module = sys.modules.get(kind.__module__)
    return not kind.__flags__ & _HEAP_TYPE or (module is not None and vars(module).get(kind.__name__) is kind)


def warn_of_pending_result(name: str, result: object) -> None:
    """Warn that a synchronous guard returned *result*, whose later failure it cannot see (rule R8)."""
    kind = type(result)
    what = "a coroutine" if kind is CoroutineType else f"an object of the class {kind.__module__}.{kind.__qualname__}"
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and module_of(frame).partition(".")[0] == "faulttolerance":
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{name} is guarded as a synchronous function and returned {what}: the guard does not see a later failure."
        " Write `async def`; or put `@asynchronous_non_blocking` above a function that returns an awaitable;"
        " or guard the function that an executor runs",
        RuntimeWarning,
        stacklevel=level,
    )
