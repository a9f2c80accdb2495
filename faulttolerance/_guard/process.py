"""What ``configure`` sets beside the values of policies: what holds for the whole process."""

# Without the annotations of __future__: those of a named tuple would be compiled at every import.

from collections.abc import Iterable
from typing import Any, NamedTuple

from .._shown import shown
from .._swap import Swap
from .._telemetry.connect import telemetry
from ..exceptions import Fault

__all__ = ["Process"]


class Process(NamedTuple):
    """The arguments of ``configure`` that are no sources of values, under the same names."""

    max_threads: Any
    uninterruptible_modules: Any
    interrupt_signal: Any
    prometheus_registry: Any
    meter_provider: Any
    tracing: Any

    def faults(self) -> list[Fault]:
        """Everything that is wrong; after that, no step fails."""
        wrong = []
        if self.max_threads is not None and (type(self.max_threads) is not int or self.max_threads < 1):
            wrong.append(("max_threads", "an integer >= 1"))
        if _names(self.uninterruptible_modules) is None:
            wrong.append(("uninterruptible_modules", "names of modules, as in ['acme.pool']"))
        if self.interrupt_signal is not None:
            from .._runtime.interrupting.main_thread import can_interrupt

            if not can_interrupt(self.interrupt_signal):
                wrong.append(("interrupt_signal", "one of signal.valid_signals() that can be caught"))
        if self.tracing is not None and type(self.tracing) is not bool:
            wrong.append(("tracing", "True, False or None"))
        if not _is_exporter(self.prometheus_registry, "register"):
            wrong.append(("prometheus_registry", "a CollectorRegistry, 'auto' or None"))
        if not _is_exporter(self.meter_provider, "get_meter"):
            wrong.append(("meter_provider", "a MeterProvider, 'auto' or None"))
        return [
            Fault(f"configure({name})", f"is {shown(value)}", value, allowed)
            for name, allowed in wrong
            for value in [getattr(self, name)]
        ]

    def put(self, swap: Swap) -> None:
        """Let it hold, together with the other stores of *swap*."""
        if self.max_threads is not None:
            from .._runtime.pool import pool

            swap.attribute(pool, "max_threads", self.max_threads)
        if names := _names(self.uninterruptible_modules):
            from .._runtime.interrupting.safe_point import put_uninterruptible_modules

            put_uninterruptible_modules(names, swap)
        if self.interrupt_signal is not None:
            from .._runtime.interrupting.main_thread import put_interrupt_signal

            put_interrupt_signal(self.interrupt_signal, swap)

    def follow(self) -> None:
        """Do what comes of it; for values that were set since, if they are others."""
        if self.max_threads is not None:
            from .._runtime.pool import pool

            pool.follow_limit()
        telemetry.choose(self.prometheus_registry, self.meter_provider, self.tracing)


def _is_exporter(chosen: Any, method: str) -> bool:
    """Whether counts can be exported to what was *chosen*, which then has *method*."""
    return chosen is None or (isinstance(chosen, str) and chosen in ("auto", "unchanged")) or hasattr(chosen, method)


def _names(modules: Any) -> list[str] | None:
    """The modules that are named: one name is meant as a list of one, not as its letters. ``None``: no names."""
    names = [modules] if isinstance(modules, str) else () if modules is None else modules
    if not isinstance(names, Iterable):
        return None
    names = list(names)
    return names if all(isinstance(name, str) and name for name in names) else None
