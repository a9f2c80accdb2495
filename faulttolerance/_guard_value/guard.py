"""Guards as values: policies with one state, for code that is no method."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from .._call.block import Attempt, Attempts, single_attempt
from .._call.core import is_detached
from .._call.order import ROWS
from .._config import Declared
from .._guard.declare import creation_site, registry
from .._guard.declare.checks import definition
from .._guard.declare.creation_site import CO_OPTIMIZED, CreationSite
from .._guard.declare.declaration import INSTANCE, binding_by_name
from .._guard.resolve.awaitable import NotAwaitableError, call_awaited, is_coroutine_code, is_plain_function
from .._platform.event_loop import running_loop
from .._platform.frames import module_of
from .._policy import CircuitBreaker, Policy, parameters
from .._shown import did_you_mean, shown
from .._signature.kind import generator_faults, is_coroutine_function, mark_coroutine_function
from .._signature.method import as_real_method, bind_at_each_call
from .._signature.naming import copy_names, import_name
from ..exceptions import Fault, definition_error, raise_faults
from .guard_resolver import GuardResolver, call_blocking, call_detached, call_ended, policy_faults

if TYPE_CHECKING:
    from inspect import Signature

    from .._extensions.keywords import GuardPolicies

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_named: dict[str, Guard] = {}
_finders: WeakKeyDictionary[Callable[..., Any], ref[Callable[[], GuardResolver]]] = WeakKeyDictionary()
"""The function that returns the guard of each decorated function, which holds it; a guard may refer to the function."""


class _GuardSignature:
    """Shows ``inspect`` and ``help`` the parameters of ``Guard`` one by one; created on request."""

    def __get__(self, guard: Guard | None, owner: type[Guard]) -> Signature:
        if guard is not None or owner.__init__ is not Guard.__init__:
            raise AttributeError("__signature__")  # the signature of ``__call__``, or of another constructor
        from inspect import Parameter, Signature

        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=f"{kind.__name__} | None")
            for name, kind in _PARAMETERS.items()
        ]
        given = Parameter("given", Parameter.VAR_POSITIONAL, annotation="Policy | Callable[..., Any]")
        return Signature([given, *parameters, Parameter("name", Parameter.KEYWORD_ONLY, default="", annotation="str")])


class Guard:
    """A set of policies with one state, for calls of any function.

    Synchronous and asynchronous calls share the circuit breaker, the permits and the rate window.

    Args:
        *given: Decorators, as in ``Guard(retry(max_retries=2), timeout("500ms"))``, or policies, in any order.
        **policies: The same policies by name: ``retry=Retry(...)``, ``timeout=Timeout(...)`` and so on, each under the
            name of its decorator; ``fallback`` and ``before_retry`` with a function, not with a method's name.
        name: The name for ``apply_guard``, ``circuit_breakers``, pickles and keys such as
            ``payments/Retry/maxRetries``; reserved until ``close``. Without a name, the guard is named after the module
            and line that create it, with a number for all but the first guard of the line, as in ``acme.clients:12#2``;
            metrics add up the guards of a line.

    Raises:
        FaultToleranceDefinitionException: If another guard has the name, if a policy names a method or lacks the policy
            that it modifies, if the name is no text, or if the value of a parameter is not the policy of that name.

    >>> from faulttolerance import retry
    >>> guard = Guard(retry(max_retries=2, retry_on=OSError))
    >>> guard.call(int, "7")
    7
    """

    __signature__ = _GuardSignature()

    def __init__(self, *given: Policy | Callable[..., Any], name: str = "", **policies: Unpack[GuardPolicies]) -> None:
        by_kind = _by_kind(given, policies)
        definition.check_name("Guard(name)", name or "", "text that is not the name of another guard, or none")
        name = str.__str__(name or "")  # a member of an enumeration would be formatted by its own name
        frame = creation_site.declaring_frame()
        site = CreationSite(name, name) if name else creation_site.creation_site_of(self, frame)
        self.name = site.name
        declared = [Declared(policy, "class", name, "") for policy in by_kind.values()]
        where = f"Guard {self.name}"
        of_policies = chain(definition.exclusive_faults(by_kind, where), definition.value_faults(by_kind, where))
        of_use = chain(definition.companion_faults(declared, where, None), policy_faults(by_kind.values(), self.name))
        raise_faults(chain(of_policies, of_use))
        if CircuitBreaker in by_kind and not name:
            creation_site.warn_of_one_per_call(site.line)
        self._resolver = GuardResolver(self, site, declared)
        self._creator = _module_that_runs(frame)
        other = _named.setdefault(name, self) if name else self
        if other is not self:
            if not _is_reloaded(self._creator, other._creator):
                problem, allowed = "has the name of another guard", "a name that no other guard has"
                raise definition_error(f"Guard(name={name!r})", problem, name, allowed)
            _named[name] = self
        registry.add(self._resolver)  # last: from here on, others see it

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *function* on this thread under the policies.

        Raises:
            FaultToleranceDefinitionException: If *function* is a coroutine function or a generator function, which does
                not run, or cannot be called, as the result of ``call(f(x))``.
            TypeError: If *function* returned an awaitable: the call is neither retried nor replaced.
        """
        resolver = self._resolver
        path = resolver.entered_paths.get(call_blocking) or resolver.path(call_blocking)
        try:
            return path((function, *args), kwargs)  # type: ignore[no-any-return]
        except TypeError:
            self._reject_uncallable(function, "call")
            if not is_coroutine_function(function):
                raise
        problem = f"got {getattr(function, '__qualname__', function)}, a coroutine function"
        allowed = "a plain function; or use call_async"
        raise definition_error(f"Guard {self.name}.call", problem, function, allowed)

    def _judge(self, function: Callable[..., Any], /, *args: Any) -> None:
        """Report a call that ended as *function* does to circuit breaker, throttle and budget; no limit counts it."""
        self._resolver.path(call_ended)((function, *args), {})

    def _reject_uncallable(self, function: object, method: str) -> None:
        """Raise an error if *function* cannot be called: mostly it was called instead of passed."""
        if callable(function):
            return
        if isinstance(function, Coroutine):
            function.close()  # no code will await it
        problem = f"got {shown(function)}, which cannot be called"
        allowed = f"a callable and its arguments: {method}(f, x), not {method}(f(x))"
        raise definition_error(f"Guard {self.name}.{method}", problem, function, allowed) from None

    @overload
    async def call_async(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call_async(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def call_async(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call *function* and await its result, under the policies; a plain ``def`` runs on a thread of the pool.

        Raises:
            FaultToleranceDefinitionException: If *function* is a generator function, which does not run, or cannot be
                called, as the coroutine of ``call_async(f(x))``.
            TypeError: If a lambda, a wrapper or another object returned no awaitable. It was called once: the call is
                neither retried nor replaced, and is no failure to the circuit breaker.
        """
        if not is_coroutine_code(function) and is_plain_function(function):
            running_loop(self.name)  # before it starts
            return await self._resolver.path(call_detached)((function, *args), kwargs)
        resolver = self._resolver
        path = resolver.entered_paths.get(call_awaited) or resolver.path(call_awaited)
        try:
            return await path((function, *args), kwargs)
        except TypeError:
            self._reject_uncallable(function, "call_async")
            raise
        except NotAwaitableError as error:
            problem = str(error)
        raise_faults(generator_faults(function))
        raise TypeError(f"{self.name}: call_async needs an awaitable result, or a plain `def`; use call; {problem}")

    def attempt(self) -> Attempt:
        """Guard a block of code, ``with guard.attempt():`` or ``async with``: one attempt under all but the retry.

        Raises:
            FaultToleranceDefinitionException: If a policy needs a result or arguments, as a fallback does: a block has
                neither.
        """
        return single_attempt(self._resolver.blocks(retries=False), self.attempt)

    def attempts(self) -> Attempts:
        """Guard a block of code that is repeated: ``for attempt in guard.attempts():``, in it ``with attempt:``.

        In a coroutine, use ``async for`` and ``async with``. Each loop is one call. It ends with the first successful
        block. If there is no further attempt, the block raises the last failure.

        Raises:
            FaultToleranceDefinitionException: As for ``attempt``.
        """
        return Attempts(self._resolver.blocks(retries=True), self.attempts)

    def __call__(self, function: F) -> F:
        """Decorate *function*; all functions that one guard decorates share its state."""
        held = _Held(self)
        return _decorated(function, lambda: held.resolver, self._resolver.check)

    def port(self, client: T, methods: str | Iterable[str] | None = None) -> T:
        """Return a proxy of *client* that runs its public methods under the policies, all with the state of this guard.

        Coroutine functions are awaited as by ``call_async``. Generator functions, classes and other attributes are
        those of the client, and so are ``isinstance``, ``repr`` and pickles. Calls of the client to its own methods are
        not guarded.

        Args:
            client: Any object.
            methods: The names of the methods to guard, or patterns such as ``"get_*"``; ``None`` for all.

        Raises:
            FaultToleranceDefinitionException: If one of *methods* matches nothing.
            ImportError: If wrapt is not installed, the extra ``patch``.
        """
        from .client_proxy import proxy_of

        return proxy_of(client, self, methods)  # type: ignore[no-any-return]  # the proxy passes for a client

    def close(self) -> None:
        """Release the name."""
        if _named.get(self.name) is self:
            del _named[self.name]

    # Like a function or a lock, a guard has no copies: each copy would limit and open separately.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        module = self._creator[0]
        if _named.get(self.name) is self:
            return _by_name, (self.name, module)
        for attribute, value in list(getattr(sys.modules.get(module), "__dict__", {}).items()):
            if value is self:
                return _by_attribute, (module, attribute)
        raise TypeError(
            f"cannot pickle the guard {self.name}: its state belongs to this process. Give it a name, or create it at"
            " the top level of a module: pickle then stores its name, as for a function"
        )

    def __dir__(self) -> list[str]:
        """Return only the public names."""
        return [name for name in super().__dir__() if not name.startswith("_") or name.endswith("__")]

    def __repr__(self) -> str:
        policies = [declared.policy for declared in self._resolver.declared]
        arguments = [f"{definition.decorator_name(type(policy))}={policy!r}" for policy in policies]
        return f"Guard({', '.join([*arguments, f'name={self.name!r}'])})"


_PARAMETERS = {definition.decorator_name(kind): kind for kind in ROWS if not is_detached((kind,))}
"""The policies that a guard accepts, by parameter, in their order of nesting; callers decide on the kind of a call."""


def _by_kind(given: Iterable[object], policies: Mapping[str, Any]) -> dict[type[Policy], Policy]:
    """Return the policies of a guard by kind, in the order in which they nest."""
    for name in policies.keys() - _PARAMETERS.keys():
        hint = did_you_mean(name, _PARAMETERS)
        raise TypeError(f"Guard.__init__() got an unexpected keyword argument {name!r}{hint}")
    by_kind = {kind: policies[name] for name, kind in _PARAMETERS.items() if policies.get(name) is not None}
    faults = [
        Fault(f"Guard({definition.decorator_name(kind)})", f"is {shown(value)}", value, _accepted_instead(value, kind))
        for kind, value in by_kind.items()
        if not isinstance(value, kind)
    ]
    for policy in map(declared_by, given):
        kind: Any = type(policy)
        if kind not in _PARAMETERS.values():
            allowed = "retry(...), timeout(...) and so on"
            faults.append(Fault("Guard", f"got {shown(policy)}", policy, allowed))
        elif by_kind.setdefault(kind, policy) is not policy:
            faults.append(Fault("Guard", f"got two policies {kind.__name__}", policy, "one of each kind per guard"))
    raise_faults(faults)
    return {kind: by_kind[kind] for kind in _PARAMETERS.values() if kind in by_kind}


def declared_by(given: Any) -> Any:
    """Return the policy that a decorator declares, or *given* itself if it is none."""
    if hasattr(type(given), "declared_policy"):
        return given.declared_policy()
    kind: Any = getattr(given, "__wrapped__", None)
    is_bare = isinstance(kind, type) and issubclass(kind, Policy)  # a decorator without parentheses
    return kind() if is_bare and kind._fields.keys() == kind._defaults.keys() else given


def _accepted_instead(value: object, kind: type[Policy]) -> str:
    """Return the words for the accepted values in place of *value*, which is no *kind*, perhaps with a suggestion."""
    first = next(iter(kind.__match_args__), "")
    fits = first and parameters(kind)[first].kind.accepts(value)
    return f"{kind.__name__}(...) or None" + (f"; perhaps {kind.__name__}({shown(value)}) is meant" if fits else "")


class _Held:
    """A guard in the functions that it decorates: only pickles of these by value, as from cloudpickle, come here."""

    __slots__ = ("guard", "resolver")

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.resolver = guard._resolver

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what finds the guard if its module can be imported, else what makes it, with new state (rule P3)."""
        if import_name(self.guard._creator[0], {}) not in ("", "__main__"):
            return _Held, (self.guard,)
        return _held_by_value, (self.resolver.site, self.resolver.declared, _named.get(self.guard.name) is self.guard)


_received: WeakValueDictionary[str, Guard] = WeakValueDictionary()
"""The guards without a name that came by value: a pickle with the same one joins it."""


def _held_by_value(site: CreationSite, declared: tuple[Declared, ...], is_named: bool) -> _Held:
    """Return a guard that came by value: the guard of that name if there is one, else a new one."""
    guard = _named.get(site.name) if is_named else _received.get(site.name)
    if guard is None or (not is_named and guard._resolver.declared != declared):
        guard = Guard.__new__(Guard)
        guard.name, guard._creator = site.name, _NO_MODULE
        guard._resolver = GuardResolver(guard, site, declared)
        (_named if is_named else _received)[site.name] = guard
        registry.add(guard._resolver)
    return _Held(guard)


def _by_name(name: str, module: str) -> Guard:
    """Return the guard *name* in the process that unpickles it; *module* creates it there."""
    if name not in _named and module:
        import_module(module)
    return _named_guard(name)


def _by_attribute(module: str, attribute: str) -> Any:
    return getattr(import_module(module), attribute)


def _named_guard(name: str) -> Guard:
    guard = _named.get(name)
    if guard is None:
        raise registry.unknown_name_error("guard", name, _named)
    return guard


def apply_guard(name: str) -> Callable[[F], F]:
    """Guard a function by the ``Guard`` with the name *name*, which may be created later; it is looked up at each call.

    Raises:
        FaultToleranceDefinitionException: If *name* is no text.
        KeyError: At a call, if no guard has the name.
    """
    definition.check_name("@apply_guard(name)", name, "the name of a Guard; a Guard is a decorator itself")
    return lambda function: _decorated(function, lambda: _named_guard(name)._resolver)


def _decorated(
    function: F, find: Callable[[], GuardResolver], check: Callable[[Callable[..., Any], bool], None] | None = None
) -> F:
    function = as_real_method(function)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_decorated(function.__func__, find, check))  # pyright: ignore[reportReturnType]
    raise_faults(definition.descriptor_faults(function))
    if not callable(function) or isinstance(function, type):
        raise definition_error("the target of a Guard", "cannot be guarded", function, "a function or a method")
    raise_faults(generator_faults(function))
    asynchronous = is_coroutine_function(function)
    if check is not None:
        check(function, asynchronous)
    if binding_by_name(function) == INSTANCE:
        function = bind_at_each_call(function)  # type: ignore[assignment]

    # Stored here and not in the guard, which may outlive many functions that it decorated.
    known = _Path("nothing yet", None)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal known
        resolver, current = find(), known
        if current.effective is not resolver.entered_effective:
            current = known = _Path(*resolver.resolve(function, asynchronous))
        return current.call(args, kwargs)

    copy_names(guarded, function)
    _finders[guarded] = ref(find)
    return mark_coroutine_function(guarded) if asynchronous else guarded  # type: ignore[return-value]


class _Path:
    """The call path of a decorated function, and the policies for which it is valid."""

    __slots__ = ("call", "effective")

    def __init__(self, effective: object, call: Any) -> None:
        self.effective = effective
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a path for a function that is pickled by value: its first call resolves the policies there."""
        return _Path, ("nothing yet", None)


def missing_guard_faults() -> Iterator[Fault]:
    """Yield the faults of functions below ``apply_guard`` whose guard does not exist, or no longer exists."""
    for function in decorated_functions():
        try:
            if find := finder_of(function):
                find()
        except KeyError as error:
            where = f"{function.__module__}.{function.__qualname__} @apply_guard"
            yield Fault(where, f"finds nothing: {error.args[0]}", None, "the name of a Guard")


def decorated_functions() -> list[Callable[..., Any]]:
    """Return the functions that a ``Guard`` decorates."""
    return list(_finders)


def finder_of(function: object) -> Callable[[], GuardResolver] | None:
    """Return the function that finds the guard of *function*, or ``None``; by identity, as in ``declaration_of``."""
    known = _finders.get(function) if isinstance(function, FunctionType) else None
    return None if known is None else known()


_Creator: TypeAlias = tuple[str, CodeType | None, ref[ModuleType] | None]
_NO_MODULE: _Creator = ("", None, None)
"""The creator of a guard that no top level of a module creates."""


def _module_that_runs(frame: FrameType | None) -> _Creator:
    """Return the name of the module whose top level *frame* runs, its code, and the module."""
    if frame is None or frame.f_code.co_flags & CO_OPTIMIZED or frame.f_locals is not frame.f_globals:
        return _NO_MODULE
    module = sys.modules.get(module_of(frame))
    return module_of(frame), frame.f_code, ref(module) if isinstance(module, ModuleType) else None


def _is_reloaded(now: _Creator, before: _Creator) -> bool:
    """Return whether a module is reloaded, or a notebook cell or a script of Streamlit runs again.

    It is the same place, but newly compiled code, or a new module.
    """
    if _NO_MODULE in (now, before) or now[0] != before[0]:
        return False
    return now[1] is not before[1] or now[2] != before[2]
