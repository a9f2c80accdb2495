"""What ``@before_retry`` runs before each attempt but the first; its failures are logged and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._call.side_call import SideCall
from .._log import WARNING, log
from .._policy import BeforeRetry
from .._runtime.blocking import Aside
from .._shown import shown
from .._signature.annotation import signature
from .._signature.compatibility import Guarded, Problem, can_bind, is_asynchronous
from .._signature.lookup import attribute_of, found_in_class, found_in_module, missing, named, weakly
from ..exceptions import Fault
from .declaration import FUNCTION, INSTANCE, Declaration
from .invocation import context_of

__all__ = ["aside", "faults"]


def faults(
    policy: BeforeRetry,
    declaration: Declaration,
    where: str,
    asynchronous: bool,
    owner: type | None = None,
    *,
    final: bool = False,
) -> list[Fault]:
    """What is wrong with what runs before a retry, as far as can be told now; see ``fallback.faults``."""
    owner = owner or declaration.owner
    function, takes_itself = declaration.template, declaration.binding != FUNCTION
    waited_for = is_asynchronous(function, declaration.owner, asynchronous, final)
    guarded = Guarded(function, takes_itself, owner, waited_for)
    name, got = ("value", policy.value) if policy.value is not None else ("method_name", policy.method_name)
    if policy.value is not None:
        problems = _problems(f"is {shown(policy.value)}", policy.value, 1, guarded)
    elif owner is not None or (final and declaration.binding == FUNCTION):
        problems = _problems_of_name(policy.method_name, declaration, owner, guarded)
    else:
        return []
    return [Fault(f"{where} @BeforeRetry({name})", problem, got, allowed) for problem, allowed in problems]


def _problems_of_name(name: str, declaration: Declaration, owner: type | None, guarded: Guarded) -> Iterator[Problem]:
    found = found_in_class(name, owner) if owner else found_in_module(name, declaration.template)
    if found is None:
        yield missing(name, declaration.template, owner), "the name of a function there that has no parameters"
        return
    subject = f"names {shown(name)}"
    if found.needs_instance and declaration.binding != INSTANCE:
        yield f"{subject}, which needs an instance", "a class method or static method, as the guarded one is"
    yield from _problems(subject, found.function, int(found.takes_itself), guarded)


def _problems(subject: str, function: Callable[..., Any], arguments: int, guarded: Guarded) -> Iterator[Problem]:
    found = signature(function)
    if not can_bind(found, arguments):
        allowed = (
            "a function without parameters" if subject.startswith("names") else "one that takes an ExecutionContext"
        )
        yield f"{subject}, whose parameters are {found}", allowed
    yield from guarded.problems_of_kind(subject, function)


def aside(policy: BeforeRetry, declaration: Declaration, asynchronous: bool, owner: type | None = None) -> Aside:
    """Run what is to be run before a retry."""
    return _BeforeRetry(policy, declaration, asynchronous, owner or declaration.owner)


class _BeforeRetry(SideCall):
    __slots__ = ("_attribute", "_declaration", "_home", "_policy")

    def __init__(self, policy: BeforeRetry, declaration: Declaration, asynchronous: bool, owner: type | None) -> None:
        super().__init__(asynchronous)
        self._declaration = declaration
        self._policy = policy
        self._attribute = attribute_of(policy.method_name, declaration.template, owner)
        self._home = weakly(owner)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        if self._policy.value is not None:
            return self._policy.value(context_of(self._declaration, args, kwargs, failure, attempts))
        owner, function, binding = self._home(), self._declaration.template, self._declaration.binding
        method = named(self._attribute, function, binding != FUNCTION, owner, args)
        if method is None:
            name = self._policy.method_name
            raise AttributeError(f"@before_retry {missing(name, function, owner)}")
        return method()

    def _ends_here(self, error: BaseException, failure: BaseException) -> bool:
        if not isinstance(error, Exception):
            return False
        text = "%s: what @before_retry runs failed; the retry is made all the same"
        log(WARNING, text, self._declaration.where, error=error)
        return True
