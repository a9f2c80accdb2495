"""Running code of the application beside the guarded function, and seeing how it fails, now or when it is awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any

from .._runtime.blocking import Aside
from .declaration import FUNCTION, Declaration
from .execution_context import ExecutionContext

__all__ = ["context_of", "watched"]

Failed = Callable[[BaseException, BaseException], bool]
"""Told an error and the failure of the call; whether the error goes no further."""


def context_of(
    declaration: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempt: int
) -> ExecutionContext:
    """What the application is told of a call of the guard that *declaration* made."""
    method = declaration.guard or declaration.template
    if declaration.binding == FUNCTION or not args:
        return ExecutionContext(method, None, args, kwargs, failure, attempt)
    return ExecutionContext(method, args[0], args[1:], kwargs, failure, attempt)


def watched(call: Aside, failed: Failed, asynchronous: bool) -> Aside:
    """Let *failed* see every error of *call*; where it is to be awaited, those of the coroutine that it returns too."""

    def aside(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        try:
            result = call(args, kwargs, failure, attempts)
            return _Watched(result, failure, failed) if asynchronous and isinstance(result, Coroutine) else result
        except BaseException as error:
            if failed(error, failure):
                return None
            raise
        finally:
            del failure  # its traceback may hold this frame

    return aside


class _Watched(Coroutine[Any, Any, Any]):
    """A coroutine whose error is seen before it goes on."""

    __slots__ = ("_coroutine", "_failed", "_failure")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], failure: BaseException, failed: Failed) -> None:
        self._coroutine = coroutine
        self._failure = failure
        self._failed = failed

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # whatever can be sent to may be awaited

    def __iter__(self) -> _Watched:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            return step(*args)
        except StopIteration:
            raise
        except BaseException as error:
            if not self._failed(error, self._failure):
                raise
        raise StopIteration
