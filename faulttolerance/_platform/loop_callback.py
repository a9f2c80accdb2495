"""Callbacks of event loops that run to their end, even if the handler of a signal raises in the middle.

Otherwise the waiters of a callback would wait for ever, and keep all that they hold, because a loop only logs an
exception of a callback. These callbacks raise the exception, too, but after all steps are done.
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
    """Remove the only item of *token*; return whether it was there, which is true for one of any number of threads."""
    try:
        token.pop()
    except IndexError:
        return False
    return True


def while_alive(known: ref[T], function: Callable[[T], object]) -> None:
    """Call *function* with an object that its timer refers to weakly, unless the object is gone."""
    known_object = known()
    if known_object is not None:
        function(known_object)


def completion(future: Any) -> Iterator[object]:
    """Return an iterator whose ``next`` completes *future*, if it is not done, in C code that no handler interrupts."""
    return map(future.set_result, iter(future.done, True))


class _Gathered(local):
    """The futures that the running thread is about to complete, by their loops."""

    by_loop: dict[int, tuple[Any, list[Iterator[object]]]] | None = None


_gathered = _Gathered()


def complete_soon(future: Any) -> None:
    """Complete *future* on its loop, which runs on another thread; raises if that loop was closed."""
    by_loop = _gathered.by_loop
    loop = future.get_loop()
    if by_loop is None:
        loop.call_soon_threadsafe(next, completion(future), None)
    else:
        by_loop.setdefault(id(loop), (loop, []))[1].append(completion(future))


def completer(future: Any) -> Callable[[object], None]:
    """Return a callback, for any thread, that completes *future* on its loop unless that was closed."""

    def complete(_: object) -> None:
        with suppress(RuntimeError):
            complete_soon(future)

    return complete


@contextmanager
def together() -> Iterator[None]:
    """Wake each loop once, at the end of the block, for all futures that this thread completes in the block.

    A loop that is woken for the first of many futures would delay the thread that has yet to complete the others.
    """
    before = _gathered.by_loop
    by_loop: dict[int, tuple[Any, list[Iterator[object]]]] = {}
    _gathered.by_loop = by_loop
    try:
        yield
    finally:
        _gathered.by_loop = before
        for loop, completions in by_loop.values():
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(deque, chain.from_iterable(completions), 0)  # one call of C code


def to_its_end(function: Callable[..., object], *args: Any) -> Callable[[object], object]:
    """Return a callback for one call of *function*; the callback ignores its argument.

    *function* is called again if an exception is raised in it, at any place; so it must be able to repeat each step.
    """
    steps = _steps(function, args)
    next(steps)
    return steps.send


def _steps(function: Callable[..., object], args: tuple[Any, ...]) -> Generator[None, object, None]:
    try:
        yield  # inside: the resumption here is the first moment at which a handler may raise
        function(*args)
    except GeneratorExit:
        raise  # the callback is never called
    except BaseException:
        function(*args)
        raise
    yield
