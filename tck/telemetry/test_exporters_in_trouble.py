"""Exporters in trouble: their errors are logged, repaired where possible, and affect no call."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from faulttolerance import Guard, configure, retry, timeout
from faulttolerance.policies import Retry
from faulttolerance.testing import reset
from kit.meter import OpenTelemetryMeter
from kit.program import python


@retry
@timeout(9000)
def charge() -> int:
    return 1


def shown(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_a_guard_whose_name_no_encoding_can_write_is_shown_with_an_escape() -> None:
    """A name of a file may hold such a character; it must not end the scrape of all other metrics."""
    registry = CollectorRegistry()
    configure(prometheus_registry=registry)
    guard = Guard(retry=Retry(), name="copy of \udce9t\u00e9")
    guard.call(int)
    guard.close()

    assert r'method="copy of \\udce9té",result="valueReturned"} 1.0' in shown(registry)


# A registry that the application empties


def emptied(registry: CollectorRegistry) -> None:
    """Unregister all collectors of *registry*, as suites of tests do between two tests."""
    for collector in list(registry._collector_to_names):
        registry.unregister(collector)


def test_an_emptied_registry_can_be_given_up() -> None:
    """No collector is left there to be removed."""
    registry = CollectorRegistry()
    configure(prometheus_registry=registry)
    charge()
    emptied(registry)

    configure(prometheus_registry=None)
    assert "ft_" not in shown(registry)

    configure(prometheus_registry=registry)
    assert "ft_invocations_total" in shown(registry)


def test_counts_are_shown_in_an_emptied_registry_after_a_reset() -> None:
    """A reset reaches its end, and the next test finds the initial state."""
    registry = CollectorRegistry()
    configure(prometheus_registry=registry)
    charge()
    emptied(registry)

    reset()
    configure(prometheus_registry=registry)
    charge()

    assert f'method="{__name__}.charge",result="valueReturned"}} 1.0' in shown(registry)


# OpenTelemetry before 1.30, and providers that fail


class OldMeter:
    """A meter that knows no advice on boundaries."""

    def __init__(self, meter: Any) -> None:
        self.meter = meter

    def create_histogram(self, name: str, unit: str = "", description: str = "") -> Any:
        return self.meter.create_histogram(name, unit, description)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.meter, name)


def test_metrics_come_without_boundaries_where_none_can_be_given(caplog: pytest.LogCaptureFixture) -> None:
    """A view of the application sets them then; a message says so when the first samples are collected."""
    reader = InMemoryMetricReader()
    real = MeterProvider([reader], shutdown_on_exit=False)

    class Provider:
        def get_meter(self, name: str) -> OldMeter:
            return OldMeter(real.get_meter(name))

    configure(meter_provider=Provider(), prometheus_registry=None)  # type: ignore[arg-type]
    charge()
    assert caplog.records == []

    data: Any = reader.get_metrics_data()
    metrics = [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
    reader.collect()
    real.shutdown()

    assert {"ft.invocations.total", "ft.timeout.executionduration"} <= {metric.name.lower() for metric in metrics}
    assert [record.getMessage() for record in caplog.records] == [
        "the boundaries of histograms need opentelemetry-api 1.30, or a view that sets them"
    ]


def test_a_provider_that_gives_no_meter_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Its failure is in the log, with its traceback, and nowhere else."""
    unhandled: list[Any] = []
    before, threading.excepthook = threading.excepthook, unhandled.append

    class Provider:
        def get_meter(self, name: str) -> Any:
            raise RuntimeError("no meter today")

    try:
        configure(meter_provider=Provider(), prometheus_registry=None)  # type: ignore[arg-type]
        assert charge() == 1
    finally:
        threading.excepthook = before

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "metrics are not exported")
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no meter today"
    assert unhandled == []


def test_an_error_of_an_exporter_does_not_keep_the_other_from_its_counts() -> None:
    """After a clash in the registry of Prometheus, OpenTelemetry gets the counts."""

    class Registry:
        def register(self, collector: object) -> None:
            raise ValueError("duplicated timeseries")

    meter = OpenTelemetryMeter()
    configure(prometheus_registry=Registry(), meter_provider=meter.provider)  # type: ignore[arg-type]
    charge()

    meter.watch(charge)
    assert meter.value("ft.invocations.total", result="valueReturned", fallback="notDefined") == 1


def test_metrics_that_no_thread_was_available_for_are_exported_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each first call tries again: a process that starts at the limit of its threads has metrics all the same."""

    @retry
    def refund() -> int:
        return 2

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    meter = OpenTelemetryMeter()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert charge() == 1
    assert refund() == 2

    meter.watch(charge)
    assert meter.value("ft.invocations.total", result="valueReturned", fallback="notDefined") == 1


# The folder of several processes


@pytest.mark.outside
def test_a_folder_that_was_away_for_a_moment_gets_all_counts(tmp_path: Path) -> None:
    """A failure is logged once; the next export writes all counts, and none twice."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    program = """
import logging, os, sys, time
records = []
class Keeping(logging.Handler):
    def emit(self, record): records.append(record.getMessage())
logging.getLogger("faulttolerance").addHandler(Keeping())
import prometheus_client
from faulttolerance import retry, timeout
folder = os.environ["PROMETHEUS_MULTIPROC_DIR"]

@retry
def first(): pass
@retry
@timeout(9000)
def second(): pass

first()
os.rename(folder, folder + ".away")
for _ in range(5): first()
for _ in range(3): second()  # its histogram asks for a file of its own
deadline = time.monotonic() + 30
while not records and time.monotonic() < deadline: time.sleep(0.05)
time.sleep(0.6)
os.rename(folder + ".away", folder)
first()

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry)
expected = ['ft_invocations_total{fallback="notDefined",method="__main__.first",result="valueReturned"} 7.0',
            'ft_timeout_executionDuration_seconds_count{method="__main__.second"} 3.0']
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    text = generate_latest(registry).decode()
    if all(line in text for line in expected): break
    time.sleep(0.05)
print(all(line in text for line in expected), len(records))
"""
    done = python(program, environment={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}, seconds=90)

    assert (done.stdout.strip(), done.returncode) == ("True 1", 0), done.stderr
