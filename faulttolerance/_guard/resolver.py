"""What the resolvers of methods and of a ``Guard`` have in common: what is remembered, and how it is replaced."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from .._call.state import State, StateDraft
from .._config import State as Configuration, settings
from .._runtime.blocking import GuardedCall
from .._swap import Swap
from ..exceptions import FaultToleranceDefinitionException
from . import registry
from .circuit_breakers import name_clashes
from .declaration import Declaration
from .effective import EffectivePolicies

if TYPE_CHECKING:
    from .registry import AnyResolver


class Use(ref[type]):
    """Refers to a class that uses a guard, and has what the guard remembers for it.

    What belongs to no class is used by that of ``None``. Neither the class nor the resolver is kept.
    """

    __slots__ = ("declaration", "key", "state")

    def __new__(cls, user: type | None, declaration: Declaration | None) -> Self:
        return super().__new__(cls, NoneType if user is None else user, _departed)

    def __init__(self, user: type | None, declaration: Declaration | None) -> None:
        self.key = id(user)
        self.declaration = declaration
        self.state: State | None = None


def _departed(use: ref[type]) -> None:
    """Let go of a class that no longer exists; its counts stay in the ledger, under its name."""
    assert isinstance(use, Use)
    assert use.declaration is not None
    resolver = use.declaration.resolver
    while resolver is not None and any(other is use for other in resolver.uses):
        seen = settings.version.current
        swap = Swap()
        swap.attribute(resolver, "uses", tuple(other for other in resolver.uses if other is not use))
        swap.removal(resolver.calls, use.key)
        if settings.version.swap(seen, swap):
            return


class Resolver:
    """Finds the call paths of one guard, and keeps them until the configuration changes.

    What led to a path is not kept: who wants to know finds it again.
    """

    __slots__ = ("__weakref__", "declaration", "uses")

    def __init__(self, declaration: Declaration | None) -> None:
        self.declaration: Any = declaration
        self.uses: tuple[Use, ...] = ()
        """The classes that have called, and what is remembered for them."""
        registry.add(self)  # type: ignore[arg-type]  # last: from here on, others see it

    def use_of(self, cls: type | None) -> Use | None:
        """Give what there is of *cls*, if it has called."""
        return next((use for use in self.uses if use.key == id(cls)), None)

    def state(self, cls: type | None) -> State | None:
        """Give what is remembered for *cls*, if it has called."""
        use = self.use_of(cls)
        return use.state if use is not None else None

    def states(self) -> list[State]:
        """Give what is remembered, class by class."""
        return [use.state for use in self.uses if use.state is not None]


class Draft:
    """The draft of a guard for one class: nothing of it is there before ``put``."""

    __slots__ = ("_cls", "_resolver", "_use", "calls", "effective", "state")

    def __init__(self, resolver: AnyResolver, cls: type | None, effective: EffectivePolicies) -> None:
        self._resolver = resolver
        self._cls = cls
        self._use = resolver.use_of(cls) or Use(cls, resolver.declaration)
        self.effective = effective
        self.state = StateDraft(self._use.state or State(effective.name), effective.policies)
        self.calls: dict[object, GuardedCall] = {}
        """The call paths, as the resolver keeps them."""

    @property
    def is_current(self) -> bool:
        """Whether all that the draft was made from is still there."""
        use, state = self._resolver.use_of(self._cls), self.state
        is_known = use is None or use is self._use  # not ``==``, by which all references to a class are one
        return is_known and self._use.state in (None, state.state) and state.is_current

    def put(self, swap: Swap) -> None:
        """Let the guard become this, together with the other stores of *swap*."""
        resolver, use = self._resolver, self._use
        if self.effective.policies:
            self.state.put(swap)
            swap.attribute(use, "state", self.state.state)
        if all(other is not use for other in resolver.uses):
            swap.attribute(resolver, "uses", (*resolver.uses, use))
        resolver.put(self._cls, self, swap)

    def put_in_force(self, basis: Configuration) -> bool:
        """Put this draft in force alone; false if anything has changed since the configuration *basis* was read."""
        while True:
            seen = settings.version.current
            if settings.state is not basis or not self.is_current:
                return False
            if clashes := name_clashes([self.effective]):
                raise FaultToleranceDefinitionException(*clashes)
            swap = Swap()
            self.put(swap)
            try:
                if settings.version.swap(seen, swap):
                    return True
            finally:
                self.state.state.follow()
