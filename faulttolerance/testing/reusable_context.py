"""Effects that hold within a block, or while a decorated test runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic, TypeVar

from .._shown import shown
from ..exceptions import definition_error

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class ReusableContext(Generic[T]):
    """A context manager that may be entered again, also while it is entered, and is a decorator.

    Args:
        name: The name of the helper, for messages.
        make: Creates the context manager that is entered, each time.
    """

    def __init__(self, name: str, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._name = name
        self._make = make
        self._entered: list[AbstractContextManager[T]] = []

    def __enter__(self) -> T:
        entered = self._make()
        value = entered.__enter__()
        self._entered.append(entered)
        return value

    def __exit__(self, *failure: object) -> None:
        self._entered.pop().__exit__(*failure)  # type: ignore[arg-type]  # the three arguments of a block's exit

    def __call__(self, function: F) -> F:
        """Decorate a function or a coroutine function, such as a test or a fixture that returns."""
        make = self._make
        yields = isgeneratorfunction(function) or isasyncgenfunction(function)
        if isinstance(function, type) or not callable(function) or yields:
            allowed = "a function that does not yield; a fixture that does has a block, with its yield in it"
            raise definition_error(f"@testing.{self._name}", f"is on {shown(function)}", function, allowed)
        if iscoroutinefunction(function):

            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with make():
                    return await function(*args, **kwargs)

            return wraps(function)(awaited)  # type: ignore[return-value]

        def called(*args: Any, **kwargs: Any) -> Any:
            with make():
                return function(*args, **kwargs)

        return wraps(function)(called)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<testing.{self._name}>"
