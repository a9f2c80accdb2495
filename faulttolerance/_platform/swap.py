"""Stores that take place together: no thread, signal handler, finalizer or exception comes between two of them.

Threads are switched, signals handled and exceptions sent between instructions of the interpreter, never inside a call
of C code that calls nothing but C code. So one such call makes all stores of a swap. Its first step fails if another
swap took place since the caller read the version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain, starmap
from operator import call, setitem
from typing import Any


class Swap:
    """Stores that take place together; a store into each target and key must run only C code."""

    __slots__ = ("_replaced", "steps")

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []
        # The replaced objects are kept until the swap is gone, because their end may run a finalizer.
        self._replaced: list[object] = []

    def attribute(self, target: object, name: str, value: object) -> None:
        """Add the store of *value* as the attribute *name* of *target*."""
        self._replaced.append(getattr(target, name, None))
        self.steps.append((setattr, target, name, value))

    def item(self, mapping: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Add the store of *value* in *mapping*, a dictionary, under *key*."""
        self._replaced.append(mapping.get(key))
        self.steps.append((setitem, mapping, key, value))

    def removal(self, mapping: MutableMapping[Any, Any], key: object) -> None:
        """Add the removal of *key* from *mapping*, a dictionary."""
        self._replaced.append(mapping.get(key))
        self.steps.append((mapping.pop, key, None))


class Version:
    """The version of all values that only swaps change; each swap replaces it."""

    __slots__ = ("_current",)

    def __init__(self) -> None:
        self._current = {object()}

    @property
    def current(self) -> object:
        """The argument of ``swap``; to be read before the values on which the swap depends."""
        (current,) = self._current
        return current

    def swap(self, seen: object, swap: Swap) -> bool:
        """Make all stores of *swap* and return true, unless another swap took place since *seen* was current."""
        return self.force(swap, (self._current.remove, seen))

    def force(
        self,
        swap: Swap,
        condition: tuple[Any, ...] = (object,),
        more: dict[Any, Iterator[tuple[Any, ...]]] | None = None,
    ) -> bool:
        """Make all stores of *swap* and return true, regardless of other swaps, unless *condition* is not met.

        Args:
            swap: The stores.
            condition: A step, met unless it raises ``KeyError``.
            more: Further stores, read at the end; other swaps may add some. Its first key is ``None``.
        """
        steps: Iterable[tuple[Any, ...]]
        steps = [condition, (self._current.clear,), (self._current.add, object()), *swap.steps]
        if more is not None:
            more[None] = iter(steps)
            # The inner chain reads *more* before the first step. Later nothing is allocated, so nothing is collected.
            steps = chain.from_iterable(chain(more.values()))
        try:
            deque(starmap(call, steps), maxlen=0)
        except KeyError:
            return False
        return True
