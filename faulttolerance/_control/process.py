"""The arguments of ``configure`` that concern the whole process and not the values of policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .._call.order import ORDER
from .._call.row import ProcessSetting
from .._config.resolution import TRACING, tracing_faults
from .._shown import shown
from .._telemetry.connect import telemetry
from ..exceptions import Fault


def faults_of(arguments: Mapping[str, Any]) -> list[Fault]:
    """Return all faults of the *arguments* of ``configure`` that are no sources of values, by their names.

    Without any fault, ``apply`` does not fail.
    """
    faults = [
        Fault(f"configure({name})", f"is {shown(value)}", value, allowed)
        for name, (accepts, allowed) in _ALLOWED.items()
        if (value := arguments[name]) is not None and not accepts(value)
    ]
    if arguments["tracing"] is not None:
        faults += tracing_faults("configure(tracing)", arguments["tracing"])
    for setting, value in _changed(arguments):
        faults += setting.faults(value)
    return faults


def apply(arguments: Mapping[str, Any]) -> None:
    """Put the *arguments*, which have no faults, in force."""
    if arguments["max_threads"] is not None:
        from .._execution.pool import pool

        pool.configure(arguments["max_threads"])
    interruptible, uninterruptible = arguments["interruptible_modules"], arguments["uninterruptible_modules"]
    if interruptible or uninterruptible:
        from .._deadline.threads.application import add_modules

        add_modules(interruptible or (), uninterruptible or ())
    if arguments["interrupt_signal"] is not None:
        from .._deadline.threads.main_thread import set_interrupt_signal

        set_interrupt_signal(arguments["interrupt_signal"])
    for setting, value in _changed(arguments):
        setting.use(value)
    tracing = TRACING.get(str(arguments["tracing"]).lower())
    telemetry.configure(arguments["prometheus_registry"], arguments["meter_provider"], tracing)


def _changed(arguments: Mapping[str, Any]) -> Iterator[tuple[ProcessSetting, Any]]:
    """Return the settings of extensions that are to change."""
    for row in ORDER:
        if row.setting is not None:
            value = arguments.get(row.setting.name, "unchanged")
            if not isinstance(value, str) or value != "unchanged":  # ``None`` has a meaning
                yield row.setting, value


def _is_signal(chosen: Any) -> bool:
    from .._deadline.threads.main_thread import can_interrupt

    return can_interrupt(chosen)


def _is_exporter(method: str) -> Callable[[Any], bool]:
    """Return a check that counts can be exported to an argument, by its attribute *method*."""
    return lambda chosen: hasattr(chosen, method) or (isinstance(chosen, str) and chosen in ("auto", "unchanged"))


def _are_names(modules: Iterable[Any]) -> bool:
    return all(isinstance(name, str) and name for name in modules)


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_threads": (lambda value: type(value) is int and value >= 1, "an integer >= 1"),
    "interruptible_modules": (_are_names, "names of modules, as in ['sympy']"),
    "uninterruptible_modules": (_are_names, "names of modules, as in ['acme.pool']"),
    "interrupt_signal": (_is_signal, "a signal of signal.valid_signals() that can be caught"),
    "prometheus_registry": (_is_exporter("register"), "a CollectorRegistry, 'auto' or None"),
    "meter_provider": (_is_exporter("get_meter"), "a MeterProvider, 'auto' or None"),
}
"""The check of each argument that is not ``None``, and the words for its allowed values."""
