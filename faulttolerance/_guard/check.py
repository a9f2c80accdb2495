"""What is wrong with the policies of a function or a class, as far as is known when they are put on it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property, partialmethod, singledispatchmethod
from typing import Any

from .._call.order import ORDER, is_detached
from .._config import Declared
from .._policy import BeforeRetry, CustomBackoff, Fallback, Policy, RetryWhen
from .._signature.kind import is_coroutine_function
from ..exceptions import Fault
from .declaration import Declaration, class_level, class_name, covering, declaration_of

__all__ = [
    "class_level_contradictions",
    "contradictions",
    "is_asynchronous",
    "misfits",
    "misplaced",
    "spelled",
    "widowed",
]

_COMPANIONS: Mapping[type[Policy], type[Policy]] = {row.policy: row.modifies for row in ORDER if row.modifies}
"""What does nothing by itself, and what it belongs to."""


def is_asynchronous(declaration: Declaration, policies: Mapping[type[Policy], object]) -> bool:
    """Whether calls return before they are over (rules R7, R8)."""
    return declaration.is_coroutine or is_detached(policies)


def contradictions(declaration: Declaration) -> list[Fault]:
    """What is wrong with the policies of a function as far as is known when the last of them is put on it."""
    policies, where = declaration.policies, declaration.where
    owner = declaration.owner
    inherited = covering(owner, declaration.name, declaration.template, owner) if owner is not None else {}
    asynchronous = is_asynchronous(declaration, {**inherited, **policies})
    faults: list[Fault] = []
    if is_detached(policies):
        from .._signature.annotation import asynchronous_faults

        faults += asynchronous_faults(declaration.template, where, declaration.owner)
    faults += exclusive_faults(policies, where)
    for policy in policies.values():
        faults += misfits(policy, declaration, where, asynchronous)
    return faults + interceptor_faults(declaration.interceptors, declaration, where, declaration.owner)


def exclusive_faults(policies: Container[type[Policy]], where: str) -> list[Fault]:
    """Tell which of *policies* may not stand beside one another."""
    faults = [
        Fault(f"{where} @{row.policy.annotation}", f"stands beside @{row.excludes.annotation}", None, "one of them")
        for row in ORDER
        if row.excludes is not None and row.policy in policies and row.excludes in policies
    ]
    back_offs = [f"@{row.policy.annotation}" for row in ORDER if row.back_off and row.policy in policies]
    if len(back_offs) > 1:
        faults.append(Fault(f"{where} {' and '.join(back_offs)}", "are both there", None, "one back-off per function"))
    return faults


def descriptor_faults(target: object) -> list[Fault]:
    """Why *target* cannot be guarded, if it becomes something else when it is looked up."""
    kind = next((one for one in _DESCRIPTORS if isinstance(target, one)), None)
    if kind is None:
        return []
    article = "an" if kind.__name__[0] in "aeiou" else "a"
    return [Fault(f"{article} {kind.__name__}", "cannot be guarded", target, _DESCRIPTORS[kind])]


_DESCRIPTORS = {
    property: "a function, a method, a class; guard the getter below @property",
    cached_property: "a function, a method, a class; guard the function below @cached_property",
    partialmethod: "a function, a method, a class; guard the method that it calls",
    singledispatchmethod: "a function, a method, a class; guard the functions that it chooses from",
}


def interceptor_faults(
    interceptors: Iterable[Any], declaration: Declaration, where: str, owner: type | None
) -> list[Fault]:
    """Which of *interceptors* would make a coroutine function of one that is none."""
    wrong = [one.function for one in interceptors if is_coroutine_function(one.function)]
    if not wrong or declaration.is_coroutine:
        return []
    from .._signature.annotation import Outcome, outcome

    if outcome(declaration.template, owner) is Outcome.AWAITABLE:
        return []
    return [
        Fault(f"{where} @{getattr(function, '__name__', function)}", "is `async def`, and its callers await nothing",
              function, "an interceptor that is a plain `def`; `async def` around what is awaited, or annotated so")
        for function in wrong
    ]  # fmt: skip


def widowed(declared: Sequence[Declared], where: str, cls: type | None) -> list[Fault]:
    """Which of the policies of a function belong to one that it does not have: they would do nothing, silently.

    Decorators come in any order, and those of a class last; so this is known when the function is first used. What is
    switched off counts as there. A class-level companion is for the methods of the class that have the other. An
    abstract class has no objects: what its methods lack, its subclasses may have.
    """
    if getattr(cls, "__abstractmethods__", None):
        return []
    kinds = {type(one.policy) for one in declared}
    faults = []
    for one in declared:
        missing = _COMPANIONS.get(type(one.policy))
        if missing and missing not in kinds and not (one.level == "class" and cls and _occurs(missing, cls)):
            faults.append(_without(missing, f"{where} @{one.policy.annotation}", "on the same method or its class"))
    return faults


def misplaced(kind: type[Policy], declaration: Declaration) -> list[Fault]:
    """What is wrong with a companion above a ``Guard``, which has nothing of the kind to take."""
    missing = _COMPANIONS.get(kind)
    if missing is None or missing in declaration.policies:
        return []
    from .guard import finder_of

    if finder_of(declaration.template) is None:
        return []
    where = f"{declaration.where} @{kind.annotation}"
    return [_without(missing, where, "below it; the one of the Guard takes no companion", "above a Guard ")]


def _without(missing: type[Policy], where: str, place: str, above: str = "") -> Fault:
    return Fault(where, f"stands {above}without @{missing.annotation}", None, f"@{spelled(missing)} {place}")


def spelled(kind: type[Policy]) -> str:
    """The name of the decorator of *kind*, and of the parameter of a ``Guard``."""
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in kind.annotation).removeprefix("_")


def _occurs(kind: type[Policy], cls: type) -> bool:
    """Whether a method of *cls* has a policy of *kind*, by whatever decorator."""
    guards = (declaration_of(value) for base in cls.__mro__ for value in vars(base).values())
    return kind in class_level(cls) or any(one is not None and kind in one.policies for one in guards)


def misfits(
    policy: Policy,
    declaration: Declaration,
    where: str,
    asynchronous: bool,
    owner: type | None = None,
    *,
    final: bool = False,
) -> list[Fault]:
    """How functions that *policy* names do not fit the guarded one; see ``fallback.faults``.

    Only what compares functions needs ``inspect``, and is loaded here.
    """
    if isinstance(policy, Fallback):
        from . import fallback

        return fallback.faults(policy, declaration, where, asynchronous, owner, final=final)
    if isinstance(policy, BeforeRetry):
        from . import before_retry

        return before_retry.faults(policy, declaration, where, asynchronous, owner, final=final)
    asked = _asked_by(policy)
    if isinstance(policy, RetryWhen) and any(is_coroutine_function(one) for _, one in asked):
        from .._signature import compatibility

        # Whoever awaits the call awaits the predicate; a decorator that makes it so may still follow.
        if compatibility.is_asynchronous(declaration.template, declaration.owner, asynchronous, final) is not False:
            return []
    return [fault for name, one in asked for fault in unawaited(f"{where} @{policy.annotation}({name})", one)]


def unawaited(where: str, function: Any) -> list[Fault]:
    """What is wrong with a coroutine function as *where*, which is called and never awaited."""
    if not is_coroutine_function(function):
        return []
    what = getattr(function, "__qualname__", function)
    problem = f"is {what}, a coroutine function, which nothing awaits"
    return [Fault(where, problem, function, "a function that answers at once")]


def _asked_by(policy: Policy) -> list[tuple[str, Any]]:
    """What of the application *policy* asks while a call waits for the answer, by parameter."""
    if isinstance(policy, RetryWhen):
        return [("exception", policy.exception), ("result", policy.result)]
    if isinstance(policy, CustomBackoff):
        return [("value", policy.value.__call__ if isinstance(policy.value, type) else policy.value)]
    return []


def class_level_contradictions(
    declaration: Declaration,
    cls: type,
    kinds: Mapping[type[Policy], tuple[Policy, type]],
    interceptors: Iterable[Any] = (),
) -> list[Fault]:
    """What is wrong with the class-level policies and interceptors of *cls* for one of its methods."""
    where = f"{class_name(cls)}.{declaration.name}"
    faults: list[Fault] = []
    if is_detached(kinds) and not declaration.is_coroutine:
        from .._signature.annotation import asynchronous_faults

        faults += asynchronous_faults(declaration.template, where, cls, class_level=True)
    asynchronous = is_asynchronous(declaration, {**kinds, **declaration.policies})
    for kind, (policy, home) in kinds.items():
        if kind not in declaration.policies:
            faults += misfits(policy, declaration, where, asynchronous, home)
    return faults + interceptor_faults(interceptors, declaration, where, cls)
