"""The change of the policies in force for every guard at once: prepare, then commit by one swap (rule C3).

Everything is read, imported, checked and built first, without a lock: sources, values that name modules, and predicates
are code of the application. This code may call guarded functions on this thread or wait for other threads that do.

Then one swap puts everything in force. It fails if another configuration was put in force meanwhile, by another thread,
or by a signal handler on this thread; then everything is prepared again. So an older configuration never replaces a
newer one, and a change that fails leaves everything as it was.

A first call meanwhile does not make the change fail: the swap drops its call path (``registry.py``), and its next call
finds the policies in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from ..._config import Configuration, Snapshot, settings
from ..._config.report import Change, changes
from ..._config.settings import Override
from ..._log import log_guard_error
from ..._platform.swap import Swap
from ...exceptions import Fault, FaultToleranceDefinitionException, raise_faults
from ..declare import registry
from ..declare.registry import GuardsInUse, name_conflicts
from .circuit_breakers import deliver_all
from .effective import EffectivePolicies
from .fingerprint import follow_configuration

if TYPE_CHECKING:
    from .resolver import Draft


def reconfigure(read: Callable[[Configuration], Snapshot], *, renews_switches: bool = False) -> list[Change]:
    """Apply the configuration from *read* to every guard, or change nothing.

    Args:
        read: Reads the configuration that follows the given one; called again if another was put in force meanwhile.
        renews_switches: Whether the global switches are read again, too.

    Raises:
        FaultToleranceDefinitionException: With all faults.
    """
    snapshot: Snapshot | None = None

    def following(before: Configuration) -> Configuration:
        nonlocal snapshot
        if snapshot is None or snapshot.version != before.number:
            snapshot = read(before)
        return settings.next_configuration(snapshot, before._replace(switches=None) if renews_switches else before)

    changes = _run(following)
    settings.warn_of_ignored_switches()
    return changes


def reapply_declarations() -> None:
    """Apply the current declarations to guards that were called before."""
    # Another object with the same content: a change in preparation elsewhere is prepared again.
    _run(lambda before: before._replace())


@contextmanager
def overridden(override: Override) -> Iterator[None]:
    """Apply *override* above all declarations and configuration within the block; other changes meanwhile stay."""

    def without(overrides: tuple[Override, ...]) -> tuple[Override, ...]:
        return tuple(other for other in overrides if other is not override)

    try:
        _run(lambda before: before._replace(overrides=(*without(before.overrides), override)))
        yield
    finally:
        _run(lambda before: before._replace(overrides=without(before.overrides)), is_lenient=True)


def restore(former: Callable[[Configuration], Configuration]) -> None:
    """Apply *former* of the configuration in force; guards with faults under it raise them when they are called."""
    _run(former, is_lenient=True)


def _run(follow: Callable[[Configuration], Configuration], *, is_lenient: bool = False) -> list[Change]:
    with registry.resolving:
        while True:
            before = settings.state
            after = follow(before)
            if settings.state is not before:
                continue  # a source has configured something
            with GuardsInUse() as in_use:
                found = _prepare(before, after, in_use)
                clashes = name_conflicts([effective for effective, *_ in found])
                if not is_lenient:
                    raise_faults(dict.fromkeys(chain(*(faults for _, faults, _ in found), clashes)))
                is_done = _commit(before, after, in_use)
            if is_done:
                follow_configuration()
                return [change for *_, several in found for change in several]


def forget() -> None:
    """Restore the state before the first call and the first configuration."""
    while True:
        seen = settings.version.current
        swap = Swap()
        settings.install_blank(swap)
        for resolver in registry.resolvers():
            for cls in resolver.classes_with_path():
                resolver.drop(cls, swap)
            if resolver.class_entries:
                swap.attribute(resolver, "class_entries", ())
        if settings.version.swap(seen, swap):
            return


_Found: TypeAlias = list[tuple[EffectivePolicies, list[Fault], list[Change]]]
"""The policies of each guard under a new configuration, their faults, and their changes."""


def _prepare(before: Configuration, after: Configuration, in_use: GuardsInUse) -> _Found:
    """Draft the guards in use for the change to *after*; where that fails, the next call of the guard finds out."""
    found: _Found = []
    for resolver, cls, swap in in_use.swaps():
        draft: Draft | None = None
        try:
            if after.snapshot is not None:  # else no guard was in use when it was in force
                effective, faults = resolver.effective_policies(cls, after)
                former = resolver.in_force(cls, before)
                draft = None if faults else resolver.draft(cls, effective)
                found.append((effective, faults, changes(effective.name, former.values, effective.values)))
        except FaultToleranceDefinitionException:
            raise
        except Exception as error:  # noqa: BLE001  # the others must still follow
            draft = None
            words = "its next call resolves its policies again, because resolving them failed"
            log_guard_error(registry.name_of(resolver), words, error)
        if draft is not None:
            draft.stage(swap)
        else:
            resolver.drop(cls, swap)
    return found


def _commit(before: Configuration, after: Configuration, in_use: GuardsInUse) -> bool:
    """Commit everything by one swap; return false, without a change, if another change came first."""
    swap = Swap()
    settings.install(after, swap)
    try:
        try:
            is_done = settings.version.force(swap, settings.in_force_condition(before), in_use.stores)
        finally:
            registry.update_all_strategies()
    finally:
        registry.update_all_strategies()  # an exception may have come in between, for example from a signal handler
    if is_done:
        deliver_all()
    return is_done
