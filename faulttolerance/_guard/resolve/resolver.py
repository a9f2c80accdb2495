"""The call paths of one guarded function, found once for each class; its state, and the replacement of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import ref

from ..._call.core import is_detached
from ..._call.state import State, StateDraft, alias_in, state_before_calls
from ..._config import Configuration, settings
from ..._execution.caller_thread import GuardedCall
from ..._metrics.catalogue import CONFIGURATION
from ..._metrics.counters import ledger
from ..._platform.swap import Swap
from ..._policy import CircuitBreaker, Policy
from ..._signature.naming import class_name
from ...exceptions import Fault, FaultToleranceDefinitionException, raise_faults
from ..declare import registry
from ..declare.declaration import FUNCTION, Declaration, class_level_at_home, class_of_call, subclasses_of
from ..declare.registry import name_conflicts
from .assembly import interpreter_ends, method_call, unguarded_call, unguarded_call_while_hidden
from .effective import EffectivePolicies, effective_policies, is_first, plain_function
from .fingerprint import read_fingerprint

if TYPE_CHECKING:
    from ..declare.registry import AnyResolver


ledger.of_process.append((CONFIGURATION, read_fingerprint))


class ClassEntry(ref[type]):
    """Refers to a class that uses a guard, and holds the state of the guard for it.

    A guard without a class is used by the class of ``None``. Neither the class nor the resolver is kept alive.
    """

    __slots__ = ("declaration", "key", "state")

    def __new__(cls, user: type | None, declaration: Declaration | None) -> Self:
        return super().__new__(cls, NoneType if user is None else user, _remove_class)

    def __init__(self, user: type | None, declaration: Declaration | None) -> None:
        self.key = None if declaration is None or _is_home(user, declaration) else id(user)
        """The key of its path among ``MethodResolver.calls``; ``None`` if it has none there, as nearly always."""
        self.declaration = declaration
        self.state: State | None = None


def _remove_class(entry: ref[type]) -> None:
    """Remove a class that no longer exists; its counts stay in the ledger, under its name."""
    assert isinstance(entry, ClassEntry)
    assert entry.declaration is not None
    resolver = entry.declaration.resolver
    while resolver is not None and any(other is entry for other in resolver.class_entries):
        seen = settings.version.current
        swap = Swap()
        swap.attribute(
            resolver, "class_entries", tuple(other for other in resolver.class_entries if other is not entry)
        )
        swap.removal(resolver.calls, entry.key)
        if settings.version.swap(seen, swap):
            return


def _is_home(user: type | None, declaration: Declaration) -> bool:
    """Return whether *user* is the class that defines the method, or stands for a function."""
    return user is declaration.owner or declaration.binding == FUNCTION


class Resolver:
    """Finds the call paths of one guard, and keeps them until the configuration changes.

    The policies behind a path are not kept: they are resolved again on request.

    A subclass gives the slots from which calls read their paths further names, which only calls read. Until a renewal
    they are the slots, too, and nothing is asked.
    """

    __slots__ = ("class_entries", "declaration")
    _entrances: ClassVar[list[tuple[type, dict[str, Any]]]] = []
    """The subclasses, and the slots that calls read, by the names under which they do so."""

    def __init_subclass__(cls, **entrances: str) -> None:
        slots = {name: vars(cls)[slot] for name, slot in entrances.items()}
        for name, slot in slots.items():
            setattr(cls, name, slot)
        if slots:
            cls._entrances.append((cls, slots))

    def __init__(self, declaration: Declaration | None) -> None:
        settings.require_packages()
        self.declaration: Any = declaration
        self.class_entries: tuple[ClassEntry, ...] = ()
        """The classes that have called, with their states."""

    def class_entry_of(self, cls: type | None) -> ClassEntry | None:
        """Return the entry of *cls*, if it has called."""
        user = NoneType if cls is None else cls
        return next((entry for entry in self.class_entries if entry() is user), None)

    def state(self, cls: type | None) -> State | None:
        """Return the state for *cls*, if it has called."""
        entry = self.class_entry_of(cls)
        return entry.state if entry is not None else None

    def states(self) -> list[State]:
        """Return the states of all classes."""
        return [entry.state for entry in self.class_entries if entry.state is not None]

    def uncalled_breaker(self: AnyResolver, names: Collection[str] | None = None) -> list[State]:
        """Return the state of the circuit breaker of the declaring class, as its first call would create it.

        There is none after that call; if names are passed, only one with such a name.
        """
        cls = getattr(self.declaration, "owner", None)
        declared = self.declared_at_home() if self.state(cls) is None else {}
        if CircuitBreaker not in declared or not (names is None or {self.name_for(cls), alias_in(declared)} & {*names}):
            return []
        effective = self.in_force(cls)
        return [state_before_calls(effective.name, effective.policies)]

    def resolve_breaker(self: AnyResolver, names: Collection[str]) -> None:
        """Create the circuit breaker of the declaring class with one of *names*, if its method was not called yet."""
        if self.uncalled_breaker(names):
            self.create_state(getattr(self.declaration, "owner", None))

    def renew_paths(self: AnyResolver, kind: type) -> None:
        """Drop the call paths, so that the next call of each class resolves the policies again; the states stay.

        With them the resolver becomes an instance of *kind*, and drafts from before are not current any more.
        """
        while True:
            seen, swap = settings.version.current, Swap()
            for cls in self.classes_with_path():
                self.drop(cls, swap)
                registry.notify_changes(self, cls, swap)
            swap.attribute(self, "__class__", kind)
            if settings.version.swap(seen, swap):
                return


def renew_at_next_calls() -> None:
    """Renew the call paths of each guard at its next call; no guard is touched now.

    A property takes the place of the slots that calls read, at the same cost for any number of guards. It drops the
    paths of the resolver that a call enters, and makes the resolver an instance of a subclass in which they are slots.
    """
    for kind, slots in Resolver._entrances:
        renewed = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **slots})
        for name, slot in slots.items():
            setattr(kind, name, property(partial(_enter, renewed, slot)))


def _enter(renewed: type, slot: Any, resolver: Any) -> Any:
    resolver.renew_paths(renewed)
    return slot.__get__(resolver)


class Draft:
    """The draft of a guard for one class: it has no effect before ``stage``."""

    def __init__(self, resolver: AnyResolver, cls: type | None, effective: EffectivePolicies) -> None:
        self._resolver = resolver
        self._kind = type(resolver)
        self._cls = cls
        self._entry = resolver.class_entry_of(cls) or ClassEntry(cls, resolver.declaration)
        self.effective = effective
        detached = resolver.declaration is None or is_detached(effective.policies)  # a ``Guard`` knows it at a call
        state = self._entry.state or State(effective.name)
        self.state = StateDraft(
            state, effective.policies, detached=detached, observed=effective.observed, wrappers=effective.call_wrappers
        )
        self.calls: dict[object, GuardedCall] = {}
        """The call paths, as the resolver holds them."""

    @property
    def is_current(self) -> bool:
        """Whether the sources of the draft have not changed."""
        entry, state = self._resolver.class_entry_of(self._cls), self.state
        is_known = entry is None or entry is self._entry  # not ``==``, for which all references to a class are equal
        is_known = is_known and type(self._resolver) is self._kind  # its paths may have been renewed
        return is_known and self._entry.state in (None, state.state) and state.is_current

    def stage(self, swap: Swap) -> None:
        """Replace the guard by this draft, together with the other stores of *swap*."""
        resolver, entry = self._resolver, self._entry
        if self.effective.policies or entry.state is not None:
            self.state.stage(swap)
            swap.attribute(entry, "state", self.state.state)
        if all(other is not entry for other in resolver.class_entries):
            swap.attribute(resolver, "class_entries", (*resolver.class_entries, entry))
        resolver.stage(self._cls, self, swap)

    def try_commit(self, basis: Configuration) -> bool:
        """Apply only this draft; return false if anything has changed since *basis* was read."""
        while True:
            seen = settings.version.current
            if settings.state is not basis or not self.is_current:
                return False
            if clashes := name_conflicts([self.effective], self.state.state):
                if settings.state is not basis:
                    return False  # the others may already follow a configuration of meanwhile
                raise FaultToleranceDefinitionException(*clashes)
            swap = Swap()
            self.stage(swap)
            registry.notify_changes(self._resolver, self._cls, swap)
            try:
                is_done = settings.version.swap(seen, swap)
            finally:
                self.state.state.update_strategies()
            if is_done:
                return True


_NO_CALLS: dict[int, GuardedCall] = {}
"""The call paths of each method that no other class has called yet; nothing is ever stored here."""


class MethodResolver(Resolver, entered_call="call", entered_home="home"):
    """Finds the call path of one guarded function for each class that calls it."""

    __slots__ = ("call", "calls", "home")
    declaration: Declaration
    entered_call: GuardedCall
    entered_home: type | None

    def __init__(self, declaration: Declaration) -> None:
        self.home: type | None = _NoClass
        """The class that defines the method, when it has a call path; ``None`` for a function."""
        if declaration.binding == FUNCTION:
            self.call: GuardedCall = _first_call(declaration)
            """The call path of ``home``."""
        self.calls = _NO_CALLS
        """The call paths of other concrete classes by their id; an entry goes with its class."""
        super().__init__(declaration)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a new resolver for a guard that is pickled by value: call paths and counts stay here."""
        return MethodResolver, (self.declaration,)

    @property
    def guarded(self) -> Callable[..., Any]:
        """The guard, which the application calls."""
        return self.declaration.guard  # type: ignore[no-any-return]

    # First calls

    def for_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GuardedCall:
        """Return the call path for the arguments of a method, whose first argument is its object or class."""
        cls = class_of_call(self.declaration, args)
        return self._path_of(cls) or self.for_class(cls)

    def for_class(self, cls: type | None) -> GuardedCall:
        """Return the call path for the concrete class *cls*."""
        if interpreter_ends():
            return unguarded_call(plain_function(self.declaration, cls))
        with registry.resolving:
            while (call := self._path_of(cls)) is None:
                basis = settings.basis(with_switches=True)
                effective, faults = self.effective_policies(cls, basis)
                if faults:
                    raise_faults(faults)
                self.draft(cls, effective).try_commit(basis)
            return call

    def create_state(self, cls: type | None) -> None:
        """Create the state for *cls* as if it had called."""
        self.for_class(cls)

    # Configuration

    def effective_policies(
        self, cls: type | None, basis: Configuration | None = None
    ) -> tuple[EffectivePolicies, list[Fault]]:
        """Return the policies in force for *cls* under the configuration *basis*, and their faults."""
        return effective_policies(self, cls, basis or settings.basis())

    def in_force(self, cls: type | None, basis: Configuration | None = None) -> EffectivePolicies:
        """Return the policies in force for *cls* under the configuration *basis*, without a check for faults."""
        return effective_policies(self, cls, basis or settings.basis(), is_checked=False)[0]

    def name_for(self, cls: type | None) -> str:
        """Return the name of the guard if *cls* uses it, without resolving its policies."""
        return self.declaration.where if cls is None else f"{class_name(cls)}.{self.declaration.name}"

    def draft(self, cls: type | None, effective: EffectivePolicies) -> Draft:
        """Assemble the call path of *effective*, and the draft of the state for *cls*."""
        draft, declaration = Draft(self, cls, effective), self.declaration
        # A method with policies is not hidden, or it would have none here.
        if not (cls is None or declaration.binding == FUNCTION or effective.declared or is_first(declaration, cls)):
            draft.calls[cls] = unguarded_call_while_hidden(effective.function, declaration, cls)
        else:
            draft.calls[cls] = method_call(declaration, effective, draft.state)
        return draft

    def stage(self, cls: type | None, draft: Draft, swap: Swap) -> None:
        """Replace the call path for *cls* by that of *draft*, together with the other stores of *swap*."""
        if _is_home(cls, self.declaration):
            swap.attribute(self, "call", draft.calls[cls])
            swap.attribute(self, "home", cls)
        else:
            if self.calls is _NO_CALLS:
                self.calls = {}  # a thread that does so at the same time finds no path, and then this path
            swap.item(self.calls, id(cls), draft.calls[cls])

    def drop(self, cls: type | None, swap: Swap) -> None:
        """Drop the call path for *cls*, so that its next call resolves the policies again; the state stays."""
        if not _is_home(cls, self.declaration):
            swap.removal(self.calls, id(cls))
            return
        swap.attribute(self, "home", _NoClass)
        if self.declaration.binding == FUNCTION:
            swap.attribute(self, "call", _first_call(self.declaration))

    def classes_with_path(self) -> list[type | None]:
        """Return the classes with a call path, ``None`` for that of a function."""
        users = [entry() for entry in self.class_entries]
        living = [None if user is NoneType else user for user in users if user is not None]
        return [user for user in living if self._path_of(user) is not None]

    def declared_at_home(self) -> dict[type[Policy], Policy]:
        """Return the declared policies of the declaring class."""
        declaration = self.declaration
        if declaration.owner is None and declaration.binding != FUNCTION:
            return {}  # added to a class later, it is known by the class that uses it
        class_level = {kind: policy for kind, (policy, _) in class_level_at_home(declaration).items()}
        return {**class_level, **declaration.policies}

    def classes(self) -> Iterator[type | None]:
        """Yield the classes that have the method, each with its own policies and state."""
        owner = self.declaration.owner
        if owner is None and self.declaration.binding != FUNCTION:
            # Added to a class later, it is known by the classes that use it.
            yield from self.classes_with_path() or [None]
        else:
            subclasses = subclasses_of(owner) if owner is not None else ()
            yield from dict.fromkeys([owner, *subclasses, *self.classes_with_path()])

    def _path_of(self, cls: type | None) -> GuardedCall | None:
        return self.call if cls is self.home else self.calls.get(id(cls))


class _NoClass:
    """The home of guards that were never called."""


def _first_call(declaration: Declaration) -> GuardedCall:
    # The resolver holds this function: a strong reference would be a cycle.
    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        resolver = declaration.resolver
        if resolver is None:
            # Weak references are cleared before finalizers run: a finalizer calls a guard that ends with it.
            return declaration.template(*args, **kwargs)
        return resolver.for_class(resolver.declaration.owner)(args, kwargs)

    return call
