"""Call what ``@before_retry`` names before each attempt but the first; its failures are logged and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._call.side_call import SideCall
from .._log import WARNING, log
from .._policy import BeforeRetry
from .._runtime.blocking import Aside
from .._signature.lookup import LateLookup
from .declaration import FUNCTION, Declaration
from .invocation import context_of


def side_call(policy: BeforeRetry, declaration: Declaration, asynchronous: bool, owner: type | None = None) -> Aside:
    """Make the call of what runs before a retry; *owner* is the class that declares it."""
    return _BeforeRetry(policy, declaration, asynchronous, owner or declaration.owner)


class _BeforeRetry(SideCall):
    __slots__ = ("_declaration", "_lookup", "_value")

    def __init__(self, policy: BeforeRetry, declaration: Declaration, asynchronous: bool, owner: type | None) -> None:
        super().__init__(asynchronous)
        self._declaration = declaration
        self._value = policy.value
        self._lookup = LateLookup(policy.method_name, declaration.template, owner, declaration.binding != FUNCTION)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        if self._value is not None:
            return self._value(context_of(self._declaration, args, kwargs, failure, attempts))
        method = self._lookup.find(args)
        if method is None:
            raise AttributeError(f"@before_retry {self._lookup.missing()}")
        return method()

    def _ends_here(self, error: BaseException, failure: BaseException) -> bool:
        if not isinstance(error, Exception):
            return False
        text = "%s: what @before_retry runs failed; the retry is made all the same"
        log(WARNING, text, self._declaration.where, error=error)
        return True
