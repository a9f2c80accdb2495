"""What a synchronous guard does on its caller's thread besides calling the method."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, TypeAlias

from .._log import WARNING, log
from .clock import clock

__all__ = ["Arguments", "Aside", "GuardedCall", "pause", "warn_of_coroutine"]

Arguments: TypeAlias = tuple[Any, ...]
GuardedCall: TypeAlias = Callable[[Arguments, Mapping[str, Any]], Any]
"""A guarded function that is given its arguments as they are, unspread."""
Aside: TypeAlias = Callable[[Arguments, Mapping[str, Any], BaseException, int], Any]
"""Code of the application beside the method itself: arguments of the call, its failure, how many attempts were made."""

_warned: set[str] = set()


def pause(name: str, seconds: float) -> None:
    """Wait between two attempts; once per guard, warn where that holds up an event loop (contract R12)."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None and name not in _warned:
        _warned.add(name)
        log(
            WARNING,
            "%s delays a retry by %.3f s on the thread of a running event loop; every task of the loop waits meanwhile",
            name,
            seconds,
        )
    clock.sleep(seconds)


def warn_of_coroutine(name: str, result: object) -> None:
    """Warn where a synchronous guard let a coroutine pass: whether it fails, nobody sees (contract R8)."""
    if isinstance(result, CoroutineType):
        warnings.warn(
            f"{name} is guarded as a synchronous function and returned a coroutine: the failure of a coroutine that is"
            " awaited later is not seen; write `async def`, or `@asynchronous` with an awaitable type",
            RuntimeWarning,
            stacklevel=4,
        )
