"""The base of the guarded classes of the tests, and their keys."""

from __future__ import annotations

__all__ = ["Service", "key"]


class Service:
    """Counts executions; each test derives its own class, since circuits and permits are per class."""

    def __init__(self) -> None:
        self.executions = 0


def key(owner: type, *parts: str) -> str:
    """Return a configuration key: ``key(Client, "charge", "Retry", "maxRetries")``."""
    return "/".join([f"{owner.__module__}.{owner.__qualname__}", *parts])
