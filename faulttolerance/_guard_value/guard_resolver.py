"""The paths of calls through one ``Guard``: its policies, their state, and a call path for each way to call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import ref

from .._call.order import MODIFIED, ROWS
from .._call.row import Row
from .._config import Configuration, Declared, settings
from .._deadline.threads.roles import CALLER, register
from .._execution.caller_thread import Callback, GuardedCall
from .._guard.declare import registry
from .._guard.declare.checks.definition import callback_faults
from .._guard.declare.creation_site import CreationSite
from .._guard.declare.declaration import FUNCTION, INSTANCE, Declaration, binding_by_name, class_of_call
from .._guard.resolve.assembly import block_call, guarded_call, interpreter_ends, unguarded_call
from .._guard.resolve.awaitable import call_awaited
from .._guard.resolve.effective import EffectivePolicies, configured, mismatches
from .._guard.resolve.resolver import Draft, Resolver
from .._platform.swap import Swap
from .._policy import BeforeRetry, Fallback, Policy, Retry
from ..exceptions import Fault, raise_faults

if TYPE_CHECKING:
    from .guard import Guard

T = TypeVar("T")


class BlockForm(NamedTuple):
    """One way of guarding a block of code."""

    retries: bool
    """Whether it is a block of a loop, ``attempts()``; otherwise it is the only block."""
    asynchronous: bool


class GuardResolver(Resolver, entered_paths="paths", entered_effective="effective"):
    """Finds the call paths of one ``Guard``, for each way to call it. The class that uses it is always ``None``."""

    __slots__ = ("__weakref__", "_guard", "declared", "effective", "name", "paths", "site")
    entered_effective: EffectivePolicies | None
    entered_paths: dict[object, GuardedCall]

    def __init__(self, guard: Guard, site: CreationSite, declared: Sequence[Declared]) -> None:
        self._guard = ref(guard)
        self.name = site.name
        self.site = site
        self.declared = tuple(declared)
        self.effective: EffectivePolicies | None = None
        """The policies in force, after the first call of the guard; another object whenever they change."""
        self.paths: dict[object, GuardedCall] = {}
        """The paths of functions that are passed to each call, by their caller: one of ``_CALLERS``."""
        super().__init__(None)

    @property
    def guarded(self) -> Guard | None:
        """The ``Guard``, as long as it lives."""
        return self._guard()

    def effective_policies(
        self, cls: type | None = None, basis: Configuration | None = None
    ) -> tuple[EffectivePolicies, list[Fault]]:
        """Return the policies in force under the configuration *basis*, and their faults."""
        effective, faults = self._resolved(basis or settings.basis())
        return effective, faults or self._faults(effective)

    def in_force(self, cls: type | None = None, basis: Configuration | None = None) -> EffectivePolicies:
        """Return the policies in force under the configuration *basis*, without a check for faults."""
        basis, known = basis or settings.basis(), self.effective
        # One swap replaces both, and the configuration was read first.
        return known if known is not None and settings.state is basis else self._resolved(basis)[0]

    def name_for(self, cls: type | None) -> str:
        """Return the name of the guard."""
        return self.name

    def _resolved(self, basis: Configuration) -> tuple[EffectivePolicies, list[Fault]]:
        declared = EffectivePolicies(self.name, call_blocking, self.declared, line=self.site.line)
        return configured(declared, (self, None), basis)

    def _faults(self, effective: EffectivePolicies) -> list[Fault]:
        callers = [caller for caller in self.paths if caller in (call_blocking, *_BLOCKS)] or [call_awaited]
        found = [
            value.with_source(fault)
            for caller in callers
            for value in effective.values
            if value.enabled
            for fault in policy_faults((value.policy,), self.name, caller, _is_awaited(caller))
        ]
        return [*dict.fromkeys(found), *mismatches(effective)]

    def draft(self, cls: type | None, effective: EffectivePolicies) -> Draft:
        """Assemble the call paths of the ways that were called, and the draft of the state."""
        draft = Draft(self, cls, effective)
        for caller in list(self.paths):
            draft.calls[caller] = _assembled(caller, draft, _is_awaited(caller))
        return draft

    def stage(self, cls: type | None, draft: Draft, swap: Swap) -> None:
        """Replace the call paths by those of *draft*, together with the other stores of *swap*."""
        paths = dict(self.paths) if draft.effective is self.effective else {}
        paths |= {caller: call for caller, call in draft.calls.items() if caller in (*_CALLERS, *_BLOCKS)}
        swap.attribute(self, "paths", paths)
        swap.attribute(self, "effective", draft.effective)

    def drop(self, cls: type | None, swap: Swap) -> None:
        """Drop the call paths, so that the next call resolves the policies again; the state stays."""
        swap.attribute(self, "effective", None)
        swap.attribute(self, "paths", {})

    def classes_with_path(self) -> list[type | None]:
        """Return the class that has called, if any."""
        return [None] if self.effective is not None else []

    def classes(self) -> list[type | None]:
        """Return the class that may call."""
        return [None]

    def declared_at_home(self) -> dict[type[Policy], Policy]:
        """Return the declared policies."""
        return {type(entry.policy): entry.policy for entry in self.declared}

    def create_state(self, cls: type | None = None) -> None:
        """Create the state of the guard as if it had been called."""
        self._resolve(None, asynchronous=False)

    def path(self, caller: Any) -> GuardedCall:
        """Return the call path of functions that are passed to *caller*, one of ``_CALLERS``, or of blocks."""
        return self.entered_paths.get(caller) or self.resolve(caller, _is_awaited(caller))[1]

    def blocks(self, *, retries: bool) -> Callable[[bool], GuardedCall]:
        """Return a function that returns the call path of blocks; its argument is whether they belong to a coroutine.

        Raises:
            FaultToleranceDefinitionException: If a policy requires more than a block has.
        """
        effective = self.effective
        if effective is None or not (BlockForm(retries, False) in self.paths or BlockForm(retries, True) in self.paths):
            self.check(BlockForm(retries, asynchronous=True), True, effective or self._resolve(None, True).effective)
        return lambda asynchronous: self.path(BlockForm(retries, asynchronous))

    def resolve(self, function: Any, asynchronous: bool) -> tuple[EffectivePolicies, GuardedCall]:
        """Return the call path of *function*, and the value of ``effective`` for which it is valid."""
        if interpreter_ends() and not isinstance(function, BlockForm):
            return EffectivePolicies(self.name, function), unguarded_call(function)
        draft = self._resolve(function, asynchronous)
        return draft.effective, draft.calls[function]

    def _resolve(self, function: Any, asynchronous: bool) -> Draft:
        with registry.resolving:
            while True:
                basis, effective = settings.basis(with_switches=True), self.effective
                if effective is None:
                    effective, faults = self.effective_policies(None, basis)
                    raise_faults(faults)
                draft = Draft(self, None, effective)
                if function is not None:
                    self.check(function, asynchronous, effective)
                    draft.calls[function] = _assembled(function, draft, asynchronous)
                if draft.try_commit(basis):
                    return draft

    def check(self, function: Any, asynchronous: bool, effective: EffectivePolicies | None = None) -> None:
        """Raise an error if callbacks of the policies, by default the declared policies, misfit *function*."""
        declared = [entry.policy for entry in self.declared]
        policies = declared if effective is None else effective.policies.values()
        raise_faults(policy_faults(policies, self.name, function, asynchronous))


def _assembled(function: Any, draft: Draft, asynchronous: bool) -> GuardedCall:
    effective = draft.effective

    def bind(policy: Fallback | BeforeRetry) -> Callback:
        return _bind_callback(policy, function)

    if isinstance(function, BlockForm):
        values = effective.values
        if not function.retries:
            values = [value for value in values if MODIFIED.get(kind := type(value.policy), kind) is not Retry]
        in_block = effective._replace(values=values)
        return block_call(in_block, draft.state, bind_callback=bind, asynchronous=asynchronous)
    is_caller, detached = function in _CALLERS, function is call_detached
    if function is call_ended:
        effective = effective._replace(values=[value for value in effective.values if _judges(type(value.policy))])
    return guarded_call(
        function,
        effective,
        draft.state,
        bind_callback=bind,
        asynchronous=asynchronous,
        detached=detached,
        on_threads=detached,
        awaits=None if detached else True,
        declaration=None if is_caller else _declaration(function),
        advice="use call_async" if function is call_blocking else "",
    )


@register(CALLER)
def call_blocking(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function*: the guarded function of a guard to which functions are passed."""
    return function(*args, **kwargs)


@register(CALLER)
def call_detached(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function* on a thread of the pool, while its caller awaits the result."""
    return function(*args, **kwargs)


@register(CALLER)
def call_ended(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call *function*, which tells how a call has ended, under the policies that judge it; none makes it wait."""
    return function(*args, **kwargs)


_CALLERS = (call_blocking, call_awaited, call_detached, call_ended)
"""The functions that are guarded in place of those passed at each call."""


_BLOCKS = tuple(BlockForm(retries, asynchronous) for retries in (False, True) for asynchronous in (False, True))


def _is_awaited(caller: Any) -> bool:
    return caller.asynchronous if isinstance(caller, BlockForm) else caller not in (call_blocking, call_ended)


def _judges(kind: type[Policy]) -> bool:
    """Return whether the policy judges how calls end, or finds the policy that does, by the key of the call."""
    row = ROWS[MODIFIED.get(kind, kind)]
    is_divided = row.strategy_factory is not None and row.strategy_factory.nested is not None
    return row.policy is Retry or row.is_gate or is_divided


def _needs_key(policy: Policy) -> bool:
    row = ROWS.get(type(policy))
    return (row is not None and row.needs_arguments) or getattr(policy, "recalling", None) is not None


def policy_faults(
    policies: Iterable[Policy], name: str, function: Any = call_awaited, asynchronous: bool = True
) -> Iterator[Fault]:
    """Yield the faults of *policies* of the guard *name* with *function*, by default any function passed to it."""
    where = f"Guard {name}{'' if asynchronous else '.call'}"
    if isinstance(function, BlockForm):
        where = f"Guard {name}.{'attempts' if function.retries else 'attempt'}"
        yield from chain.from_iterable(_block_faults(policy, where) for policy in policies)
        function = call_awaited if asynchronous else call_blocking
    for policy in chain.from_iterable(getattr(each, "links", ()) or (each,) for each in policies):
        if isinstance(policy, (Fallback, BeforeRetry)) and policy.value is None:
            parameter = "fallback_method" if isinstance(policy, Fallback) else "method_name"
            place, named = f"Guard {name} @{policy.annotation}({parameter})", getattr(policy, parameter)
            yield Fault(place, f"is {named!r}", named, "a handler: a guard belongs to no class")
        elif function not in _CALLERS or not _needs_key(policy):  # a key is checked per function
            declaration = _declaration(function)
            if function not in _CALLERS:
                where = f"{declaration.where} under Guard {name}"
            yield from callback_faults(policy, declaration, where, asynchronous, final=True)


def _block_faults(policy: Policy, where: str) -> list[Fault]:
    """Return the faults of *policy* around a block, which has neither a result nor arguments."""
    place = f"{where} @{policy.annotation}"
    if (predicate := getattr(policy, "result", None)) is not None:
        return [Fault(f"{place}(result)", "checks a result, and a block has none", predicate, "None; or use call")]
    row = ROWS.get(type(policy), Row())
    problem, allowed = row.block_fault or ("", "")
    if row.needs_arguments:
        problem = "needs the arguments of a call, and a block has none"
    allowed = allowed or "a guard without it; or put the block into a function, and call the function"
    return [Fault(place, problem, None, allowed)] if problem else []


def _declaration(function: Callable[..., Any]) -> Declaration:
    return Declaration(function, {}, FUNCTION if function in _CALLERS else binding_by_name(function))


def _bind_callback(policy: Fallback | BeforeRetry, function: Any) -> Callback:
    from .._guard.resolve.callback import bind_callback

    def callback(args: tuple[Any, ...], kwargs: Mapping[str, Any], failure: BaseException, attempts: int) -> Any:
        called, args = (args[0], args[1:]) if function in _CALLERS else (function, args)
        if isinstance(function, BlockForm):
            called, args = args[0], ()
        declaration = _declaration(called)
        # A static method of a local class has the name of a method, but no instance as first argument.
        if declaration.binding == INSTANCE and class_of_call(declaration, args) is None:
            declaration.binding = FUNCTION
        return bind_callback(policy, declaration)(args, kwargs, failure, attempts)

    return callback
