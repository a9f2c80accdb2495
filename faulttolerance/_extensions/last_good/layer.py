"""The layer of ``last_good``: it stores good results by key, and returns them if a later call fails (rule Y1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from ..._call.continuation import RejectedResult
from ..._deadline.clock import clock
from ..._execution.caller_thread import Arguments, GuardedCall
from ..._execution.environment import Environment
from ..._signature.call_key import refuse_unhashable
from .strategy import LastResults


class Remembering(NamedTuple):
    """Stores the results of one guarded function, as a layer inside its fallback, and recalls them, as the fallback.

    Args:
        name: The function, as in messages.
        results: Its last good results.
        key_of: Returns the key of a call from its arguments.
    """

    name: str
    results: LastResults
    key_of: Callable[..., Hashable]

    def __call__(self, call: GuardedCall, environment: Environment | None) -> GuardedCall:
        """Return *call* wrapped by this layer."""
        find, results = self._find, self.results

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
        return Recall(lambda args, kwargs: self.results.recall(self._find(args, kwargs), clock.monotonic()))

    def _find(self, args: Arguments, kwargs: Mapping[str, Any]) -> Hashable:
        key = self.key_of(*args, **kwargs)
        refuse_unhashable(self.name, key)
        return key


class Recall(NamedTuple):
    """Returns the stored result for a call, or raises its failure again."""

    find: Callable[[Arguments, Mapping[str, Any]], tuple[Any] | None]

    def __call__(self, args: Arguments, kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        try:
            found = self.find(args, kwargs)
            if found is None:
                raise failure
            return found[0]
        finally:
            del failure  # its traceback may refer to this frame

    def accepts(self, args: Arguments, kwargs: Mapping[str, Any], failure: BaseException) -> bool:
        """Return whether there is a result that is young enough."""
        return self.find(args, kwargs) is not None
