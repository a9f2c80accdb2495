"""Callbacks of event loops that get to their end, whatever the handler of a signal raises amidst them.

Whoever waits for a callback would wait for ever otherwise, and keep what it holds: a loop only writes down what is
raised in a callback. Here it is raised, too, but once all is done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any


def take(token: list[None]) -> bool:
    """Take the only item of *token*; return whether it was there, as it is for one of any number of threads."""
    try:
        token.pop()
    except IndexError:
        return False
    return True


def completion(future: Any) -> Iterator[object]:
    """Give what completes *future* at its ``next``, if it is not done: by steps in C, amidst which no handler runs."""
    return map(future.set_result, iter(future.done, True))


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
