"""What ``@asynchronous`` asks for."""

from __future__ import annotations

from typing import ClassVar, final

from .parameter import Policy

__all__ = ["Asynchronous", "AsynchronousNonBlocking"]


@final
class Asynchronous(Policy):
    """Return at once; run the call on another thread, or as a task (specification, chapter Asynchronous)."""

    annotation: ClassVar[str] = "Asynchronous"


@final
class AsynchronousNonBlocking(Policy):
    """Call the function on the caller's thread; its result is complete when the awaitable it returns is (SmallRye)."""

    annotation: ClassVar[str] = "AsynchronousNonBlocking"
