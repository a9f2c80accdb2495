"""The choice of exporters and sinks: found at the first guarded call, or named by ``configure``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .._config.resolution import OFF, SPANS, tracing_mode
from .._event import Sink, sinks
from .._log import ERROR, log as write
from .._metrics.counters import ledger
from .._platform.fork import at_fork
from .._platform.import_watch import imports, is_here
from .event_sinks import log, trace

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

    from .._platform.background import Ticker
    from .multiprocess import MultiprocessExporter
    from .opentelemetry import Exporter
    from .prometheus import Collector

ChosenRegistry: TypeAlias = "CollectorRegistry | Literal['auto', 'unchanged'] | None"
ChosenProvider: TypeAlias = "MeterProvider | Literal['auto', 'unchanged'] | None"

_PROMETHEUS = "prometheus_client"
_OPENTELEMETRY = "opentelemetry.metrics"
_PATIENCE_SECONDS = 0.5
_WRITE_SECONDS = 0.5
"""Seconds between writes if several processes share one scrape; at least one write a second is promised."""


class Telemetry:
    """The connections of the ledger with the exporters; there is one instance."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._making = RLock()
        self._is_due = True
        self._registry: Any = "auto"
        self._provider: Any = "auto"
        self._tracing: str | None = None
        self._missing: list[str] = []
        """The modules of exporters that the application has not imported yet."""
        self._collector: tuple[CollectorRegistry, Collector] | None = None
        self._multiprocess: MultiprocessExporter | None = None
        self._ticker: Ticker | None = None
        self._exporter: Exporter | None = None
        # Instruments cannot be removed: a new connection reuses the earlier instruments.
        self._exporters: list[Exporter] = []

    def connect_if_due(self) -> None:
        """Connect the exporters, once something is counted; called outside the registry's lock.

        An OpenTelemetry reader may hold a lock of its own while it calls a guarded function for the first time.
        """
        if not ledger.is_empty and (self._is_due or any(map(is_here, self._missing))):
            self._is_due = False
            self._connect()

    def configure(self, registry: Any, provider: Any, tracing: str | None) -> None:
        """Store the arguments of ``configure``, which has checked them."""
        if tracing is not None:
            self._tracing = tracing
            sinks.forget_default()
        if registry != "unchanged":
            self._disconnect_prometheus()
            self._registry = registry
        if provider != "unchanged":
            self._disconnect_opentelemetry()
            self._provider = provider
        if not self._is_due and (registry != "unchanged" or provider != "unchanged"):
            self._connect()

    def reset(self) -> None:
        """Reset the choices, and disconnect all exporters until the next first call."""
        self._disconnect_prometheus()
        with self._lock:
            self._await_imports([])
            self._disconnect_opentelemetry()
            self._registry = self._provider = "auto"
            self._tracing = None
            self._is_due = True
            for exporter in self._every_exporter():
                exporter.reset()
        sinks.set(None)

    def reset_after_fork(self) -> None:
        """Notify the exporters that the counts start at 0 in the child of a fork."""
        self._lock = RLock()
        self._making = RLock()
        for exporter in self._every_exporter():
            exporter.reset_after_fork()

    def default_sinks(self) -> tuple[Sink, ...]:
        """Return the log, and the trace unless tracing was switched off."""
        return (log,) if self._tracing_mode == OFF else (log, trace)

    def creates_spans(self) -> bool:
        """Return whether each attempt becomes a span."""
        return self._tracing_mode == SPANS

    @property
    def _tracing_mode(self) -> str:
        return tracing_mode() if self._tracing is None else self._tracing

    def _every_exporter(self) -> Iterator[Exporter | MultiprocessExporter]:
        return filter(None, (*self._exporters, self._multiprocess))

    def _connect(self, arrived: str = "") -> None:
        missing = []
        for chosen, connected, module, connect in (
            (self._registry, self._collector, _PROMETHEUS, self._connect_prometheus),
            (self._provider, self._exporter, _OPENTELEMETRY, self._connect_opentelemetry),
        ):
            if chosen is None or connected is not None:
                continue
            if chosen == "auto" and arrived != module and not is_here(module):
                missing.append(module)
            else:
                self._is_due |= not _try(partial(connect, has_just_arrived=arrived == module))
        with self._lock:
            self._await_imports(missing)

    def _await_imports(self, modules: list[str]) -> None:
        for module in self._missing:
            imports.discard(module, self._connect)
        self._missing = modules
        for module in modules:
            imports.add(module, self._connect)

    def _connect_prometheus(self, *, has_just_arrived: bool) -> None:
        from .multiprocess import MultiprocessExporter, is_multiprocess
        from .prometheus import Collector, is_exposed_by_opentelemetry

        if is_multiprocess():
            from .._platform.background import Ticker

            with self._lock:
                if self._multiprocess is None or self._ticker is None:
                    self._multiprocess = exporter = MultiprocessExporter()
                    self._ticker = Ticker(_WRITE_SECONDS, exporter.write)
                self._ticker.start()
            self._ticker.tick()
            return
        registry = self._registry
        is_chosen = registry != "auto"
        if not is_chosen:
            from prometheus_client import REGISTRY as registry  # noqa: N811

        def gives_way() -> bool:
            return not is_chosen and self._exporter is not None and is_exposed_by_opentelemetry(registry)

        with self._lock:
            if self._collector is None:
                collector = Collector(gives_way)
                registry.register(collector)
                self._collector = registry, collector

    def _disconnect_prometheus(self) -> None:
        """Disconnect from the registry outside the lock: the registry and the log are the application's (rule R10)."""
        with self._lock:
            connected, self._collector = self._collector, None
        if connected is not None:
            registry, collector = connected
            with suppress(KeyError):  # the application has emptied it, as test suites do
                registry.unregister(collector)
        if self._multiprocess is not None and self._ticker is not None and self._ticker.stop():
            self._multiprocess.write(levels=False)

    def _connect_opentelemetry(self, *, has_just_arrived: bool) -> None:
        from opentelemetry.metrics import get_meter_provider

        application = get_meter_provider()
        provider = application if self._provider == "auto" else self._provider
        is_proxy = has_just_arrived or type(provider).__name__.startswith("_Proxy")
        known = next((one for one in self._exporters if one.provider() is provider), None)
        if known is not None:
            known.is_on = True
            self._exporter = known
            return

        def make() -> None:
            from .opentelemetry import Exporter

            # Under a lock of its own: this may have to wait until a collection is over.
            with self._making:
                if self._exporter is None:
                    self._exporter = Exporter(provider)
                    if is_proxy:  # its instruments become those of the provider that is set later
                        self._exporter.provider = get_meter_provider
                    living = [one for one in self._exporters if one.provider() is not None]
                    self._exporters = [*living, self._exporter]

        if is_proxy:
            make()
        else:
            # A provider creates no instruments during a collection, and this thread may be the collecting thread.
            from .._platform.background import within

            within(_PATIENCE_SECONDS, partial(_try, make))

    def _disconnect_opentelemetry(self) -> None:
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.is_on = False


def _try(connect: Callable[[], object]) -> bool:
    """Call *connect*, log its failure, and return whether another call is useless, as one without a thread is not.

    Metrics are secondary, and must not make a guarded call fail.
    """
    try:
        connect()
    except Exception as error:  # noqa: BLE001  # registries and providers are the application's
        write(ERROR, "metrics are not exported", error=error)
        return not isinstance(error, RuntimeError)
    return True


telemetry = Telemetry()
sinks.find, sinks.tracer = telemetry.default_sinks, trace
sinks.forget_default()
at_fork(child=telemetry.reset_after_fork)
