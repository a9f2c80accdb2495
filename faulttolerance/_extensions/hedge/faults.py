"""Checks that a function can run twice at once: asynchronous calls, and arguments that are not used up (H6)."""

from __future__ import annotations

import inspect
import io
import typing
from collections.abc import AsyncIterator, Iterator

from ..._guard.declare.declaration import Declaration
from ..._parameters import signature_of
from ..._signature.annotation import Scope, Type, UnresolvedName, display, members, resolve
from ..._signature.return_kind import ReturnKind, return_kind
from ...exceptions import Fault

_ONE_SHOT = (Iterator, AsyncIterator, typing.IO, io.IOBase)
"""The classes whose objects only one reader can use; generators are iterators."""
_NAMES = ("Iterator", "AsyncIterator", "Generator", "AsyncGenerator", "IO", "TextIO", "BinaryIO")
"""The names of these classes if only type checkers know them."""


def hedge_faults(
    where: str, declaration: Declaration, asynchronous: bool, owner: type | None, final: bool
) -> list[Fault]:
    """Return the faults of hedges, as *where*, for a guarded function that cannot run twice at once."""
    function, faults = declaration.template, []
    # Without an annotation, the function may become asynchronous by a further decorator on it or its class.
    if not asynchronous and (final or return_kind(function, declaration.owner) is ReturnKind.PLAIN):
        allowed = "add @asynchronous: a thread cannot race itself; or `async def`, or call_async of a Guard"
        if declaration.owner is not None:
            allowed += "; @unguarded exempts a method of a hedged class"
        faults.append(Fault(where, "is on a synchronous function", function, allowed))
    signature = signature_of(function)
    for parameter in signature.parameters.values() if signature is not None else ():
        annotation = parameter.annotation
        if annotation is inspect.Parameter.empty:
            continue
        if any(map(_is_one_shot, members(resolve(annotation, Scope.of(function, owner or declaration.owner))))):
            problem = (
                f"shares {parameter.name}: {display(annotation)} among its attempts, and only one attempt can read it"
            )
            allowed = "a value that each attempt can read again, such as a list, bytes, or the name of a file"
            faults.append(Fault(where, problem, annotation, allowed))
    return faults


def _is_one_shot(type_: Type) -> bool:
    head = type_.head
    if isinstance(head, UnresolvedName):
        return head.ends_in(*_NAMES)
    return isinstance(head, type) and issubclass(head, _ONE_SHOT)
