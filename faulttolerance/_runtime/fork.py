"""What has to happen around ``os.fork`` (contract L5), registered once with the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["at_fork"]

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
