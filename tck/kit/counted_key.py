"""A key of calls that counts how often it is called, and how often its signature is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["CountedKey"]


class CountedKey:
    """Passes for *key*, and is called and inspected in its place."""

    def __init__(self, key: Callable[..., Any]) -> None:
        self._key = key
        self.called = self.inspected = 0

    def __call__(self, *args: Any) -> Any:
        self.called += 1
        return self._key(*args)

    @property
    def __signature__(self) -> inspect.Signature:
        self.inspected += 1
        return inspect.signature(self._key)
