"""The policy of ``@asynchronous``."""

from __future__ import annotations

from typing import final

from .parameter import Policy


@final
class Asynchronous(Policy):
    """Return at once, and run the call on another thread, or as a task (specification, chapter Asynchronous)."""


@final
class AsynchronousNonBlocking(Policy):
    """Call the function on the caller's thread; the call ends when the returned awaitable is complete (SmallRye)."""
