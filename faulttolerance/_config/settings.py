"""The configuration in force, and its renewal."""

# No ``from __future__ import annotations``: every import would compile the annotations of a named tuple.

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from .._log import WARNING, log
from .._platform.swap import Swap, Version
from ..exceptions import Fault, FaultToleranceDefinitionException, raise_faults
from .key import TRACING_VARIABLE, Declared
from .resolution import Effective, Switches, read_switches, resolved, tracing_faults, variable
from .snapshot import PROPERTIES, Inputs, Snapshot, environment, files_of_environment
from .source import Source, entries_of, source_of

Override: TypeAlias = Callable[[object, Effective], Effective]
"""Replaces the effective values of one policy of a subject; a test's override wins over all other sources."""


class Configuration(NamedTuple):
    """The configuration at one moment."""

    snapshot: Snapshot | None = None
    switches: Switches | None = None
    inputs: Inputs = Inputs()
    number: int = 0
    """The count of installations and restorations."""
    overrides: tuple[Override, ...] = ()
    """The overrides of tests, the oldest first; each is removed only when its block ends."""


class Settings:
    """The configuration in force.

    It is one reference to an immutable state, replaced only by swaps. A change of the configuration prepares a new
    state, resolves every guard against it, and installs it together with the new plans of the guards.
    """

    def __init__(self) -> None:
        self.version = Version()
        """The version of the configuration and of all that follows from it."""
        self._state = Configuration()
        self._held = {id(self._state): self._state}
        """The state in force alone, by its id, for the condition of a swap (see ``in_force_condition``)."""
        self._has_packages = False
        self._places: dict[str, str] = {}
        """The paths of files that the environment names: the process may change its working directory later."""

    @property
    def state(self) -> Configuration:
        """The configuration as far as it was read; a new object after each change of it or of a declaration."""
        return self._state

    @property
    def snapshot(self) -> Snapshot:
        """The keys in force; the first access reads the environment. Raises the errors of ``prepare``."""
        return self.loaded(with_switches=False).snapshot  # type: ignore[return-value]

    def loaded(self, *, with_switches: bool = True) -> Configuration:
        """Read what was not read yet and return the state in force; raise the errors of ``prepare``.

        The global switches are read once (specification: they "will only be read on application starting").
        """
        while True:
            seen, state = self.version.current, self._state
            # This is no installation: changes that other threads prepare build on the same inputs and stay valid.
            snapshot, switches = state.snapshot or self.prepare(state), state.switches
            if with_switches and switches is None:
                switches = read_switches(snapshot)[0]
            if snapshot is state.snapshot and switches is state.switches:
                return state
            swap = Swap()
            self.install(state._replace(snapshot=snapshot, switches=switches), swap)
            self.version.swap(seen, swap)

    def basis(self, *, with_switches: bool = False) -> Configuration:
        """Return the state in force, fully read unless its sources contain errors; a call needs it *with_switches*."""
        try:
            return self.loaded(with_switches=with_switches)
        except FaultToleranceDefinitionException:
            return self._state

    @staticmethod
    def switches_under(state: Configuration) -> Switches:
        """Return the global switches of *state*: the switches that were read, else the switches of its snapshot."""
        if state.switches is not None:
            return state.switches
        return Switches() if state.snapshot is None else read_switches(state.snapshot)[0]

    def require_packages(self) -> None:
        """Import the packages that files of the environment need; raise an error if one is missing (rule O5).

        The creation of a guard calls it, so this happens at the program's start and not at its first request.
        """
        if not self._has_packages:
            if named := files_of_environment({}):
                from .reading import require_package

                for file in named:
                    require_package(*file)
            self._has_packages = True

    def prepare(self, state: Configuration, **changes: Any) -> Snapshot:
        """Read all sources again and change nothing; *changes* replace some of the ``Inputs`` of *state*.

        Raises:
            FaultToleranceDefinitionException: With all sources that cannot be read, or all global switches that are
                wrong.
        """
        inputs = state.inputs.__replace__(**changes)
        sources_read: list[Source] = []
        for properties in filter(None, (*inputs.properties, *inputs.blocks[::-1])):
            # Keys of a block have the ordinal of those that they replace.
            ordinal = sources_read[0].ordinal if sources_read else 500
            sources_read.insert(0, source_of(PROPERTIES, ordinal, entries_of(PROPERTIES, properties)))
        if in_environment := environment():
            sources_read.append(in_environment)
        named = files_of_environment(self._places)
        if inputs.files or inputs.sources or named:
            from .reading import read

            sources_read += read(inputs, named)
        snapshot = Snapshot(sources_read, inputs, state.number)
        place = f"environment variable {TRACING_VARIABLE}"
        faults = [*read_switches(snapshot)[1], *tracing_faults(TRACING_VARIABLE, variable(TRACING_VARIABLE), place)]
        if faults:
            raise_faults(faults)
        return snapshot

    @staticmethod
    def next_configuration(snapshot: Snapshot, state: Configuration) -> Configuration:
        """Return the state that follows *state*, with *snapshot* in it; a global switch that was read stays."""
        return Configuration(snapshot, state.switches, snapshot.inputs, state.number + 1, state.overrides)

    def warn_of_ignored_switches(self) -> None:
        """Log a warning if the snapshot in force has other switches than the switches in force."""
        snapshot, switches, *_ = self._state
        if snapshot is not None and switches is not None and (read := read_switches(snapshot)[0]) != switches:
            log(WARNING, "ignored until the application restarts: %s; in force: %s", read, switches)

    def restored_configuration(self, state: Configuration) -> Configuration:
        """Return the state that restores *state*."""
        return state._replace(number=self._state.number + 1, overrides=self._state.overrides)

    def install(self, state: Configuration, swap: Swap) -> None:
        """Install *state*, together with the other stores of *swap*."""
        swap.attribute(self, "_state", state)
        swap.steps.append((self._held.clear,))
        swap.item(self._held, id(state), state)

    def in_force_condition(self, state: Configuration) -> tuple[Any, ...]:
        """Return the condition of a swap that *state*, which the caller keeps alive, is in force."""
        return (self._held.__getitem__, id(state))

    def install_blank(self, swap: Swap) -> None:
        """Remove everything that was read or configured, together with the other stores of *swap*; blocks stay."""
        self.install(self.restored_configuration(Configuration(inputs=Inputs(blocks=self._state.inputs.blocks))), swap)
        swap.attribute(self, "_places", {})

    def resolve(
        self, declared: Sequence[Declared], where: str, state: Configuration | None = None, subject: object = None
    ) -> tuple[list[Effective], list[Fault]]:
        """Return the effective policies of one guard, in the order of *declared*, and all their faults.

        It is called once per guard and again after a change of the configuration; it imports modules that values name.

        Args:
            declared: The declared policies of the guarded function.
            where: The guarded function in messages, as in ``acme.Client.charge``.
            state: The state to resolve against, by default the state in force.
            subject: The owner of the policies, as overrides identify it.
        """
        try:
            if state is None or state.snapshot is None:
                state = self.loaded()
        except FaultToleranceDefinitionException as error:
            return [Effective(declaration.policy) for declaration in declared], list(error.faults)
        snapshot: Snapshot = state.snapshot  # type: ignore[assignment]
        switches = self.switches_under(state)
        pairs = [resolved(declaration, where, snapshot, switches) for declaration in declared]
        values = [effective for effective, _ in pairs]
        for override in state.overrides:
            values = [override(subject, effective) for effective in values]
        return values, [fault for _, faults in pairs for fault in faults]


settings = Settings()
