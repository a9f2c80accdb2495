"""Functions that run around ``os.fork`` (rule L5)."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module

from .unpatched import get_ident, native

_LOOK_SECONDS = 0.001
_LOOKS = 5_000

_before: list[Callable[[], object]] = []
_whole = {os.getpid()}
"""The processes whose threads all exist, as far as is known."""


def at_fork(
    before: Callable[[], object] | None = None,
    parent: Callable[[], object] | None = None,
    child: Callable[[], object] | None = None,
) -> None:
    """Register functions that the forking thread calls; they are kept as long as the process lives.

    Args:
        before: In the parent, before the fork; the function that was registered last is called first.
        parent: In the parent, after the fork.
        child: In the child, where the forking thread is the only thread.
    """
    if before is not None:
        _before.append(before)
    if hasattr(os, "register_at_fork"):  # not on Windows
        hooks = {"before": before, "after_in_parent": parent, "after_in_child": child}
        os.register_at_fork(**{when: hook for when, hook in hooks.items() if hook is not None})


def is_torn() -> bool:
    """Return whether C code has forked this process beside threads, and has not called Python's hooks, as uWSGI does.

    The frames of threads that are gone then lie in memory of other threads: whoever reads them ends the process. Linux
    tells which threads the process has started itself; elsewhere any thread may be gone.
    """
    if os.getpid() not in _whole:
        threads = [*threading._active.values()]  # type: ignore[attr-defined]  # a thread that is gone may hold its lock
        started = [each.native_id for each in threads if not isinstance(each, threading._DummyThread)]
        if _thread._count() > sum(os.path.exists(f"/proc/self/task/{each}") for each in started):
            return True
        _whole.add(os.getpid())
    return False


at_fork(child=lambda: _whole.add(os.getpid()))


@cache
def is_subinterpreter() -> bool:
    """Return whether this is not the main interpreter of its process; then its threads receive no signals."""
    try:
        with _importing:
            interpreters = import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
        return bool(interpreters.get_current() != interpreters.get_main())
    except (ImportError, AttributeError):
        return False


@cache
def stop_at_end_of_subinterpreter() -> None:
    """Stop threads, as before a fork, when a sub-interpreter ends: a remaining thread would end the process."""
    if is_subinterpreter():
        atexit.register(_call_before)


def _call_before() -> None:
    for function in reversed(_before):
        function()


class Section:
    """A section for which a fork waits, such as an import; any number of threads may be in it at the same time.

    A module that another thread is importing at the fork stays locked in the child for ever. The wait is limited: code
    of the application runs in the section, and may wait for the forking thread.
    """

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}
        """The number of entries of each thread; written only by that thread."""
        at_fork(before=self._wait_until_alone, child=self._begin_anew)

    def __enter__(self) -> None:
        ident = get_ident()
        self._inside[ident] = self._inside.get(ident, 0) + 1

    def __exit__(self, *_: object) -> None:
        ident, inside = get_ident(), self._inside
        depth = inside.get(ident, 1) - 1
        if depth:
            inside[ident] = depth
        else:
            inside.pop(ident, None)
            self._left()

    def _left(self) -> None:
        """Run the work that is due when a thread has left completely."""

    def _wait_until_alone(self) -> None:
        wait(lambda: not self._inside.keys() - {get_ident()})

    def _begin_anew(self) -> None:
        for other in self._inside.keys() - {get_ident()}:
            del self._inside[other]


_importing = Section()


def wait(is_over: Callable[[], bool], looks: int = _LOOKS) -> bool:
    """Look up to *looks* times, 1 ms apart, whether the wait is over; return whether it was."""
    for _ in range(looks):
        if is_over():
            return True
        native.sleep(_LOOK_SECONDS)
    return False
