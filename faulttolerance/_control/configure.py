"""The public functions for operation: configuration, inspection, exemption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .._call.budget import named_budgets
from .._call.order import ORDER
from .._call.state import alias_in, conditions_of
from .._call.veto import VetoFunction, vetoes
from .._config import Configuration, Declared, settings
from .._config.report import Change, Unused, collisions, unused
from .._config.snapshot import inputs_of
from .._guard.declare import registry
from .._guard.declare.checks.definition import never_awaited_faults
from .._guard.declare.declaration import exempt
from .._guard.resolve import transaction
from .._guard.resolve.circuit_breakers import forget_listeners, listened_names
from .._guard.resolve.effective import EffectivePolicies
from .._guard.resolve.fingerprint import fingerprint, fingerprint_of
from .._guard_value.guard import missing_guard_faults
from .._inspection.explanation import dict_of
from .._inspection.health import last_reload
from .._log import ERROR, INFO, WARNING, log, log_guard_error, logger
from .._metrics.catalogue import Series
from .._metrics.counters import ledger
from .._policy import CircuitBreaker, Policy, parameters
from .._shown import brief, nearest, one_or_several, shown
from .._telemetry.connect import ChosenProvider, ChosenRegistry, telemetry
from ..exceptions import Fault, FaultToleranceDefinitionException, definition_error, raise_faults
from . import process

if TYPE_CHECKING:
    from .._extensions.fleet.protocol import Fleet
    from .._strategy.condition import Condition

F = TypeVar("F")


class GuardedMethod:
    """One guarded method of one concrete class, or one ``Guard``, as ``guards`` lists it."""

    def __init__(self, resolver: Any, cls: type | None, effective: EffectivePolicies) -> None:
        self._resolver = resolver
        self._cls = cls
        self._effective = effective

    @property
    def name(self) -> str:
        """``module.Class.method``, or the guard's name."""
        return self._effective.name

    @property
    def method(self) -> Callable[..., Any]:
        """The guarded function, as the application sees it; the ``Guard`` itself if it has no function."""
        return self._resolver.guarded  # type: ignore[no-any-return]

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The effective policies in force, in nesting order, outermost first."""
        return tuple(self._effective.policies.values())

    @property
    def disabled(self) -> tuple[str, ...]:
        """The annotations that are declared and switched off."""
        return tuple(value.policy.annotation for value in self._effective.values if not value.enabled)

    @property
    def observed(self) -> tuple[str, ...]:
        """The annotations that are in force and only observed (rule X7)."""
        return tuple(kind.annotation for kind in self._effective.policies if kind in self._effective.observed)

    @property
    def values(self) -> Mapping[str, tuple[Any, str]]:
        """Each effective value and its source: ``{"Retry/maxRetries": (5, "decorator"), ...}``."""
        return {
            f"{value.policy.annotation}/{parameter.key}": (getattr(value.policy, name), value.sources[name])
            for value in self._effective.values
            if value.enabled
            for name, parameter in parameters(value.policy).items()
        }

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that are equal wherever the same values are in force; see ``fingerprint()``."""
        return fingerprint_of(self._effective)

    @property
    def conditions(self) -> Mapping[str, str]:
        """The current condition of each policy that has state: ``{"Bulkhead": "3 of 10 running", ...}``."""
        return {kind.annotation: condition.in_full for kind, condition in self._conditions().items()}

    @property
    def impaired(self) -> tuple[str, ...]:
        """The annotations of policies that now refuse calls or make them wait: the reasons that ``health`` reports."""
        return tuple(kind.annotation for kind, condition in self._conditions().items() if condition.is_impaired)

    @property
    def counts(self) -> Mapping[Series, int]:
        """The current value of each series of the method: ``{("ft.retry.retries.total", ()): 3, ...}``."""
        state = self._resolver.state(self._cls)
        return state.counts() if state is not None else {}

    @property
    def partitions(self) -> int:
        """The number of keys with a state of their own under ``@partition_by``."""
        state = self._resolver.state(self._cls)
        return len(state.partitions or ()) if state is not None else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the values in force, ready for JSON, in the form of ``explain(...).as_dict()``."""
        return dict_of(self._effective, self._conditions())

    def _conditions(self) -> Mapping[type[Policy], Condition]:
        return conditions_of(self._resolver.state(self._cls), self._effective.values)

    def __repr__(self) -> str:
        return f"GuardedMethod({self.name!r}, {', '.join(map(repr, self.policies))})"


def guards(name: str | None = None) -> Iterator[GuardedMethod]:
    """Return every live guarded method, once for each class that has it.

    Args:
        name: The name of the wanted guards, by default of all guards. The other guards are not resolved then.
    """
    registry.resolve_remote_circuits()
    for resolver in list(registry.resolvers()):
        try:
            classes = [cls for cls in resolver.classes() if name is None or resolver.name_for(cls) == name]
            found = [GuardedMethod(resolver, cls, resolver.in_force(cls)) for cls in classes]
        except Exception as error:  # noqa: BLE001  # the others must still be found
            log_guard_error(registry.name_of(resolver), "it is left out, because resolving its policies failed", error)
        else:
            yield from (guard for guard in found if guard._effective.declared)


def configure(
    *,
    properties: Mapping[str, Any] | None = None,
    files: Iterable[str | os.PathLike[str]] | str | os.PathLike[str] | None = None,
    sources: Iterable[Any] | None = None,
    max_threads: int | None = None,
    interruptible_modules: Iterable[str] | str | None = None,
    uninterruptible_modules: Iterable[str] | str | None = None,
    interrupt_signal: int | None = None,
    prometheus_registry: ChosenRegistry = "unchanged",
    meter_provider: ChosenProvider = "unchanged",
    tracing: Literal["events", "spans", "off"] | bool | None = None,
    fleet: Fleet | Literal["unchanged"] | None = "unchanged",
) -> list[Change]:
    """Set the configuration of the whole process; an omitted argument changes nothing.

    Everything is read and checked before anything changes: after an error the process is as before. Calls in flight
    finish with the values with which they started; breakers, permits and rate windows keep their state.

    Args:
        properties: Configuration keys and values; they win over every other source.
        files: Configuration files to read, by suffix: ``.properties``, ``.toml``, ``.yaml``, ``.json``, ``.env``. A
            relative path refers to the current working directory at this call, also in later reloads.
        sources: Settings sources of pydantic-settings, or other callables that return a mapping of keys to values;
            each reload calls them again. A source that read its file when it was created returns the same values: pass
            a function that creates it.
        max_threads: The maximum number of threads that offloaded calls use at once; unlimited by default.
        interruptible_modules: Installed modules in whose code time-outs interrupt as in the application's own code
            (rule R2a): modules that compute, and acquire nothing that must be released; one name, or several.
        uninterruptible_modules: Modules of the application that no time-out interrupts, neither in their code nor in
            code that they call; one name, or several.
        interrupt_signal: The signal that interrupts blocking calls of the main thread instead of ``SIGURG``.
        prometheus_registry: The registry that exports Prometheus metrics: a ``CollectorRegistry``; ``"auto"``, the
            initial value, for the global registry if the application imports ``prometheus_client``; ``None`` for no
            export.
        meter_provider: The provider that exports OpenTelemetry metrics: a ``MeterProvider``; ``"auto"``, the initial
            value, for the global provider, whenever the application sets it; ``None`` for no export.
        tracing: The traces for OpenTelemetry (rule O1): ``"events"``, the initial value, for retries, time-outs and
            similar events on the current span; ``"spans"`` for a child span of each attempt in addition; ``"off"`` for
            nothing. The environment variable ``FAULTTOLERANCE_TRACING`` takes the same values. ``True`` means
            ``"events"``, ``False`` means ``"off"``.
        fleet: The fleet in which processes share what is ``@fleet_wide``: ``RedisFleet(...)``, or
            ``testing.MemoryFleet`` in tests; ``None``: each process decides alone. The initial value is the fleet of
            ``FAULTTOLERANCE_FLEET_URL``, if that is set.

    Returns:
        The changes, value by value, of the guards that were in use.

    Raises:
        FaultToleranceDefinitionException: With all arguments that are wrong, or else with everything else.
    """
    arguments = {
        "max_threads": max_threads,
        "interruptible_modules": None if interruptible_modules is None else one_or_several(interruptible_modules),
        "uninterruptible_modules": None if uninterruptible_modules is None else one_or_several(uninterruptible_modules),
        "interrupt_signal": interrupt_signal,
        "prometheus_registry": prometheus_registry,
        "meter_provider": meter_provider,
        "tracing": tracing,
        "fleet": fleet,
    }
    inputs, faults = inputs_of(properties=properties, files=files, sources=sources)
    raise_faults([*faults, *process.faults_of(arguments)])
    changes = transaction.reconfigure(partial(settings.prepare, **inputs))
    created_spans = telemetry.creates_spans()
    process.apply(arguments)
    if telemetry.creates_spans() != created_spans:
        transaction.reapply_declarations()  # spans are created around the body, so the plans depend on the mode
    return changes


def reload(*, on: int | None = None) -> list[Change]:
    """Read every source again and apply all changes or none: now, or whenever the process gets a signal.

    ``health`` shows the time and the outcome of the last reload.

    ``reload(on=signal.SIGHUP)`` reads nothing yet. A failed reload on the signal is logged at ERROR, with everything
    that is wrong, and changes nothing; a successful reload is logged at INFO, and a new key that nothing uses at
    WARNING. Each reload runs on a thread of its own, so the signal may interrupt anything, even a reload or a first
    call. Signals that arrive while a reload is about to start are served by that reload. An existing handler of the
    application for the signal is replaced.

    Python installs signal handlers on the main thread only. On another thread, where a test client runs the start of a
    service, ``reload(on=...)`` does nothing and logs this once.

    Args:
        on: The signal on which to reload; by default the function reloads now.

    Returns:
        The changes, value by value, of the guards that were in use; none if *on* is a signal.

    Raises:
        FaultToleranceDefinitionException: With everything that is wrong; nothing has changed then. If no handler can be
            installed for the signal *on*, or it interrupts calls.
    """
    if on is not None:
        _reload_on(on)
        return []
    is_told = logger().isEnabledFor(INFO)  # the fingerprint reads every guard
    before = fingerprint() if is_told else ""
    try:
        changes = transaction.reconfigure(settings.prepare)
    except BaseException as error:
        # Only keys, no messages and values: these may contain secrets, and anybody may read a readiness probe.
        faults = getattr(error, "faults", ())
        keys = (fault.where for fault in faults if not {*"(<"} & {*fault.where})  # skips the repr of a source
        last_reload.record(brief(", ".join(keys)) or type(error).__qualname__)
        raise
    last_reload.record()
    if is_told:
        log(INFO, "the configuration was reloaded: its fingerprint was %s, and now is %s", before, fingerprint())
    return changes


def _reload_on(signum: int) -> None:
    from .._deadline.threads.main_thread import can_interrupt, main_thread
    from .._platform import signals as on_signal

    if not can_interrupt(signum) or signum == main_thread.signum:
        allowed = "a signal of signal.valid_signals() that can be caught, but not the signal that interrupts calls"
        raise definition_error("reload(on)", f"is {shown(signum)}", signum, allowed)
    name = on_signal.name_of(signum)
    if not on_signal.call_on(signum, partial(_reload_and_log, name)) and signum not in _unhandled_signals:
        _unhandled_signals.add(signum)
        log(WARNING, "reload(on=%s) reloads nothing: only the main thread may handle signals", name)


_unhandled_signals: set[int] = set()
"""Signals for which no handler could be installed, and which the log has named once."""


def _reload_and_log(name: str) -> None:
    try:
        known = _unused_names()
        changes = reload()
    except FaultToleranceDefinitionException as error:
        log(ERROR, "%s: the reload failed, and the old configuration stays in force: %s", name, error)
    except BaseException as error:  # noqa: BLE001  # no other code on this thread handles it
        log(ERROR, "%s: the reload failed, and the old configuration stays in force", name, error=error)
    else:
        log(INFO, "%s: reloaded: %s", name, "; ".join(map(str, changes)) or "no value has changed")
        for unused_name in _unused_names():
            if unused_name not in known:  # the others were in the check at the start, or an earlier reload
                log(WARNING, "%s: %s", name, unused_name)


def _unused_names() -> list[Unused]:
    """Return what ``validate`` returns; nothing if it raises, because a reload that fails names the faults."""
    try:
        return validate()
    except FaultToleranceDefinitionException:
        return []


def validate() -> list[Unused]:
    """Resolve every guard, and report all errors at once.

    Returns:
        The useless names, each with the most similar known name: configuration keys that nothing uses, and names of
        circuits that have listeners but no guard.

    Raises:
        FaultToleranceDefinitionException: With every fault of every guard and every key.
    """
    faults: list[Fault] = []
    declared: list[Declared] = []
    guarded: list[EffectivePolicies] = []
    for resolver in list(registry.resolvers()):
        for cls in resolver.classes():
            effective, problems = resolver.effective_policies(cls)
            declared += effective.declared
            guarded.append(effective)
            faults += problems
    faults += [*registry.declared_conflicts(guarded), *missing_guard_faults(), *collisions(settings.snapshot, declared)]
    raise_faults(dict.fromkeys(faults))
    return [*unused(settings.snapshot, declared), *_unknown_listened_names(guarded)]


def _unknown_listened_names(guarded: Iterable[EffectivePolicies]) -> Iterator[Unused]:
    """Yield every name of a circuit breaker that has listeners but no guard."""
    known: set[str] = set()
    for effective in guarded:
        policies = {type(value.policy): value.policy for value in effective.values}  # even if switched off
        if CircuitBreaker in policies:
            known |= {effective.name, alias_in(policies)}
    for name in listened_names():
        if name not in known:
            yield Unused(name, "circuit_breakers.on_state_change", nearest(name, known))


def unguarded(function: F) -> F:
    """Exempt a method from the decorators of its class.

    >>> @unguarded
    ... def close(self): ...
    """
    exempt(function)
    return function


def veto_retries(ask: VetoFunction) -> Callable[[], object]:
    """Register *ask*, which can forbid further attempts of any guard.

    For example, it forbids them inside an open transaction that a retry cannot restart. *ask* is called after a failed
    attempt if all limits of ``@retry`` allow another attempt, before the delay and in the context of the call. If it
    returns a reason, the failure is raised at once, or goes to the fallback, with a note "no more, because" and the
    reason; ``GaveUp.reason`` contains the same text. If it raises, or returns something other than text or ``None``,
    this is logged once, and forbids nothing. Hedges do not call it.

    Returns:
        A function that removes *ask* again. ``testing.reset()`` does not remove it.

    Raises:
        FaultToleranceDefinitionException: If *ask* cannot be called, or is a coroutine function.
    """
    raise_faults(never_awaited_faults("veto_retries(ask)", ask, "failure"))
    key = object()
    vetoes[key] = ask
    return partial(vetoes.pop, key, None)


def forget_state() -> None:
    """Remove circuits, permits, windows and counts; the configuration stays in force."""
    before = settings.state
    transaction.forget()
    transaction.restore(lambda _: settings.restored_configuration(before))
    ledger.clear()
    named_budgets.forget()


def reset() -> None:
    """Remove all runtime state, the configuration from ``configure``, and listeners; declarations stay."""
    from .._deadline.threads import application, main_thread
    from .._execution.pool import pool

    for row in reversed(ORDER):
        if row.reset is not None:
            row.reset()
    transaction.forget()
    ledger.clear()
    telemetry.reset()
    forget_listeners()
    named_budgets.forget()
    last_reload.forget()
    application.forget_modules()
    main_thread.set_interrupt_signal()
    pool.configure(max_threads=None)


@contextmanager
def configured(properties: Mapping[str, Any]) -> Iterator[None]:
    """Apply *properties* within the block, including the global switches; they stay after a ``reset()``."""
    before, block = settings.state, dict(properties)
    transaction.reconfigure(
        lambda state: settings.prepare(state, blocks=(block, *state.inputs.blocks)), renews_switches=True
    )

    def without_block(state: Configuration) -> Configuration:
        others = tuple(other for other in state.inputs.blocks if other is not block)
        if [*map(id, others)] == [*map(id, before.inputs.blocks)]:
            return settings.restored_configuration(before)
        # Blocks of other threads or fixtures began or ended meanwhile.
        return settings.next_configuration(settings.prepare(state, blocks=others), state._replace(switches=None))

    try:
        yield
    finally:
        transaction.restore(without_block)


def reapply_declarations_in_use() -> None:
    """Plan the guards that were called before again: a class may have been decorated late, or lost its decorators."""
    if any(resolver.classes_with_path() for resolver in registry.resolvers()):
        transaction.reapply_declarations()
