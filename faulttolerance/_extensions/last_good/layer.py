"""The layer of ``last_good``: it stores good results by key, and returns them if a later call fails (rule Y1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ..._call.continuation import RejectedResult
from ..._deadline.clock import clock
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment
from .strategy import LastResults


class Remembering:
    """Stores the results of one guarded function, as a layer inside its fallback, and recalls them, as the fallback.

    Args:
        name: The function, as in messages.
        results: Its last good results.
        key_of: Returns the key of a call from its arguments.
    """

    __slots__ = ("_key_of", "_name", "_results")

    def __init__(self, name: str, results: LastResults, key_of: Callable[..., Hashable]) -> None:
        self._name = name
        self._results = results
        self._key_of = key_of

    def __call__(self, call: GuardedCall, environment: Environment | None) -> GuardedCall:
        """Return *call* wrapped by this layer."""
        find, results = self._find, self._results

        def remembered(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            key = find(args, kwargs)  # before the function runs, so that an invalid key is reported in time
            result = call(args, kwargs)
            if type(result) is RejectedResult:
                return result.result
            results.remember(key, result, clock.monotonic())
            return result

        async def remembered_later(args: Arguments, kwargs: Mapping[str, Any]) -> Any:
            key = find(args, kwargs)
            result = await call(args, kwargs)
            if type(result) is RejectedResult:
                return result.result
            results.remember(key, result, clock.monotonic())
            return result

        return remembered if environment is None else remembered_later

    def recall(self) -> Recall:
        """Return the fallback that returns stored results."""
        return Recall(lambda args, kwargs: self._results.recall(self._find(args, kwargs), clock.monotonic()))

    def _find(self, args: Arguments, kwargs: Mapping[str, Any]) -> Hashable:
        key = self._key_of(*args, **kwargs)
        try:
            hash(key)
        except TypeError:
            from ..._signature.call_key import refuse_unhashable  # it needs ``inspect``

            refuse_unhashable(self._name, key)
            raise
        return key


class Recall:
    """Returns the stored result for a call, or raises its failure again."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[Arguments, Mapping[str, Any]], tuple[Any] | None]) -> None:
        self._find = find

    def __call__(self, args: Arguments, kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        try:
            found = self._find(args, kwargs)
            if found is None:
                raise failure
            return found[0]
        finally:
            del failure  # its traceback may refer to this frame

    def accepts(self, args: Arguments, kwargs: Mapping[str, Any], failure: BaseException) -> bool:
        """Return whether there is a result that is young enough."""
        return self._find(args, kwargs) is not None
