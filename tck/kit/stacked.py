"""Decorators as a parameter of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["stacked"]


def stacked(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return all *decorators* as one, the first outermost; without any, the target stays as it is."""

    def decorate(target: Any) -> Any:
        for decorator in reversed(decorators):
            target = decorator(target)
        return target

    return decorate
