"""The change of the policies in force for every guard at once: prepare, then commit by one swap (rule C3).

Everything is read, imported, checked and built first, without a lock: sources, values that name modules, and predicates
are code of the application. This code may call guarded functions on this thread or wait for other threads that do.

Then one swap puts everything in force. It fails if another configuration was put in force meanwhile, by another thread,
or by a signal handler on this thread; then everything is prepared again. So an older configuration never replaces a
newer one, and a change that fails leaves everything as it was.

A first call meanwhile does not make the change fail: its guard joins the others (``registry.py``). It is prepared as
well, or its next call finds the policies in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from ..._config import Snapshot, State as Configuration, settings
from ..._config.report import Change, changes
from ..._config.settings import Override
from ..._log import tell_of_trouble
from ..._platform.swap import Swap
from ...exceptions import Fault, FaultToleranceDefinitionException
from ..declare import registry
from ..declare.registry import Roll, clashes_of
from .circuit_breakers import deliver_all
from .effective import EffectivePolicies
from .fingerprint import follow_configuration

if TYPE_CHECKING:
    from ..declare.registry import Entry
    from .resolver import Draft


def reconfigure(
    read: Callable[[], Snapshot],
    *,
    faults: Sequence[Fault] = (),
    put: Callable[[Swap], object] | None = None,
    renews_switches: bool = False,
) -> list[Change]:
    """Apply the configuration from *read* to every guard, or change nothing.

    Args:
        read: Reads the configuration; called again if another configuration was put in force meanwhile.
        faults: The faults found so far.
        put: Adds further stores that must happen together with these.
        renews_switches: Whether the global switches are read again, too.

    Raises:
        FaultToleranceDefinitionException: With all faults.
    """
    snapshot: Snapshot | None = None

    def following(before: Configuration) -> Configuration:
        nonlocal snapshot
        if snapshot is None or snapshot.version != before.number:
            try:
                snapshot = read()
            except FaultToleranceDefinitionException as error:
                raise FaultToleranceDefinitionException(*error.faults, *faults) from error.__cause__
        return settings.following(snapshot, before._replace(switches=None) if renews_switches else before)

    changes = _run(following, faults, put)
    settings.tell_of_ignored_switches()
    return changes


def replan() -> None:
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


def restore(configuration: Configuration) -> None:
    """Apply a former *configuration* again; guards with faults under it raise them when they are called."""
    _run(lambda before: settings.returning(configuration), is_lenient=True)


def _run(
    follow: Callable[[Configuration], Configuration],
    faults: Sequence[Fault] = (),
    put: Callable[[Swap], object] | None = None,
    *,
    is_lenient: bool = False,
) -> list[Change]:
    with registry.resolving:
        while True:
            before = settings.state
            after = follow(before)
            if settings.state is not before:
                continue  # a source has configured something
            with Roll() as roll:
                transaction = _Transaction(before, after, roll)
                found = transaction.prepare()
                if faults or (found and not is_lenient):
                    raise FaultToleranceDefinitionException(*found, *faults)
                is_done = transaction.commit(put)
            if is_done:
                follow_configuration()
                return transaction.changes


def forget() -> None:
    """Restore the state before the first call and the first configuration."""
    while True:
        seen = settings.version.current
        swap = Swap()
        settings.put_blank(swap)
        for resolver in registry.resolvers():
            for cls in resolver.resolved():
                resolver.drop(cls, swap)
            if resolver.uses:
                swap.attribute(resolver, "uses", ())
        if settings.version.swap(seen, swap):
            return


class _Transaction:
    """The drafts of the guards of *roll* for a change of the configuration from *before* to *after*."""

    def __init__(self, before: Configuration, after: Configuration, roll: Roll) -> None:
        self._before = before
        self._after = after
        self._roll = roll
        self._found: dict[object, tuple[EffectivePolicies, list[Fault], list[Change]]] = {}

    @property
    def changes(self) -> list[Change]:
        """The changes of every guard."""
        return [change for *_, found in self._found.values() for change in found]

    def prepare(self) -> list[Fault]:
        """Draft the guards in use, including those that come into use meanwhile, and return the faults."""
        due, more = self._roll.due(), True
        while due and more:
            for former in due:
                entry = self._roll.renewed(former)
                draft = self._draft_apart(entry)
                if draft is not None:
                    draft.put(entry.swap)
                else:
                    entry.resolver.drop(entry.cls, entry.swap)
            drafted, due = len(due), self._roll.due()
            more = len(due) < drafted  # else they come faster than drafts: each finds out when it is called
        clashes = clashes_of([effective for effective, *_ in self._found.values()])
        return list(dict.fromkeys(chain(*(found for _, found, _ in self._found.values()), clashes)))

    def _draft_apart(self, entry: Entry) -> Draft | None:
        """Return the draft of a guard, or ``None`` if that fails: its next call finds out, and others still follow."""
        try:
            return self._draft(entry)
        except FaultToleranceDefinitionException:
            raise
        except Exception as error:  # noqa: BLE001
            tell_of_trouble(
                registry.name_of(entry.resolver),
                "its next call resolves its policies again, because resolving them failed",
                error,
            )
            return None

    def _draft(self, entry: Entry) -> Draft | None:
        if self._after.snapshot is None:  # no guard was in use when it was in force
            return None
        resolver, cls = entry.resolver, entry.cls
        effective, faults = resolver.effective_policies(cls, self._after)
        draft = None if faults else resolver.draft(cls, effective)
        former = resolver.in_force(cls, self._before)
        self._found[entry.key] = effective, faults, changes(effective.name, former.values, effective.values)
        return draft

    def commit(self, put: Callable[[Swap], object] | None) -> bool:
        """Commit everything by one swap; return false, without a change, if another change came first."""
        swap = Swap()
        settings.put(self._after, swap)
        if put is not None:
            put(swap)
        try:
            try:
                is_done = settings.version.force(swap, settings.holding(self._before), self._roll.stores)
            finally:
                registry.follow_all()
        finally:
            registry.follow_all()  # an exception may have come in between, for example from a signal handler
        if is_done:
            deliver_all()
        return is_done
