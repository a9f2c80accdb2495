"""Callbacks of event loops that get to their end, whatever the handler of a signal raises amidst them.

Whoever waits for a callback would wait for ever otherwise, and keep what it holds: a loop only writes down what is
raised in a callback. Here it is raised, too, but once all is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, TypeVar
from weakref import ref

from .unpatched import local

T = TypeVar("T")


def take(token: list[None]) -> bool:
    """Take the only item of *token*; return whether it was there, as it is for one of any number of threads."""
    try:
        token.pop()
    except IndexError:
        return False
    return True


def while_alive(known: ref[T], function: Callable[[T], object]) -> None:
    """Call *function* with an object that its timer does not keep, unless it is gone."""
    known_object = known()
    if known_object is not None:
        function(known_object)


def completion(future: Any) -> Iterator[object]:
    """Give what completes *future* at its ``next``, if it is not done: by steps in C, amidst which no handler runs."""
    return map(future.set_result, iter(future.done, True))


class _Gathered(local):
    """What the running thread is about to complete, by the loops on which it has to be done."""

    by_loop: dict[int, tuple[Any, list[Iterator[object]]]] | None = None


_gathered = _Gathered()


def complete_soon(future: Any) -> None:
    """Complete *future* on its loop, which runs on another thread; fails where that was closed."""
    by_loop = _gathered.by_loop
    loop = future.get_loop()
    if by_loop is None:
        loop.call_soon_threadsafe(next, completion(future), None)
    else:
        by_loop.setdefault(id(loop), (loop, []))[1].append(completion(future))


def completer(future: Any) -> Callable[[object], None]:
    """Return a callback, for any thread, that completes *future* on its loop, if nobody has closed that."""

    def complete(_: object) -> None:
        with suppress(RuntimeError):
            complete_soon(future)

    return complete


@contextmanager
def together() -> Iterator[None]:
    """Wake each loop once, at the end of the block, for all that this thread completes soon.

    A loop that is woken for the first of many takes the interpreter away from who has yet to complete the others.
    """
    before = _gathered.by_loop
    by_loop: dict[int, tuple[Any, list[Iterator[object]]]] = {}
    _gathered.by_loop = by_loop
    try:
        yield
    finally:
        _gathered.by_loop = before
        for loop, completions in by_loop.values():
            with suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(_complete_all, completions)


def _complete_all(completions: list[Iterator[object]]) -> None:
    deque(chain.from_iterable(completions), maxlen=0)


def to_its_end(function: Callable[..., object], *args: Any) -> Callable[[object], object]:
    """Make a callback, of one argument that is ignored, for one call of *function*.

    *function* is called again if something is raised in it, wherever that is; so each of its steps may be taken twice.
    """
    steps = _steps(function, args)
    next(steps)
    return steps.send


def _steps(function: Callable[..., object], args: tuple[Any, ...]) -> Generator[None, object, None]:
    try:
        yield  # inside: going on here is the first moment at which a handler may raise
        function(*args)
    except GeneratorExit:
        raise  # it is never called
    except BaseException:
        function(*args)
        raise
    yield
