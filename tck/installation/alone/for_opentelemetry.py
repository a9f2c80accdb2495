"""OpenTelemetry's API alone, imported, without an SDK: nothing records, and the log is as without the API."""

from __future__ import annotations

from opentelemetry import metrics, trace
from outage import down, guard, shown

from faulttolerance import configure

configure(tracing="spans")
shop = guard("shop")


def badly() -> None:
    with trace.get_tracer("shop").start_as_current_span("request"):
        try:
            shop.call(down)
        except ConnectionError:
            pass


assert metrics.get_meter_provider() is not None
shown("opentelemetry-api", lambda: shop.call(lambda: "green"), badly)
