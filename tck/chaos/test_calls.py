"""Chaos: attempts fail or wait by configuration alone, where the environment allows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import (
    Guard,
    _log,
    asynchronous,
    circuit_breaker,
    configure,
    explain,
    fingerprint,
    guards,
    reload,
    retry,
    timeout,
    validate,
)
from faulttolerance.exceptions import CircuitBreakerOpenException, TimeoutException
from faulttolerance.policies import CircuitBreaker, Retry
from faulttolerance.testing import disabled, inject, recorded, virtual_time
from kit.definition import refused

HERE = __name__


class Outage(Exception):
    pass


class Picky(Exception):
    def __init__(self, code: int, reason: str) -> None: ...


class Service:
    @retry(max_retries=2, delay=0, jitter=0)
    @timeout(1000)
    def call(self) -> str:
        return "fresh"

    @retry(max_retries=2, delay=0, jitter=0)
    @timeout(1000)
    async def call_async(self) -> str:
        return "fresh"

    @asynchronous
    @retry(max_retries=2, delay=0, jitter=0)
    @timeout(1000)
    def call_offloaded(self) -> Any:
        return "fresh"


class Derived(Service):
    pass


@retry(max_retries=1, delay=0, jitter=0)
def alone() -> str:
    return "fresh"


guard = Guard(name="of chaos", circuit_breaker=CircuitBreaker())


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FAULTTOLERANCE_CHAOS_ALLOWED", "True")
    yield
    configure(properties={}, files=[])


def outcome(call: Callable[[], Any]) -> Any:
    async def awaited() -> Any:
        result = call()
        return await result if hasattr(result, "__await__") else result

    with virtual_time() as clock:
        try:
            return clock.run(awaited())
        except Exception as error:
            return type(error)


def counted(name: str) -> dict[str, float]:
    [mine] = [guard for guard in guards() if guard.name == name]
    return {
        dict(values)["kind"]: count for (metric, values), count in mine.counts.items() if metric == "ft.chaos.total"
    }


@pytest.mark.parametrize("way", ["call", "call_async", "call_offloaded"])
def test_policies_treat_chaos_as_faults_of_the_body(way: str) -> None:
    """Errors are retried, latency is timed out, and each of them is counted by its kind."""
    call, name = getattr(Service(), way), f"{HERE}.Service.{way}"
    configure(properties={f"{HERE}.Service/{way}/Chaos/error": f"{HERE}.Outage"})
    with recorded(getattr(Service, way)) as calls:
        assert outcome(call) is Outage
    assert [type(attempt.failure) for attempt in calls[0].attempts] == [Outage] * 3
    assert counted(name) == {"error": 3, "latency": 0}
    configure(properties={f"{HERE}.Service/{way}/Chaos/latency": "2s"})
    assert outcome(call) is TimeoutException
    assert counted(name) == {"error": 3, "latency": 3}
    configure(properties={})
    assert outcome(call) == "fresh"
    assert counted(name) == {"error": 3, "latency": 3}


@pytest.mark.parametrize(
    ("key", "befallen"),
    [
        ("Chaos", {"call", "derived", "alone", "guard"}),
        (f"{HERE}.Service/Chaos", {"call", "derived"}),
        (f"{HERE}.Service/call/Chaos", {"call", "derived"}),
        (f"{HERE}.Derived/Chaos", {"derived"}),
        (f"{HERE}/alone/Chaos", {"alone"}),
        ("of chaos/Chaos", {"guard"}),
    ],
)
def test_keys_reach_methods_classes_guards_and_everything(key: str, befallen: set[str]) -> None:
    """The nearest key wins, and ``enabled`` takes it away from one method of a class."""
    calls = {
        "call": Service().call,
        "derived": Derived().call,
        "alone": alone,
        "guard": lambda: guard.call(lambda: "fresh"),
    }
    configure(properties={f"{key}/rate": 1})
    assert {name for name, call in calls.items() if outcome(call) is ConnectionError} == befallen
    configure(properties={f"{key}/rate": 1, f"{HERE}.Service/call/Chaos/enabled": "false"})
    assert {name for name, call in calls.items() if outcome(call) is ConnectionError} == befallen - {"call", "derived"}
    configure(properties={f"{key}/rate": 0})
    assert [outcome(call) for call in calls.values()] == ["fresh"] * 4


def test_a_circuit_opens_by_chaos() -> None:
    """Failures by chaos count as those of the body."""

    @circuit_breaker(request_volume_threshold=2)
    def query() -> str:
        return "fresh"

    configure(properties={"Chaos/error": "OSError"})
    assert [outcome(query) for _ in range(3)] == [OSError, OSError, CircuitBreakerOpenException]


def test_a_part_of_the_attempts_fails_with_one_of_the_errors() -> None:
    """The clock of a test gives the chance."""
    configure(properties={"Chaos/rate": "0.5", "Chaos/error": f"{HERE}.Outage, OSError", "Retry/enabled": False})

    def results() -> list[Any]:
        found = []
        with virtual_time(seed=7):
            for _ in range(200):
                try:
                    found.append(alone())
                except (Outage, OSError) as error:
                    found.append(type(error))
        return found

    found = results()
    assert found == results()
    assert 60 < found.count("fresh") < 140
    assert min(found.count(Outage), found.count(OSError)) > 20


def test_blocks_fail_by_chaos() -> None:
    """A block fails before it is entered; a retry enters the next one."""
    guard = Guard(name="of blocks", retry=Retry(max_retries=2, delay=0, jitter=0))
    configure(properties={"of blocks/Chaos/error": "OSError"})

    async def awaited() -> None:
        async for attempt in guard.attempts():
            async with attempt:
                raise AssertionError

    with pytest.raises(OSError, match="of blocks: made by chaos"), guard.attempt():
        raise AssertionError
    with pytest.raises(OSError, match="made by chaos"):
        asyncio.run(awaited())
    assert counted("of blocks") == {"error": 4, "latency": 0}


@pytest.mark.parametrize("value", ["false", "", "1", None])
@pytest.mark.parametrize("way", ["properties", "file"])
def test_chaos_is_ignored_unless_it_is_allowed(
    way: str, value: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of staging does no harm in production; one ERROR says why, and how to allow it."""
    file = tmp_path / "chaos.toml"
    file.write_text('["Chaos"]\nrate = 1\n', encoding="utf-8")
    monkeypatch.setattr(_log, "_logged_errors", set())
    monkeypatch.delenv("FAULTTOLERANCE_CHAOS_ALLOWED")
    if value is not None:
        monkeypatch.setenv("FAULTTOLERANCE_CHAOS_ALLOWED", value)

    configure(**{"properties": {"properties": {"Chaos/rate": 1}}, "file": {"files": [file]}}[way])

    assert [alone(), alone()] == ["fresh", "fresh"]
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "unless the environment variable FAULTTOLERANCE_CHAOS_ALLOWED is true" in record.getMessage()
    monkeypatch.setenv("FAULTTOLERANCE_CHAOS_ALLOWED", "true")
    reload()
    assert "rate = 1" in explain(alone)


@pytest.mark.parametrize(
    "variable", ["FAULTTOLERANCE_CHAOS_RATE", f"{HERE.replace('.', '_')}_alone_Chaos_rate".upper()]
)
def test_a_variable_is_ignored_unless_it_is_allowed(
    variable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A variable of the whole machine fails no call of a process that allows no chaos; one ERROR says so."""
    monkeypatch.setattr(_log, "_logged_errors", set())
    monkeypatch.delenv("FAULTTOLERANCE_CHAOS_ALLOWED")
    monkeypatch.setenv("ELSEWHERE_CHAOS_RATE", "somebody else's")
    monkeypatch.setenv(variable, "1")
    reload()

    assert [alone(), alone()] == ["fresh", "fresh"]
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "chaos is switched off" in record.getMessage()

    monkeypatch.setenv("FAULTTOLERANCE_CHAOS_ALLOWED", "true")
    reload()
    assert "rate = 1" in explain(alone)


def test_a_rate_of_nothing_is_no_chaos(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that switches chaos off is accepted in every environment."""
    monkeypatch.delenv("FAULTTOLERANCE_CHAOS_ALLOWED")
    for value in (0, "0", "0.0"):
        configure(properties={"Chaos/rate": value})
        assert alone() == "fresh"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("rate", 1.5, ("Chaos/rate", "1.5", "from 0 to 1")),
        ("latency", "soon", ("Chaos/latency", "'soon'", "duration")),
        ("error", "Outrage", ("Chaos/error", "Outrage")),
        ("error", "KeyboardInterrupt", ("Chaos/error", "KeyboardInterrupt", "subclasses of Exception")),
        ("error", f"{HERE}.Picky", ("Chaos/error", "Picky", "created from one text")),
        ("error", "caused_by(OSError)", ("Chaos/error", "subclasses of Exception")),
    ],
)
def test_wrong_values_are_refused(key: str, value: object, words: tuple[str, ...]) -> None:
    """The error gives the key, its source, and the allowed values."""
    alone()
    with refused(*words, "configure(properties=...)"):
        configure(properties={f"Chaos/{key}": value})
    assert alone() == "fresh"


def test_a_guard_with_chaos_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """It is shown at WARNING, in ``explain()``, ``guards()``, ``fingerprint()`` and the changes; no key is unused."""
    alone()
    before = fingerprint()
    with caplog.at_level(logging.WARNING, logger="faulttolerance"):
        changes = configure(properties={f"{HERE}/alone/Chaos/latency": 1})
        configure(properties={f"{HERE}/alone/Chaos/latency": 1, "Retry/maxRetries": 2})
        alone()
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{HERE}.alone has Chaos(latency=1): calls fail or wait on purpose"]
    assert [(change.where, change.after) for change in changes] == [
        (f"{HERE}.alone @Chaos(enabled)", True),
        (f"{HERE}.alone @Chaos(latency)", 1),
    ]
    assert "\n  Chaos (by configuration)\n    latency = 1" in explain(alone)
    [mine] = [guard for guard in guards() if guard.name == f"{HERE}.alone"]
    assert mine.values["Chaos/latency"] == (1, f"{HERE}/alone/Chaos/latency in configure(properties=...)")
    assert mine.policies[-1].annotation == "Chaos"
    assert [one.key for one in validate()] == []
    with_it = fingerprint()
    assert with_it != before
    configure(properties={})
    assert fingerprint() == before
    assert "Chaos" not in explain(alone)
    configure(properties={"nobody/Chaos/latency": 1})
    assert [one.key for one in validate()] == ["nobody/Chaos/latency"]


def test_tests_switch_chaos_off_and_inject_results_before_it() -> None:
    """``disabled()`` removes it with the policies; an injected result is asked for first."""
    configure(properties={"Chaos/rate": 1})
    for off in (disabled(), disabled("Chaos", alone)):
        with off:
            assert alone() == "fresh"
    with inject(alone, result="stale"):
        assert alone() == "stale"


def test_no_guard_takes_chaos_as_a_policy() -> None:
    """Chaos comes from the configuration alone."""
    with pytest.raises(TypeError, match="chaos"):
        Guard(chaos=1)  # type: ignore[call-arg]
