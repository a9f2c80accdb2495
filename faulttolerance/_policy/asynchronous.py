"""The policy of ``@asynchronous``."""

from __future__ import annotations

from typing import final

from .parameter import Policy


@final
class Asynchronous(Policy):
    """Return at once; run the call on another thread, or as a task (specification, chapter Asynchronous)."""


@final
class AsynchronousNonBlocking(Policy):
    """Call the function on the caller's thread; its result is complete when the awaitable it returns is (SmallRye)."""
