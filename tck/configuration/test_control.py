"""The functions that control a configuration: configure, reload, validate, explain and guards."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import (
    BulkheadException,
    CircuitBreakerOpenException,
    FaultToleranceDefinitionException,
    Guard,
    apply_guard,
    bulkhead,
    circuit_breaker,
    circuit_breaker_name,
    circuit_breakers,
    configure,
    explain,
    guards,
    health,
    rate_limit,
    reload,
    retry,
    timeout,
    validate,
)
from faulttolerance._config import Snapshot
from faulttolerance.exceptions import RateLimitException
from faulttolerance.policies import CircuitBreaker, Retry
from kit.tiers import few_and_many

HERE = __name__


class Failing:
    """A client that fails and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    @retry(max_retries=2, delay=0, jitter=0)
    def call(self) -> None:
        self.calls += 1
        raise OSError

    @circuit_breaker(request_volume_threshold=2, delay=60_000)
    def broken(self) -> None:
        self.calls += 1
        raise OSError


def attempts(target: Any = None) -> int:
    target = target or Failing()
    with pytest.raises(OSError):
        target.call()
    return int(target.calls)


def refused(call: Callable[[], object]) -> type[BaseException] | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


# configure and reload


def test_values_are_read_when_a_guard_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decorators run at import, settings arrive later."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "4")

    assert attempts() == 5


def test_configure_reaches_guards_that_were_used_before() -> None:
    """Their next call follows the new values, and the return value has the changes."""
    before = attempts()

    changes = configure(properties={f"{HERE}.Failing/call/Retry/maxRetries": 0})

    assert (before, attempts()) == (3, 1)
    assert [(one.where, one.before, one.after) for one in changes] == [
        (f"{HERE}.Failing.call @Retry(max_retries)", 2, 0)
    ]
    assert changes[0].source == f"{HERE}.Failing/call/Retry/maxRetries in configure(properties=...)"


def test_reload_reads_files_again(tmp_path: Path) -> None:
    """It reads the environment again, too."""
    file = tmp_path / "faulttolerance.toml"
    file.write_text("Retry.maxRetries = 0")
    configure(files=[file])
    before = attempts()

    file.write_text("Retry.maxRetries = 1")
    between = attempts()
    changes = reload()

    assert (before, between, attempts()) == (1, 1, 2)
    assert [(one.before, one.after) for one in changes] == [(0, 1)]


def test_an_error_changes_nothing(tmp_path: Path) -> None:
    """The right values of the same file have no effect, either."""
    file = tmp_path / "faulttolerance.toml"
    file.write_text("Retry.maxRetries = 0")
    configure(files=[file])
    first, breaker = attempts(), Failing()
    refused(breaker.broken)

    file.write_text("Retry.maxRetries = 5\nCircuitBreaker.failureRatio = 2.0")
    with pytest.raises(FaultToleranceDefinitionException) as error:
        reload()

    assert (first, attempts()) == (1, 1)
    assert str(error.value).endswith("faulttolerance.toml)")
    file.write_text("Retry.maxRetries = 3")
    reload()
    assert attempts() == 4


def test_health_shows_the_last_reload_until_another_one(tmp_path: Path) -> None:
    """It shows when and how it ended, and its faults without the values, which may be secrets."""
    file = tmp_path / "faulttolerance.toml"
    file.write_text("Retry.maxRetries = 0")
    configure(files=[file])
    attempts()  # a guard is in use
    before = health()

    file.write_text("Retry.maxRetries = 'a secret'")
    with pytest.raises(FaultToleranceDefinitionException):
        reload()
    failed = health()
    file.write_text("Retry.maxRetries = 3")
    reload()
    after = health()

    assert (before.status, before.reload, before.as_dict()) == ("up", "", {"status": "up", "reasons": []})
    assert (failed.status, len(failed.reasons)) == ("degraded", 1)
    assert (
        failed.reasons[0]
        == f"the last reload {failed.reload}, because of Retry/maxRetries; the old configuration stays in force"
    )
    assert (after.status, after.reasons, after.as_dict()["reload"]) == ("up", (), after.reload)
    assert re.fullmatch(r"succeeded at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", after.reload)


def test_health_names_a_source_that_raises_by_the_kind_of_its_failure_alone() -> None:
    """The message of the failure may hold the password of the source."""

    def source() -> dict[str, str]:
        if is_gone:
            raise ConnectionError("postgresql://me:secret@db")
        return {}

    is_gone = False
    configure(sources=[source])
    is_gone = True
    with pytest.raises(Exception, match="secret"):
        reload()

    assert "secret" not in str(health().as_dict())


def test_a_file_that_vanished_leaves_the_values_in_force(tmp_path: Path) -> None:
    """A deployment that goes wrong does not reset a running service to its defaults."""
    file = tmp_path / "faulttolerance.toml"
    file.write_text("Retry.maxRetries = 0")
    configure(files=[file])
    attempts()

    file.unlink()
    with pytest.raises(FaultToleranceDefinitionException, match="cannot be read"):
        reload()

    assert attempts() == 1


def test_a_call_in_flight_finishes_under_the_values_it_began_with() -> None:
    """Its attempts are counted against the old limit."""

    class Client:
        def __init__(self) -> None:
            self.calls = 0

        @retry(max_retries=3, delay=0, jitter=0)
        def call(self) -> None:
            self.calls += 1
            if self.calls == 1:
                configure(properties={"Retry/maxRetries": 0})
            raise OSError

    under_way = attempts(client := Client())
    client.calls = 10

    assert (under_way, attempts(client) - 10) == (4, 1)


def test_a_circuit_stays_open_across_a_reload() -> None:
    """State outlives values."""
    target = Failing()
    refused(target.broken)
    refused(target.broken)

    configure(properties={"CircuitBreaker/successThreshold": 3})

    assert refused(target.broken) is CircuitBreakerOpenException
    assert circuit_breakers.state(f"{HERE}.Failing.broken") == "open"


def test_a_policy_that_is_switched_off_and_on_keeps_its_state() -> None:
    """The switch is for the calls, not for the memory."""
    target = Failing()
    refused(target.broken)
    refused(target.broken)

    configure(properties={"CircuitBreaker/enabled": "false"})
    off = refused(target.broken)
    configure(properties={})

    assert (off, refused(target.broken)) == (OSError, CircuitBreakerOpenException)


def test_a_smaller_bulkhead_drains_and_a_larger_one_admits() -> None:
    """Calls that have a permit keep it."""

    class Client:
        @bulkhead(2)
        def wait(self, begun: threading.Event, barrier: threading.Event) -> None:
            begun.set()
            assert barrier.wait(30)

    client, barrier, opened = Client(), threading.Event(), threading.Event()
    opened.set()

    def probe() -> type[BaseException] | None:
        return refused(lambda: client.wait(threading.Event(), opened))

    with ThreadPoolExecutor(2) as threads:
        try:
            inside = []
            for _ in range(2):
                begun = threading.Event()
                inside.append(threads.submit(client.wait, begun, barrier))
                assert begun.wait(3)
            full = probe()
            configure(properties={"Bulkhead/value": 3})
            larger = probe()
            configure(properties={"Bulkhead/value": 1})
            smaller = probe()
        finally:
            barrier.set()
        ended = [future.result(3) for future in inside]

    assert (full, larger, smaller) == (BulkheadException, None, BulkheadException)
    assert ended == [None, None]
    assert probe() is None


def test_a_rate_window_goes_on_across_a_reload() -> None:
    """The calls that were counted still count."""

    class Client:
        @rate_limit(2, window=60)
        def call(self) -> None: ...

    client = Client()
    client.call()

    configure(properties={"RateLimit/value": 1})
    lower = refused(client.call)
    configure(properties={"RateLimit/value": 2})

    assert (lower, refused(client.call), refused(client.call)) == (RateLimitException, None, RateLimitException)


@few_and_many("reloads", 6, 100)
def test_reloading_under_load_is_safe(reloads: int) -> None:
    """Every call sees one of the two configurations as a whole."""

    class Client:
        @retry(max_retries=0, delay=0, jitter=0, max_duration=0)
        @bulkhead(64)
        def call(self, calls: list[None]) -> None:
            calls.append(None)
            raise OSError

    client, stop, seen = Client(), threading.Event(), set[int]()

    def work() -> None:
        while not stop.is_set():
            calls: list[None] = []
            with pytest.raises(OSError):
                client.call(calls)
            seen.add(len(calls))

    with ThreadPoolExecutor(4) as threads:
        workers = [threads.submit(work) for _ in range(4)]
        for number in range(reloads):
            configure(properties={"Retry/maxRetries": 2 if number % 2 else 5, "Bulkhead/value": 40 + number})
        stop.set()
        for worker in workers:
            worker.result()

    assert seen <= {1, 3, 6}


def test_a_configured_guard_looks_nothing_up_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are resolved once per guard; later calls do not know that there is a configuration."""
    configure(properties={"Retry/maxRetries": 1})
    first = attempts()

    monkeypatch.setattr(Snapshot, "find_all", None)
    monkeypatch.setattr(Snapshot, "mentions", None)

    assert (first, attempts()) == (2, 2)


def test_a_guard_that_is_a_value_is_configured_by_its_name() -> None:
    """The same holds for the guard of a decorator."""
    guard = Guard(retry=Retry(max_retries=1, jitter=0), name="public payments")
    calls: list[None] = []

    def fail() -> None:
        calls.append(None)
        raise OSError

    try:
        configure(properties={"public payments/Retry/maxRetries": 4})
        assert refused(lambda: guard.call(fail)) is OSError
    finally:
        guard.close()

    assert len(calls) == 5


# Inheritance


@pytest.mark.parametrize(
    ("key", "subclass", "base"),
    [
        ("Base/call/Retry/enabled", 1, 1),
        ("Special/call/Retry/enabled", 1, 3),
        ("Special/Retry/enabled", 1, 3),
        ("Base/Retry/enabled", 1, 1),
    ],
)
def test_enabled_keys_reach_inherited_methods(key: str, subclass: int, base: int) -> None:
    """A key names the concrete class, or the class that declares the method, which reaches all its subclasses."""

    class Base(Failing):
        @retry(max_retries=2, delay=0, jitter=0)
        def call(self) -> None:
            self.calls += 1
            raise OSError

    class Special(Base):
        pass

    here = f"{HERE}.test_enabled_keys_reach_inherited_methods.<locals>"
    configure(properties={f"{here}.{key}": "false"})

    assert (attempts(Special()), attempts(Base())) == (subclass, base)


def test_parameter_keys_follow_the_class_that_declares_the_annotation() -> None:
    """Specification: the class name "where the annotation is declared upon"."""

    @retry(max_retries=2, delay=0, jitter=0)
    class Base:
        def __init__(self) -> None:
            self.calls = 0

        def call(self) -> None:
            self.calls += 1
            raise OSError

    class Special(Base):
        pass

    here = f"{HERE}.test_parameter_keys_follow_the_class_that_declares_the_annotation.<locals>"
    configure(properties={f"{here}.Base/Retry/maxRetries": 0, f"{here}.Special/Retry/maxRetries": 5})

    assert (attempts(Special()), attempts(Base())) == (1, 1)
    assert [one.key for one in validate() if one.key.startswith(here)] == [f"{here}.Special/Retry/maxRetries"]


# validate, explain, guards


@pytest.fixture
def function() -> Callable[[], None]:
    @timeout(500)
    def charge() -> None: ...

    return charge


def test_validate_reports_everything_at_once(monkeypatch: pytest.MonkeyPatch, function: Callable[[], None]) -> None:
    """This includes guards that were never called."""
    monkeypatch.setenv("FAULTTOLERANCE_TIMEOUT_VALUE", "never")
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "-7")

    with pytest.raises(FaultToleranceDefinitionException) as error:
        validate()

    assert {"Timeout/value", "Retry/maxRetries"} <= {fault.where for fault in error.value.faults}
    assert len(set(error.value.faults)) == len(error.value.faults)


def test_a_wrong_value_is_refused_at_the_first_call_where_nobody_validates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other value silently takes its place."""
    monkeypatch.setenv("FAULTTOLERANCE_RETRY_MAXRETRIES", "-7")

    assert refused(Failing().call) is FaultToleranceDefinitionException


def test_validate_returns_keys_that_nothing_uses() -> None:
    """Each comes with the nearest key that would be used."""
    key = f"{HERE}.Failing/call/Retry/maxRetrys"
    configure(properties={key: 4})

    assert [(one.key, one.nearest) for one in validate()] == [(key, f"{HERE}.Failing/call/Retry/maxRetries")]


def test_validate_returns_names_of_circuits_that_are_listened_to_and_that_no_guard_has() -> None:
    """Each comes with the nearest name that a guard has; an existing circuit is not, under any of its names."""

    @circuit_breaker
    @circuit_breaker_name("charging")
    def charge() -> None: ...

    named = Guard(circuit_breaker=CircuitBreaker(), name="shipping")
    unguarded = Guard(retry=Retry(), name="billing")
    for name in ("charging", f"{HERE}.Failing.broken", named.name, "no-such-circuit", unguarded.name, "chargin"):
        circuit_breakers.on_state_change(name, lambda *_: None)
    undo = circuit_breakers.on_state_change("no longer", lambda *_: None)
    undo()

    found = {one.key: one.nearest for one in validate()}

    assert list(found) == ["no-such-circuit", "billing", "chargin"]
    assert found["chargin"] == "charging"
    assert charge() is None


def test_validate_refuses_a_variable_that_stands_for_two_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of two methods differ only in characters that the mapping loses."""

    class Client:
        @retry
        def charge_it(self) -> None: ...

        @retry
        def chargeIt(self) -> None: ...

        @retry
        def charge_IT(self) -> None: ...

    name = f"{HERE}.{Client.__qualname__}/charge_it/Retry/delay"
    variable = "".join(one if one.isalnum() else "_" for one in name).upper()
    monkeypatch.setenv(variable, "5")

    with pytest.raises(FaultToleranceDefinitionException, match=r"stands for .*charge_it.* and for .*charge_IT"):
        validate()


def test_explain_and_guards_show_value_and_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a guard that was never called."""

    class Client:
        @retry(max_retries=2, jitter=0)
        def charge(self) -> None: ...

    monkeypatch.setenv("FAULTTOLERANCE_RETRY_DELAY", "20ms")
    key = f"{HERE}.{Client.__qualname__}/charge/Retry/jitter"
    configure(properties={key: 7})

    shown = explain(Client.charge)
    listed = next(one for one in guards() if one.name == f"{HERE}.{Client.__qualname__}.charge").values

    assert f"jitter = 7ms  [{key} in configure(properties=...)]" in shown
    assert "delay = 20ms  [" in shown
    assert "Retry/delay in environment variable FAULTTOLERANCE_RETRY_DELAY" in shown
    assert listed["Retry/maxRetries"] == (2, "decorator")
    assert listed["Retry/jitter"] == (7, f"{key} in configure(properties=...)")
    assert listed["Retry/retryOn"] == ((Exception,), "default")


# Guards by name


def test_validate_names_functions_whose_guard_does_not_exist() -> None:
    """Otherwise the first call would fail in production; a guard may be created after its function."""

    @apply_guard("made after")
    def right() -> None: ...

    class Client:
        @staticmethod
        @apply_guard("made aftr")
        def wrong() -> None: ...

    guard = Guard(retry=Retry(), name="made after")
    with pytest.raises(FaultToleranceDefinitionException) as refused:
        validate()
    guard.close()
    name = f"{HERE}.{test_validate_names_functions_whose_guard_does_not_exist.__name__}.<locals>"

    assert [fault.where for fault in refused.value.faults] == [f"{name}.Client.wrong @apply_guard"]
    assert "no guard is named 'made aftr'; did you mean 'made after'?" in str(refused.value)
    assert right is not Client.wrong
