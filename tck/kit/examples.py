"""Properties that are tried with some examples by default, and with many in the tier *stress*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings, strategies as st

from .tiers import few_and_many

__all__ = ["holds"]


def holds(some: int, many: int, *drawn: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a test of a property, whose arguments are drawn.

    Args:
        some: How many examples are tried in the tier default.
        many: How many in the tier *stress*.
        drawn: The arguments.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        tries = {number: settings(max_examples=number, deadline=None)(given(*drawn)(body)) for number in (some, many)}

        def test(examples: int) -> None:
            tries[examples]()

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(test, name, getattr(body, name))
        return few_and_many("examples", some, many)(test)

    return decorate
