"""Decorators: a decorator holds a policy until it is applied to a function or a class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any
from weakref import WeakValueDictionary

from ..._call.order import ROWS
from ..._policy import Policy, call_source, check, parameters
from ..._shown import shown
from ..._signature.kind import INSTEAD_OF_GENERATORS, is_generator_function
from ..._signature.method import as_real_method
from ..._signature.naming import class_name
from ...exceptions import Fault, FaultToleranceDefinitionException, definition_error, raise_faults
from ..declare.checks import definition
from ..declare.creation_site import application_frames, declaring_frame
from ..declare.declaration import FUNCTION, Declaration, declaration_of, declared_on
from .apply import apply_to, can_be_guarded


class Decorator:
    """A policy that waits for its function or class."""

    __slots__ = ("_kind", "_values")

    def __init__(self, kind: type[Policy], values: Mapping[str, Any]) -> None:
        self._kind = kind
        self._values = values

    def __call__(self, *targets: Any, **unexpected: Any) -> Any:
        if len(targets) != 1 or unexpected or not can_be_guarded(targets[0]):
            raise self._misplaced("was called as if it were a guarded function")
        declaring_frame()  # its package belongs to the application from now on
        target = as_real_method(targets[0])
        raise_faults(self._faults_on_class(target) if isinstance(target, type) else self._faults_on_function(target))
        return apply_to(target, {self._kind: self._policy()}, ())

    def declared_policy(self) -> Policy:
        """Return the policy, for a ``Guard``.

        Raises:
            FaultToleranceDefinitionException: A value is wrong.
        """
        raise_faults(self._faults("Guard"))
        return self._policy()

    def _policy(self) -> Policy:
        return _shared(self._kind._of(self._values))

    def __repr__(self) -> str:
        return call_source(definition.decorator_name(self._kind), self._kind, self._values)

    def __set_name__(self, owner: type, name: str) -> None:
        raise self._misplaced(f"became the attribute {class_name(owner)}.{name}")

    def _misplaced(self, problem: str) -> FaultToleranceDefinitionException:
        allowed = f"@{definition.decorator_name(self._kind)}(...) above a function"
        return definition_error(f"@{self._kind.annotation}", f"{problem}: it decorates no function", None, allowed)

    def _faults_on_class(self, cls: type) -> Iterator[Fault]:
        yield from self._faults(class_name(cls))
        where = f"{class_name(cls)} @{self._kind.annotation}"
        if not ROWS[self._kind].is_for_classes:
            yield Fault(where, "is on a class", cls, "a function or a method: each has calls of its own")
        if self._kind in declared_on(cls).policies:
            yield Fault(where, "is present twice", None, "one of each kind per class")

    def _faults_on_function(self, target: Any) -> Iterator[Fault]:
        function = target.__func__ if isinstance(target, (staticmethod, classmethod)) else target
        declaration = declaration_of(function) or Declaration(function, {}, FUNCTION)
        where = f"{declaration.where} @{self._kind.annotation}"
        yield from self._faults(declaration.where)
        if is_generator_function(function):
            yield Fault(where, "is on a generator function", function, INSTEAD_OF_GENERATORS)
        if self._kind in declaration.policies:
            yield Fault(where, "is present twice", None, "one of each kind per function")

    def _faults(self, where: str) -> list[Fault]:
        return check(self._kind, self._values, f"{where} @{self._kind.annotation}")


_shared_policies: WeakValueDictionary[tuple[object, ...], Policy] = WeakValueDictionary()


def _shared(policy: Policy) -> Policy:
    """Return the shared object for all policies with the values of *policy*: most methods have common values.

    Policies that name an object of the application are not shared: mostly each method has its own, and it would stay
    alive.
    """
    if any(
        parameter.kind.name in ("text", "callable", "handlers", "key")
        and not policy._is_default(name, getattr(policy, name))
        for name, parameter in policy._parameters.items()
    ):
        return policy
    values = policy._values()
    sets = (value for value in values if isinstance(value, tuple))
    if any(getattr(member, "__module__", "") != "builtins" for value in sets for member in value):
        return policy
    # 1 and 1.0 are shown as written.
    return _shared_policies.setdefault((type(policy), *values, *map(type, values)), policy)


def decorate(kind: type[Policy], values: Mapping[str, Any], target: Any = None) -> Any:
    """Return the decorator for *values*, or guard *target* if it is passed (``@retry`` without parentheses)."""
    # A set of exceptions may be any iterable; an iterator can be read only once.
    values = {name: tuple(value) if isinstance(value, Iterator) else value for name, value in values.items()}
    is_exception = isinstance(target, type) and issubclass(target, BaseException)  # @retry(OSError), as elsewhere
    if target is not None and (is_exception or not can_be_guarded(target)):
        names = f", or its parameters by name: {', '.join(parameters(kind))}" if values else ""
        problem = f"got {shown(target)} by position"
        raise definition_error(f"@{kind.annotation}", problem, target, f"a function{names}")
    chosen = ROWS[kind].decorator
    decorator = (Decorator if chosen is None else chosen())(kind, values)
    return decorator if target is None else decorator(target)


def refuse_bare(kind: type[Policy], value: Any) -> None:
    """Reject a decorator without arguments that needs some: it received the function below it as its argument.

    The statement that calls the decorator also defines such a function: the code of the function belongs to the calling
    code, and the call is on one of its lines. A lambda that is written as the argument is recognized by its name.
    """
    code = getattr(value, "__code__", None)
    frame = next(application_frames(), None)
    if not isinstance(code, CodeType) or frame is None or value.__name__ == "<lambda>":
        return
    lines = [line for _, _, line in code.co_lines() if line is not None]
    is_made_here = any(constant is code for constant in frame.f_code.co_consts)
    if is_made_here and code.co_firstlineno <= frame.f_lineno <= max(lines):
        where = f"{Declaration(value, {}, FUNCTION).where} @{kind.annotation}"
        allowed = f"@{definition.decorator_name(kind)}(...) with its arguments"
        raise definition_error(where, "is used without arguments", None, allowed)
