"""What has to happen around ``os.fork`` (contract L5), registered once with the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock

from .native import get_ident

__all__ = ["Section", "at_fork"]

_PATIENCE_SECONDS = 5.0

_before: list[Callable[[], object]] = []
_parent: list[Callable[[], object]] = []
_child: list[Callable[[], object]] = []


def at_fork(
    before: Callable[[], object] | None = None,
    parent: Callable[[], object] | None = None,
    child: Callable[[], object] | None = None,
) -> None:
    """Call these functions on the forking thread; they are kept for as long as the process lives.

    Args:
        before: In the parent, before the fork; the last one registered is called first.
        parent: In the parent, after the fork.
        child: In the child, where the forking thread is the only one.
    """
    if before is not None:
        _before.append(before)
    if parent is not None:
        _parent.append(parent)
    if child is not None:
        _child.append(child)


class Section:
    """A reentrant lock around what no fork may interrupt, such as an import.

    A module that another thread is importing at the fork stays locked in the child for ever. So a fork waits until no
    other thread is in here; not for ever, as that thread may wait for a module that the forking one imports.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._forking: set[int] = set()
        at_fork(self._hold, self._let_go, self._begin_anew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _hold(self) -> None:
        if self._lock.acquire(timeout=_PATIENCE_SECONDS):
            self._forking.add(get_ident())

    def _let_go(self) -> None:
        if get_ident() in self._forking:
            self._forking.discard(get_ident())
            self._lock.release()

    def _begin_anew(self) -> None:
        if get_ident() in self._forking:
            self._forking = {get_ident()}
            self._let_go()
        else:
            self._lock = RLock()
            self._forking = set()


def _call_before() -> None:
    for function in reversed(_before):
        function()


def _call_parent() -> None:
    for function in _parent:
        function()


def _call_child() -> None:
    for function in _child:
        function()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_call_before, after_in_parent=_call_parent, after_in_child=_call_child)
