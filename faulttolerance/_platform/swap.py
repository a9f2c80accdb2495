"""Stores that take place together: no thread, signal handler, finalizer or exception comes between two of them.

Threads are switched, signals handled and exceptions sent between instructions of the interpreter, never inside a call
of C code that calls nothing but C code. So all stores of a swap are made by one such call; its first step fails if
there was another swap since the caller looked. Without the GIL, a lock keeps other swaps out as well; a thread that
only reads may then see some of the stores before the rest, as if it had read before and after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain, starmap
from operator import call, setitem
from threading import RLock
from typing import Any


class Swap:
    """Stores that are to take place together. The targets and their keys must be such that storing runs C code only."""

    __slots__ = ("_replaced", "steps")

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []
        # What goes when it is replaced may run a finalizer, so it goes with the swap.
        self._replaced: list[object] = []

    def attribute(self, target: object, name: str, value: object) -> None:
        """Let *value* be the attribute *name* of *target*."""
        self._replaced.append(getattr(target, name, None))
        self.steps.append((setattr, target, name, value))

    def item(self, mapping: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Let *value* be in *mapping*, a dictionary, under *key*."""
        self._replaced.append(mapping.get(key))
        self.steps.append((setitem, mapping, key, value))

    def removal(self, mapping: MutableMapping[Any, Any], key: object) -> None:
        """Let nothing be in *mapping*, a dictionary, under *key*."""
        self._replaced.append(mapping.get(key))
        self.steps.append((mapping.pop, key, None))

    def take_place(self) -> None:
        """Make all stores, whatever else was stored meanwhile."""
        deque(starmap(call, self.steps), maxlen=0)


class Version:
    """Stands for all that is changed by swaps only: it is another one after each."""

    __slots__ = ("_current", "_lock")

    def __init__(self) -> None:
        self._current = {object()}
        # Reentrant: a signal handler or a finalizer may swap while its thread is in here.
        self._lock = RLock()

    @property
    def current(self) -> object:
        """What ``swap`` takes; to be read before what the swap depends on."""
        with self._lock:
            (current,) = self._current
            return current

    def swap(self, seen: object, swap: Swap) -> bool:
        """Make all stores of *swap*; false, and none is made, if there was another swap since *seen* was current."""
        return self.force(swap, (self._current.remove, seen))

    def force(
        self,
        swap: Swap,
        condition: tuple[Any, ...] = (object,),
        more: dict[Any, Iterator[tuple[Any, ...]]] | None = None,
    ) -> bool:
        """Make all stores of *swap*, whatever was swapped before; false, and none is made, if *condition* is not met.

        Args:
            swap: The stores.
            condition: A step, met unless it raises ``KeyError``.
            more: Further stores, those that are there in the end; other swaps may add some. Its first key is ``None``.
        """
        steps: Iterable[tuple[Any, ...]]
        steps = [condition, (self._current.clear,), (self._current.add, object()), *swap.steps]
        if more is not None:
            more[None] = iter(steps)
            # The inner chain looks into *more* before the first step. After that nothing is made, so nothing collected.
            steps = chain.from_iterable(chain(more.values()))
        with self._lock:
            try:
                deque(starmap(call, steps), maxlen=0)
            except KeyError:
                return False
        return True

    def renew_lock(self) -> None:
        """Replace the lock in a forked child, where the thread that may have held it does not exist."""
        self._lock = RLock()
