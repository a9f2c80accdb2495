"""Running code of the application beside the guarded function, and seeing how it fails, now or when it is awaited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any

__all__ = ["SideCall"]


class SideCall(ABC):
    """Code of the application beside a call: every error of it is seen, of what is to be awaited when it comes."""

    __slots__ = ("_asynchronous",)

    def __init__(self, asynchronous: bool) -> None:
        self._asynchronous = asynchronous

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        """Run it for the call with *args* and *kwargs* that failed."""
        try:
            result = self._run(args, kwargs, failure, attempts)
            is_later = self._asynchronous and isinstance(result, Coroutine)
            return _Awaited(result, failure, self._ends_here) if is_later else result
        except BaseException as error:
            if self._ends_here(error, failure):
                return None
            raise
        finally:
            del failure  # its traceback may hold this frame

    @abstractmethod
    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        """Call what the application named."""

    @abstractmethod
    def _ends_here(self, error: BaseException, failure: BaseException) -> bool:
        """Whether *error*, which happened because of *failure*, goes no further."""


class _Awaited(Coroutine[Any, Any, Any]):
    """A coroutine whose error is seen before it goes on."""

    __slots__ = ("_coroutine", "_ends_here", "_failure")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        failure: BaseException,
        ends_here: Callable[[BaseException, BaseException], bool],
    ) -> None:
        self._coroutine = coroutine
        self._failure = failure
        self._ends_here = ends_here

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # whatever can be sent to may be awaited

    def __iter__(self) -> _Awaited:
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
            if not self._ends_here(error, self._failure):
                raise
        raise StopIteration
