"""The kind of result of a function, from its annotation: a future, an awaitable, or neither (rule R7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Union

from .._parameters import signature_of
from .annotation import ANYTHING, Scope, Type, UnresolvedName, ancestry, resolve, union_of
from .kind import is_coroutine_function


class ReturnKind(Enum):
    """The kinds of results, as far as a return annotation reveals them."""

    FUTURE = "future"
    """A future of ``concurrent.futures`` or of this library, or another future that is not awaitable."""
    AWAITABLE = "awaitable"
    UNKNOWN = "unknown"
    """The returned object decides."""
    PLAIN = "plain"
    """An object that is neither a future nor awaitable."""


def return_kind(function: Callable[..., Any], owner: type | None = None) -> ReturnKind:
    """Return the kind of result of *function*, of the class *owner*, from its return annotation."""
    if is_coroutine_function(function):
        return ReturnKind.AWAITABLE
    signature = signature_of(function)
    if signature is None:
        return ReturnKind.UNKNOWN
    return return_kind_of(resolve(signature.return_annotation, Scope.of(function, owner)))


def return_kind_of(returned: Type) -> ReturnKind:
    """Return the kind of result of a function whose return type is *returned*."""
    head = returned.head
    if isinstance(head, UnresolvedName):
        if head.ends_in("Future"):
            return ReturnKind.AWAITABLE if head.name.startswith("asyncio.") else ReturnKind.FUTURE
        return ReturnKind.AWAITABLE if head.ends_in("Task", "Awaitable", "Coroutine") else ReturnKind.UNKNOWN
    if head is Union:
        kinds = {return_kind_of(member) for member in returned.args or ()}
        return kinds.pop() if len(kinds) == 1 else ReturnKind.UNKNOWN
    if isinstance(head, type) and head is not object:
        return _return_kind_of_class(head)
    return ReturnKind.UNKNOWN


def _return_kind_of_class(cls: type) -> ReturnKind:
    # By name, because the module may not be imported.
    if ("concurrent.futures._base", "Future") in [(base.__module__, base.__name__) for base in cls.__mro__]:
        return ReturnKind.FUTURE
    if getattr(cls, "__await__", None) is not None:
        return ReturnKind.AWAITABLE
    if hasattr(cls, "add_done_callback") and hasattr(cls, "result"):
        return ReturnKind.FUTURE
    return ReturnKind.PLAIN


def awaited_type(returned: Type) -> Type:
    """Return the type of the result of awaiting *returned*, or of waiting for it."""
    if returned.head is Union:
        return union_of(map(awaited_type, returned.args or ()))
    for base, args in ancestry(returned).items():
        if args is None:
            continue
        if base is Coroutine:
            return args[-1]
        if base is Awaitable or base.__name__ in ("Future", "Task"):
            return args[0]
    return ANYTHING
