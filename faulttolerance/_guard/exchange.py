"""Changing what holds for every guard at once (rule C3).

Everything is read, imported, checked and built first, with no lock held: sources, values that name modules, and
predicates are code of the application, which may call guarded functions on this thread or wait for others that do.
Then one swap puts it in force. It fails if anything was put in force meanwhile, by another thread, or by a signal
handler on this one; then what is new is prepared as well, or everything anew. So what is older never replaces what is
newer, and a change that does not come through leaves all as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .._config import Snapshot, State as Configuration, settings
from .._config.report import Change, changes
from .._swap import Swap
from ..exceptions import Fault, FaultToleranceDefinitionException
from . import registry
from .plan import Plan
from .registry import Guarded, Prepared

__all__ = ["exchange", "forget", "plan_anew", "return_to"]


def exchange(
    read: Callable[[], Snapshot],
    *,
    faults: Sequence[Fault] = (),
    put: Callable[[Swap], object] | None = None,
    renews_switches: bool = False,
) -> list[Change]:
    """Let what *read* gives be in force for every guard, or change nothing.

    Args:
        read: Reads the configuration; called again if another one was put in force meanwhile.
        faults: What is wrong already.
        put: Adds further stores that are to take place together with these.
        renews_switches: Whether the global switches, too, are what they are now said to be.

    Raises:
        FaultToleranceDefinitionException: With everything that is wrong.
    """
    with registry.resolving:
        snapshot: Snapshot | None = None
        while True:
            before = settings.state
            if snapshot is None or snapshot.version != before.number:
                snapshot = _read(read, faults)
                continue
            after = settings.following(snapshot, before._replace(switches=None) if renews_switches else before)
            new = _Prospects(before, after)
            new.prepare()
            if faults or new.faults:
                raise FaultToleranceDefinitionException(*new.faults, *faults)
            if new.put_in_force(put):
                settings.tell_of_ignored_switches()
                return new.changes


def _read(read: Callable[[], Snapshot], faults: Sequence[Fault]) -> Snapshot:
    try:
        return read()
    except FaultToleranceDefinitionException as error:
        raise FaultToleranceDefinitionException(*error.faults, *faults) from error.__cause__


def plan_anew() -> None:
    """Let guards that were called before follow what is declared now."""
    with registry.resolving:
        while True:
            before = settings.state
            new = _Prospects(before, before._replace())  # another object: what is being planned is planned anew
            new.prepare()
            if new.faults:
                raise FaultToleranceDefinitionException(*new.faults)
            if new.put_in_force():
                return


def return_to(state: Configuration) -> None:
    """Let *state*, which was in force, be so again; guards for which it is wrong say so when they are called."""
    with registry.resolving:
        while True:
            new = _Prospects(settings.state, settings.returning(state), is_lenient=True)
            new.prepare()
            if new.put_in_force():
                return


def forget() -> None:
    """Go back to how everything was before the first call and the first configuration."""
    while True:
        seen = settings.version.current
        swap = Swap()
        settings.put_blank(swap)
        for guard in registry.resolvers():
            guard.forget(swap)
        if settings.version.swap(seen, swap):
            return


class _Prospects:
    """What every guard in use becomes when the configuration *after* follows on *before*.

    Where that is wrong, and *is_lenient*, the next call of the guard finds out.
    """

    def __init__(self, before: Configuration, after: Configuration, *, is_lenient: bool = False) -> None:
        self._before = before
        self._after = after
        self._is_lenient = is_lenient
        self._plans: list[Plan] = []
        self._prepared: dict[tuple[Guarded, int], tuple[type | None, Prepared | None]] = {}
        """By guard, and by class: that, and what it becomes; ``None`` where something is wrong."""
        self.faults: list[Fault] = []
        self.changes: list[Change] = []

    def prepare(self) -> None:
        """Prepare the guards in use that were not yet, also those that come into use meanwhile."""
        while missing := self._missing():
            for guard, cls in missing:
                self._prepare_one(guard, cls)
            self._add(registry.name_clashes(self._plans))

    def _prepare_one(self, guard: Guarded, cls: type | None) -> None:
        if self._after.snapshot is None:  # nobody was in use when it was in force
            self._prepared[guard, id(cls)] = cls, None
            return
        plan, faults = guard.plan(cls, self._after)
        self._prepared[guard, id(cls)] = cls, None if faults else guard.prepare(cls, plan)
        self._plans.append(plan)
        self._add(faults)
        self.changes += changes(plan.name, guard.plan(cls, self._before)[0].effective, plan.effective)

    def put_in_force(self, put: Callable[[Swap], object] | None = None) -> bool:
        """Put everything in force by one swap; false, and nothing has changed, if it no longer follows on what was."""
        while True:
            seen = settings.version.current
            if settings.state is not self._before or not self._is_current():
                return False
            if self._missing():
                self.prepare()
                if self.faults and not self._is_lenient:
                    return False
                continue
            swap = Swap()
            self._put(swap)
            if put is not None:
                put(swap)
            try:
                try:
                    is_done = settings.version.swap(seen, swap)
                finally:
                    registry.follow_all()
            finally:
                registry.follow_all()  # an exception may have come in between, a signal handler's say
            if is_done:
                registry.deliver_all()
                return True

    def _put(self, swap: Swap) -> None:
        settings.put(self._after, swap)
        for (guard, _), (cls, prepared) in self._prepared.items():
            if prepared is not None:
                prepared.put(swap)
            else:
                guard.drop(cls, swap)

    def _is_current(self) -> bool:
        return all(prepared is None or prepared.is_current for _, prepared in self._prepared.values())

    def _missing(self) -> list[tuple[Guarded, type | None]]:
        return [
            (guard, cls)
            for guard in registry.resolvers()
            for cls in guard.resolved()
            if (guard, id(cls)) not in self._prepared
        ]

    def _add(self, faults: Iterable[Fault]) -> None:
        self.faults += [fault for fault in faults if fault not in self.faults]
