"""Which value holds for a declared policy, and where it came from."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from .._log import WARNING, log
from .._policy import DEFAULT_PLACE, Fallback, check, parameters
from .._shown import shown
from ..exceptions import Fault, FaultToleranceDefinitionException
from .effective import Effective
from .key import ENABLED, Declared, enabled_keys, parameter_keys
from .snapshot import CONFIG_VARIABLE, Entry, Inputs, Snapshot, Source, environment, sets_values, source_of, variables
from .switch import Switches, read_enabled, read_switches
from .tracing import tracing_faults

__all__ = ["Settings", "State", "settings"]

_INSTALL = "pip install pydantic-settings"


class _Unset(Enum):
    UNSET = "unset"


_UNSET: Final = _Unset.UNSET


class State(NamedTuple):
    """All that the settings hold."""

    snapshot: Snapshot | None = None
    switches: Switches | None = None
    inputs: Inputs = Inputs()


class Settings:
    """The configuration in force.

    One reference to an immutable snapshot. Whoever changes the configuration prepares a new one, resolves every guard
    against it, and installs it only if nothing is wrong.
    """

    def __init__(self) -> None:
        # Reentrant: a signal handler or a finalizer may make a first call while its thread is in here.
        self._lock = threading.RLock()
        self._state = State()  # writes guarded by _lock
        self._version = 0  # guarded by _lock

    @property
    def snapshot(self) -> Snapshot:
        """The keys in force; the environment is read when they are first asked for.

        Raises:
            FaultToleranceDefinitionException: If ``prepare`` does.
        """
        while (found := self._state.snapshot) is None:
            prepared = self.prepare()
            with self._lock:
                # Not an installation: what others are preparing builds on the same inputs and stays valid.
                if self._state.snapshot is None and prepared.version == self._version:
                    self._state = self._state._replace(snapshot=prepared)
        return found

    @property
    def switches(self) -> Switches:
        """The global switches, read once (specification: they "will only be read on application starting").

        Raises:
            FaultToleranceDefinitionException: If ``prepare`` does.
        """
        found = self._state.switches
        if found is None:
            switches, _ = read_switches(self.snapshot)
            with self._lock:
                found = self._state.switches or switches
                self._state = self._state._replace(switches=found)
        return found

    def prepare(
        self,
        *,
        properties: Mapping[str, Any] | _Unset = _UNSET,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | _Unset = _UNSET,
        sources: Iterable[Any] | _Unset = _UNSET,
    ) -> Snapshot:
        """Read all sources anew and change nothing; what is not given is as it was given last.

        Args:
            properties: Keys and values, nested or not; the strongest source.
            files: Read beside those that ``FAULTTOLERANCE_CONFIG`` names; of equals the last wins.
            sources: Settings sources of pydantic-settings, or other callables that return a mapping.

        Raises:
            FaultToleranceDefinitionException: With all sources that cannot be read, or all global switches that are
                wrong.
        """
        with self._lock:
            last, version = self._state.inputs, self._version
        inputs = Inputs(
            last.properties if properties is _UNSET else _given("properties", dict, properties, "a mapping of keys"),
            last.files if files is _UNSET else _given("files", _paths, files, "paths of files"),
            last.sources if sources is _UNSET else _given("sources", tuple, sources, "a list of sources"),
        )
        own = [_own(inputs.properties)] if inputs.properties else []
        own += [found] if (found := environment()) else []
        named = _named()
        if inputs.files or inputs.sources or named:
            try:
                from .reading import read
            except ImportError as error:
                raise FaultToleranceDefinitionException(
                    Fault("the configuration", f"needs {error.name}", None, _INSTALL)
                ) from error
            own += read(inputs, named)
        snapshot = Snapshot(own, inputs, version)
        if faults := [*read_switches(snapshot)[1], *tracing_faults()]:
            raise FaultToleranceDefinitionException(*faults)
        if _sets_values(snapshot):
            _load()
        return snapshot

    def install(self, snapshot: Snapshot) -> bool:
        """Let *snapshot* be in force; false, and nothing is done, if another was installed since it was prepared.

        A global switch that has been read stays; that the new value is ignored is logged.
        """
        with self._lock:
            if snapshot.version != self._version:
                return False
            self._version += 1
            self._state = self._state._replace(snapshot=snapshot, inputs=snapshot.inputs)
            switches = self._state.switches
        if switches is not None and (read := read_switches(snapshot)[0]) != switches:
            log(WARNING, "ignored until the application restarts: %s; in force: %s", read, switches)
        return True

    @property
    def state(self) -> State:
        """What ``restore`` takes."""
        return self._state

    def restore(self, state: State | None = None) -> None:
        """Return to an earlier state; by default forget everything, the switches included."""
        with self._lock:
            self._version += 1
            self._state = state or State()

    def renew_lock(self) -> None:
        """Replace the lock in a forked child, where the thread that may have held it does not exist."""
        self._lock = threading.RLock()

    def resolve(
        self, declared: Sequence[Declared], where: str, snapshot: Snapshot | None = None
    ) -> tuple[list[Effective], list[Fault]]:
        """The effective policies of one guard, in the order of *declared*, and all that is wrong with them.

        Called once per guard and again when the configuration changes; it imports modules that values name.

        Args:
            declared: What the guarded function's annotations say.
            where: The guarded function in messages, as in ``acme.Client.charge``.
            snapshot: Where to look, if not in the one in force; then nothing is remembered.
        """
        try:
            if snapshot is None or self._state.switches is not None:
                snapshot, switches = snapshot or self.snapshot, self.switches
            else:
                switches, _ = read_switches(snapshot)
        except FaultToleranceDefinitionException as error:
            return [Effective(one.policy) for one in declared], list(error.faults)
        effective, faults = [], list[Fault]()
        for one in declared:
            resolved, wrong = _resolved(one, where, snapshot, switches)
            effective.append(resolved)
            faults += wrong
        return effective, faults


def _given(name: str, kind: Callable[[Any], Any], value: object, allowed: str) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise FaultToleranceDefinitionException(
            Fault(f"configure({name})", f"is {shown(value)}", value, allowed)
        ) from error


def _own(properties: Mapping[str, Any]) -> Source:
    name = "configure(properties=...)"
    try:
        return source_of(name, 500, properties)
    except ValueError as error:
        if isinstance(error, FaultToleranceDefinitionException):
            raise
        raise FaultToleranceDefinitionException(Fault(name, f"cannot be read: {error}")) from error


def _named() -> list[str]:
    """The files that the environment names."""
    return [name for name in os.environ.get(CONFIG_VARIABLE, "").split(os.pathsep) if name]


def _sets_values(snapshot: Snapshot) -> bool:
    """Whether a value will most likely have to be read; variables may be somebody else's."""
    return snapshot.has_values and any(
        not source.is_environment or sets_values(entry.name for entry in source.entries) for source in snapshot.sources
    )


def _load() -> None:
    """Load what reads values. That it is missing is told where a value is needed."""
    try:
        from . import value  # noqa: F401
    except ImportError:
        pass


def _load_in_time() -> None:
    """Load pydantic while the program starts and not in its first request, if there is something to read."""
    if named := _named():
        try:
            from . import reading  # noqa: F401
        except ImportError:
            pass
    if named or sets_values(variables()):
        _load()


def _paths(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """One path is meant as a list of one, not as its letters."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    return tuple(os.fspath(file) for file in files)


def _resolved(declared: Declared, where: str, snapshot: Snapshot, switches: Switches) -> tuple[Effective, list[Fault]]:
    policy, faults = declared.policy, list[Fault]()
    # Specification: "resilient functionalities disabled except fallback".
    enabled = switches.non_fallback_enabled or isinstance(policy, Fallback)
    if snapshot.is_empty:
        return Effective(policy, enabled), faults
    configured: dict[str, str] = {}
    if found_enabled := _enabled(declared, snapshot):
        enabled, faults = read_enabled(*found_enabled)
        configured[ENABLED] = _words(*found_enabled)
    if found := _found(declared, snapshot):
        values, wrong = _values(declared, where, found)
        faults += wrong
        if not wrong:
            policy = type(policy)(**values)
            configured |= {name: _words(*one) for name, one in found.items()}
    return Effective(policy, enabled, configured), faults


def _found(declared: Declared, snapshot: Snapshot) -> dict[str, tuple[str, Entry]]:
    """For each parameter that is set anywhere: the key that counts and its entry."""
    found: dict[str, tuple[str, Entry]] = {}
    for name in parameters(type(declared.policy)):
        if snapshot.mentions(declared.policy.annotation, name):
            for key in parameter_keys(declared, name):
                if entry := snapshot.find(key):
                    found[name] = key.name, entry
                    break
    return found


def _enabled(declared: Declared, snapshot: Snapshot) -> tuple[str, Entry] | None:
    if snapshot.mentions(declared.policy.annotation, ENABLED):
        for key in enabled_keys(declared):
            if entry := snapshot.find(key):
                return key.name, entry
    return None


def _values(
    declared: Declared, where: str, found: Mapping[str, tuple[str, Entry]]
) -> tuple[dict[str, Any], list[Fault]]:
    policy = declared.policy
    try:
        from .value import validated
    except ImportError as error:
        return {}, [Fault(key, f"needs {error.name}", e.value, _INSTALL, e.place) for key, e in found.values()]
    values, faults = validated(type(policy), found)
    if faults:
        return {}, faults
    values = {name: getattr(policy, name) for name in parameters(type(policy))} | values

    def located(name: str) -> tuple[str, str]:
        if name not in found:
            is_default = Effective(policy).sources[name] == "default"
            return f"{where} @{policy.annotation}({name})", DEFAULT_PLACE if is_default else "set by the decorator"
        return found[name][0], found[name][1].place

    return values, check(type(policy), values, where, located)


def _words(key: str, entry: Entry) -> str:
    return f"{key} in {entry.place}"


settings = Settings()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=settings.renew_lock)
_load_in_time()
