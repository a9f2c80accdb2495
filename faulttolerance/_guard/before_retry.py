"""What ``@before_retry`` runs before each attempt but the first; its failures are logged and change nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._policy import BeforeRetry
from .._runtime.blocking import Aside
from .._runtime.kinds import is_coroutine_function, is_generator_function
from ..exceptions import Fault
from .annotations import signature
from .aside import context_of, watched
from .declaration import FUNCTION, INSTANCE, Declaration
from .sibling import attribute_of, found_in_class, found_in_module, missing, named

__all__ = ["aside", "faults"]


def faults(
    policy: BeforeRetry, declaration: Declaration, where: str, asynchronous: bool, owner: type | None = None
) -> list[Fault]:
    """What is wrong with what runs before a retry, as far as can be told now; see ``fallback.faults``."""
    if policy.value is not None:
        return [
            Fault(f"{where} @BeforeRetry(value)", problem, policy.value, allowed)
            for problem, allowed in _problems(repr(policy.value), policy.value, 1, asynchronous)
        ]
    owner = owner or declaration.owner
    if owner is None and (declaration.guard is None or declaration.binding != FUNCTION):
        return []
    return [
        Fault(f"{where} @BeforeRetry(method_name)", problem, policy.method_name, allowed)
        for problem, allowed in _problems_of_name(policy.method_name, declaration, owner, asynchronous)
    ]


def _problems_of_name(
    name: str, declaration: Declaration, owner: type | None, asynchronous: bool
) -> Iterator[tuple[str, str]]:
    found = found_in_class(name, owner) if owner else found_in_module(name, declaration.template)
    if found is None:
        yield missing(name, declaration, owner), "the name of a function there that has no parameters"
        return
    if found.needs_instance and declaration.binding != INSTANCE:
        yield f"names {name!r}, which needs an instance", "a class method or static method, as the guarded one is"
    yield from _problems(repr(name), found.function, int(found.takes_itself), asynchronous)


def _problems(name: str, function: Callable[..., Any], arguments: int, asynchronous: bool) -> Iterator[tuple[str, str]]:
    found = signature(function)
    if found is not None and not _takes(found, arguments):
        allowed = "a function that takes an ExecutionContext" if arguments else "a function without parameters"
        yield f"is {name}, whose parameters are {found}", allowed
    if is_generator_function(function):
        yield f"is {name}, which is a generator function", "a function that returns"
    elif is_coroutine_function(function) and not asynchronous:
        yield f"is {name}, which is a coroutine function", "a plain function, as the guarded one is"


def _takes(found: inspect.Signature, arguments: int) -> bool:
    try:
        found.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def aside(policy: BeforeRetry, declaration: Declaration, asynchronous: bool, owner: type | None = None) -> Aside:
    """Run what is to be run before a retry."""
    value, name = policy.value, policy.method_name

    def hand_over(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        assert value is not None
        return value(context_of(declaration, args, kwargs, failure, attempts))

    owner = owner or declaration.owner
    attribute = attribute_of(name, declaration, owner)

    def call_method(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        method = named(attribute, declaration, owner, args)
        if method is None:
            raise AttributeError(f"@before_retry {missing(name, declaration, owner)}")
        return method()

    def failed(error: BaseException, failure: BaseException) -> bool:
        if not isinstance(error, Exception):
            return False
        import logging

        logging.getLogger("faulttolerance").warning(
            "%s: what @before_retry runs failed; the retry is made all the same", declaration.where, exc_info=error
        )
        return True

    return watched(hand_over if value is not None else call_method, failed, asynchronous)
