"""The cost of metrics: one fully guarded call without, with Prometheus, with OpenTelemetry's SDK, and with both.

    python benchmarks/metrics.py [--calls 4096] [--rounds 100]

Each variant runs in a process of its own; the variants take turns, and the best round of each counts, in time of the
processor, so that a noisy machine slows all of them alike. After each round everything is scraped and collected once;
that time is shown apart.
The exit status is 0 if metrics cost no more than 0.2 µs, or a quarter of the guarded call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from time import perf_counter, thread_time
from typing import Any

VARIANTS = ("off", "prometheus", "opentelemetry", "both")


def guarded(variant: str) -> Any:
    from faulttolerance import bulkhead, circuit_breaker, configure, fallback, retry, timeout

    registry = provider = None
    exports = []
    if variant in ("prometheus", "both"):
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        exports.append(lambda: generate_latest(registry))
    if variant in ("opentelemetry", "both"):
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        reader = InMemoryMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        exports.append(reader.get_metrics_data)
    enabled = str(variant != "off").lower()
    configure(
        properties={"MP_Fault_Tolerance_Metrics_Enabled": enabled},
        prometheus_registry=registry,
        meter_provider=provider,
    )

    @fallback(lambda context: None)
    @retry(max_retries=2)
    @circuit_breaker
    @timeout(1000)
    @bulkhead(10)
    def call() -> None: ...

    for _ in range(2000):
        call()
    return call, exports


def serve(variant: str, calls: int) -> None:
    """Run a round for each line that comes in."""
    call, exports = guarded(variant)
    for _ in sys.stdin:
        numbers = range(calls)
        begin = thread_time()
        for _ in numbers:
            call()
        took = thread_time() - begin
        begin = perf_counter()
        for export in exports:
            export()
        exported = perf_counter() - begin
        print(json.dumps([took / calls * 1e9, exported * 1e3]), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--serve", choices=VARIANTS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.calls)
        return 0
    workers = {
        variant: subprocess.Popen(
            [sys.executable, __file__, "--serve", variant, "--calls", str(options.calls)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for variant in VARIANTS
    }
    rounds: dict[str, list[tuple[float, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(options.rounds):
        for variant, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            rounds[variant].append(tuple(json.loads(worker.stdout.readline())))
    for worker in workers.values():
        worker.communicate()
    best = {variant: min(took for took, _ in found) for variant, found in rounds.items()}
    allowed = max(200.0, 0.25 * best["off"])
    print(f"{'metrics':14} {'ns per call':>12} {'more':>8} {'ratio':>6} {'one export, ms':>15}")
    for variant, nanoseconds in best.items():
        exported = min(took for _, took in rounds[variant])
        more, ratio = nanoseconds - best["off"], nanoseconds / best["off"]
        print(f"{variant:14} {nanoseconds:12.0f} {more:8.0f} {ratio:6.2f} {exported:15.2f}")
    kept = all(best[variant] - best["off"] <= allowed for variant in VARIANTS)
    print(f"{'kept' if kept else 'BROKEN'}: metrics cost at most {allowed:.0f} ns per call")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
