"""The row of a policy: its sockets, through which it takes part in a call, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from .._execution.caller_thread import GuardedCall
from .._execution.environment import Environment
from .._metrics.catalogue import Metric, PolicyMetrics, Schema
from .._metrics.counters import Counters
from .._policy import Policy
from .._record import Record
from .._strategy.condition import Condition
from .._strategy.gate import Gate, OnRefusal
from ..exceptions import Fault, RefusedException

if TYPE_CHECKING:
    from .bound_policies import BoundPolicies

Policies = Mapping[type[Policy], Policy]


def _no_inner_call(**changes: Any) -> GuardedCall:
    raise AssertionError("only a layer has a call path inside it")


class Binding(NamedTuple):
    """The name, the state and the surroundings to which the policies of one guarded function are bound."""

    name: str
    policies: Policies
    strategies: Any
    """The strategies that remember something between calls: ``get`` returns that of a policy, or ``None``."""
    asynchronous: bool
    detached: bool
    """Whether attempts run detached from the call (``@asynchronous``), and their deadlines with them."""
    deliver: Callable[..., None]
    """Delivers the transitions of a circuit breaker to listeners and sinks; also takes whether it is only observed."""
    template: Callable[..., Any] | None = None
    """The function whose parameters a call has; ``None`` if the function is passed to each call."""
    takes_self: bool = False
    """Whether the first argument of a call is the instance or class of the method."""
    counters_of: Callable[..., Counters | None] = lambda *kinds, counts_calls=False: None
    """Returns the counters of policies of some kinds; ``None`` if nothing is counted."""
    counters_under: Callable[[Schema], Counters | None] = lambda schema: None
    """Returns the counters of the series of a schema; ``None`` if nothing is counted."""
    is_block: bool = False
    """Whether a call is a block of code, which has no layer."""
    on_refusal_of: Callable[[type[Policy]], OnRefusal | None] = lambda kind: None
    """Returns the function to call for refusals of an observed policy; ``None`` if the policy is enforced."""
    may_wait: bool = True
    """Whether attempts on this call path may wait for a turn or a permit; hedges never do."""
    rows: Sequence[Row] = ()
    """The rows of all policies and extensions, outermost first."""
    state: Any = None
    """The state of the guarded function."""
    metrics_name: str = ""
    """The method in metrics; several guards of one line share it."""
    call_wrappers: Sequence[Any] = ()
    """The overrides of tests that wrap attempts and calls, the innermost first."""
    build_inner: Callable[..., GuardedCall] = _no_inner_call
    """Builds the call path of everything that a layer wraps, with other values of some fields of this binding."""

    def is_enforced(self, kind: type[Policy]) -> bool:
        """Return whether a policy of *kind* is in force, and not only observed."""
        return kind in self.policies and self.on_refusal_of(kind) is None


class AttemptBinding(NamedTuple):
    """The surroundings of the function that each attempt calls."""

    binding: Binding
    environment: Environment | None
    """The environment in which the function may wait; ``None`` if it blocks its thread."""
    is_awaited: bool
    """Whether an attempt awaits the function's result."""


class Layer(Protocol):
    """A wrapper of a call, and of its environment if it is asynchronous: then the result is a coroutine function."""

    def __call__(self, call: GuardedCall, environment: Environment | None, /) -> GuardedCall:
        """Return the wrapped *call*."""
        ...


class StrategyFactory(Record):
    """A factory for the stateful strategy of a policy, which also renews its values."""

    make: Callable[[str, Any, Any], Any]
    """Creates the strategy from a name, the policy and the strategies of the rows above, as ``Binding.strategies``."""
    renew: Callable[[Any, Any], object]
    """Passes the values of the policy to the strategy."""
    is_needed: Callable[[Any, bool], bool] | None = None
    """Whether a policy needs the strategy, from whether attempts may run detached; ``None`` for always."""
    is_last: bool = False
    """Whether the strategy is created and shown behind all others."""
    nested: Callable[[Any], Iterable[Any]] | None = None
    """Returns the ``Strategies`` that the strategy contains, one for each key; ``None`` if it contains none."""
    is_per_key: bool = True
    """Whether each key has its own strategy if calls are divided by keys."""
    name_of_key: Callable[[str, Hashable], str] | None = None
    """Returns the name of the strategy of a key; ``None`` for the name of the function."""


class ProcessSetting(Record):
    """A keyword of ``configure`` that applies to the whole process."""

    name: str
    faults: Callable[[Any], list[Fault]]
    """Returns the faults of a value."""
    use: Callable[[Any], object]
    """Applies a value from now on; it never fails."""


Faults: TypeAlias = Callable[..., list[Fault]]


class Row(Record):
    """One policy, or one extension without a policy, at its place in the order."""

    policy: type[Policy] | None = None
    """``None`` for an extension that only decorates the objects of other rows."""
    bind: Callable[[Any, Binding], Mapping[str, Any]] | None = None
    """Returns the values of ``BoundPolicies`` that the policy determines, by name; ``None`` without any."""
    strategy_factory: StrategyFactory | None = None
    modifies: type[Policy] | None = None
    """The policy without which this policy has no effect."""
    or_else: type[Policy] | None = None
    """Another policy that this policy may modify."""
    is_gate: bool = False
    """Whether the strategy is a gate: a function has one at most."""
    excludes: type[Policy] | None = None
    """The policy that excludes this policy on the same function."""
    is_for_classes: bool = True
    """Whether the policy may stand on a class."""
    is_back_off: bool = False
    """Whether the policy defines the growth of the delays of ``Retry``; a function has one at most."""

    beside: tuple[type[Policy], ...] = ()
    """The policies beside which an extension without one of its own does something; empty: beside all."""
    is_for_observed: bool = False
    """Whether it does something only where a policy is only observed."""

    # Sockets

    layer: Callable[[Any, Binding], Layer | None] | None = None
    """Returns the wrapper of all policies below, inside the values that this row binds; ``None`` without a wrapper."""
    gate: Callable[[Gate, Any, Binding], Gate] | None = None
    """Decorates a gate; takes its policy."""
    limit: Callable[[Any, bool, Binding], tuple[Any, bool]] | None = None
    """Decorates a rate limit; takes and returns whether calls may wait for a turn."""
    permits: Callable[[Any, bool, Binding], Any] | None = None
    """Decorates a bulkhead; takes whether calls may queue."""
    around_attempt: Callable[[Callable[..., Any], AttemptBinding], Callable[..., Any]] | None = None
    """Wraps the function that each attempt calls; returns it unchanged if there is nothing to do."""
    is_wanted: Callable[[], bool] | None = None
    """Whether the process wants ``around_attempt`` now; ``None`` for always."""
    numbers_retries: bool = False
    """Whether the wrapped function takes the number of each attempt after the first, by the keyword ``NUMBER``."""
    listener: Callable[[frozenset[type[Policy]], Binding], Callable[..., BoundPolicies] | None] | None = None
    """Returns the class that binds policies of some kinds and listens to attempts; ``None`` for the usual class."""
    observer: Callable[[str, type[Policy], Counters | None], OnRefusal] | None = None
    """Returns the function to call for each refusal of an observed policy of some kind."""

    # Tables

    series: PolicyMetrics | None = None
    """The series of the policy."""
    metrics: tuple[Metric, ...] = ()
    """The metrics that belong to no policy."""
    schema_of_observed: Callable[[type[Policy]], Schema] | None = None
    """Returns the schema under which ``observer`` counts."""
    faults: Faults | None = None
    """Returns the faults of the policy on a function; see ``callback_faults``."""
    block_fault: tuple[str, str] | None = None
    """The problem with the policy around a block of code, and the allowed alternative; ``None`` without a problem."""
    needs_arguments: bool = False
    """Whether the policy has a ``key``, which is computed from the arguments of each call."""
    decorator: Callable[[], type[Any]] | None = None
    """Returns the class of the policy's decorator; ``None`` for the usual class."""
    condition: Callable[[bool], Condition] | None = None
    """Returns the condition of the policy without a state; takes whether a policy that it modifies is enforced."""
    setting: ProcessSetting | None = None
    open_elsewhere: Callable[[], Iterable[str]] | None = None
    """Returns the names of circuits that other processes have moved, and that no guard here has met."""
    refusal: tuple[type[RefusedException], str] | None = None
    """The exception of a refusal, and who refuses, in words."""
    is_busy: Callable[[], bool] | None = None
    """Returns whether a thread of the extension is about to do something; virtual time waits for it."""
    problem: Callable[[], str] | None = None
    """Returns the impairment of the whole process; empty without one."""
    reset: Callable[[], object] | None = None
    """Clears the state of the extension in this process."""


def key_of(key: Any, binding: Binding, identity: Callable[[Any], Hashable] = id) -> Callable[..., Hashable]:
    """Return the function that computes the *key* of a call from its arguments; see ``key_function``."""
    from .._signature.call_key import key_function, key_function_for_any  # it needs ``inspect``

    if binding.template is None:
        return key_function_for_any(key, binding.name, identity)
    return key_function(key, binding.template, takes_self=binding.takes_self, identity=identity)
