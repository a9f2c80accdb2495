"""A trace that shows each attempt of a call, with its number and what went wrong."""

from __future__ import annotations

import sys

from faulttolerance import Guard, configure
from faulttolerance.policies import Retry

try:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ImportError:
    print('needs OpenTelemetry: pip install "faulttolerance[opentelemetry]" opentelemetry-sdk')
    sys.exit()

spans = InMemorySpanExporter()  # in production: one that sends them to a collector
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
configure(tracing="spans")

payments = Guard(name="payments", retry=Retry(max_retries=2, delay=10, jitter=0, retry_on=ConnectionError))
answers = [ConnectionError("refused"), None]


def charge() -> str:
    if failure := answers.pop(0):
        raise failure
    return "charged"


with trace.get_tracer("shop").start_as_current_span("order"):
    print(payments.call(charge))

for span in spans.get_finished_spans():
    print(span.name, dict(span.attributes or {}))
names = [span.name for span in spans.get_finished_spans()]
assert names == ["payments", "payments", "order"], names
