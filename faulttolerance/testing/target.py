"""The targets that a test names: a guarded function, a method, a class, a ``Guard``, or an annotation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .._call.state import alias_in
from .._config.key import UNDECLARED
from .._guard.declare.declaration import accessors, declaration_of, unbound
from .._guard.declare.registry import resolvers
from .._guard_value.guard import Guard, finder_of
from .._policy import Policy
from .._shown import did_you_mean, shown
from .._signature.naming import class_name
from ..exceptions import definition_error

if TYPE_CHECKING:
    from .._call.order import Strategies
    from .._call.state import State
    from .._config import Effective
    from .._execution.caller_thread import GuardedCall
    from .._execution.environment import Environment
    from .._guard.declare.registry import AnyResolver
    from .._guard.resolve.effective import EffectivePolicies


_TARGETS = (
    "a guarded function or method (below decorators of others: its __wrapped__), a class that has some, or a Guard"
)


class Target(NamedTuple):
    """The guards that a test names."""

    name: str
    """The name of the target, for people."""
    guards: tuple[AnyResolver, ...]
    """The guards that stand above one another; none: all those of *home*."""
    home: type | None
    """The class that is named, with its subclasses; ``None``: every class that has the method."""

    def covers(self, subject: Any) -> bool:
        """Return whether the target includes *subject*, a guard and the class that uses it."""
        resolver, cls = subject
        if self.guards and resolver not in self.guards:
            return False
        return self.home is None or _is_of(self.home, resolver, cls)

    def in_force(self) -> set[type[Policy]]:
        """Return the policies that are in force for any class."""
        return {kind for _, _, effective in self._uses() for kind in effective.policies}

    def create_states(self) -> None:
        """Create the states of the guards, class by class, as if they had been called.

        A breaker has its further name for one class only, the first that is called: such a state is left to the calls.

        Raises:
            FaultToleranceDefinitionException: Something is wrong with a declaration or a configured value.
        """
        for resolver, cls, effective in list(self._uses()):
            if not alias_in(effective.policies):
                resolver.create_state(cls)

    def _uses(self) -> Iterator[tuple[AnyResolver, type | None, EffectivePolicies]]:
        for resolver in self.guards or list(resolvers()):
            for cls in list(resolver.classes()):
                if self.home is None or _is_of(self.home, resolver, cls):
                    effective = resolver.in_force(cls)
                    if effective.declared:
                        yield resolver, cls, effective


class TargetWrapper:
    """The base of overrides that change no value, and wrap the calls and attempts of one target."""

    is_innermost = False
    """Whether it is a part of the body to the others."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __call__(self, subject: object, effective: Effective) -> Effective:
        """Return every value as it is."""
        return effective

    def applies_to_calls_of(self, subject: object) -> bool:
        """Return whether *subject* belongs to the target."""
        return self._target.covers(subject)

    def around_strategies(
        self, state: State, strategies: Strategies, in_force: Mapping[type[Policy], Policy]
    ) -> Strategies:
        """Return the strategies as they are."""
        return strategies

    def around_attempt(
        self, function: Callable[..., Any], name: str, environment: Environment | None, is_awaited: bool
    ) -> Callable[..., Any]:
        """Return the function as it is."""
        return function

    def around_call(self, call: GuardedCall, name: str, environment: Environment | None, own: int) -> GuardedCall:
        """Return the call of the guard *name* as it is; its first *own* arguments are not from the caller."""
        return call


def _is_of(home: type, resolver: Any, cls: type | None) -> bool:
    cls = cls or getattr(resolver.declaration, "owner", None)
    return cls is not None and issubclass(cls, home)


def target_of(where: str, candidate: Any) -> Target:
    """Return the target for *candidate*, an argument of *where*.

    Raises:
        FaultToleranceDefinitionException: Nothing of it is guarded.
    """
    if isinstance(candidate, Guard):
        return Target(candidate.name, (candidate._resolver,), None)
    if isinstance(candidate, type):
        target = Target(class_name(candidate), (), candidate)
        if any(_is_of(candidate, resolver, cls) for resolver in resolvers() for cls in resolver.classes()):
            return target
    else:
        found = [guard for function in accessors(candidate) or (candidate,) for guard in _guards_of(function)]
        owner = getattr(candidate, "__self__", None)
        if found:
            home = None if owner is None else owner if isinstance(owner, type) else type(owner)
            return Target(getattr(candidate, "__qualname__", repr(candidate)), tuple(found), home)
    raise definition_error(where, f"got {shown(candidate)}, which is not guarded", candidate, _TARGETS)


def _guards_of(function: Any) -> Iterator[AnyResolver]:
    """Yield each guard of *function*, the outermost first."""
    while True:
        function = unbound(function)
        if (find := finder_of(function)) is not None:
            try:
                yield find()
            except KeyError:
                pass  # below ``apply_guard``, whose guard is not there
            function = function.__wrapped__
        elif (declaration := declaration_of(function)) is not None:
            yield declaration.resolver
            function = declaration.template
        else:
            return


def kind_of(where: str, candidate: object) -> type[Policy]:
    """Return the policy that *candidate* names: its annotation, as ``"Retry"``, or its class.

    Raises:
        FaultToleranceDefinitionException: There is no such annotation.
    """
    every: list[type[Policy]] = [*Policy.__subclasses__(), *UNDECLARED]
    kinds = {kind.annotation: kind for kind in every}
    if isinstance(candidate, type) and candidate in kinds.values():
        return candidate
    if isinstance(candidate, str) and candidate in kinds:
        return kinds[candidate]
    hint = did_you_mean(candidate.title() if isinstance(candidate, str) else candidate, kinds)
    allowed = f"an annotation, such as 'Retry' or 'CircuitBreaker'{hint}"
    raise definition_error(where, f"got {shown(candidate)}", candidate, allowed)
