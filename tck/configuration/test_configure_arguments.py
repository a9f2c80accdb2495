"""The arguments of ``configure``: everything is checked first, and an error leaves all as it was."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_settings")

from faulttolerance import (
    FaultToleranceDefinitionException,
    Future,
    asynchronous,
    completed_future,
    configure,
    explain,
    reload,
    retry,
)
from faulttolerance._deadline.threads import application
from faulttolerance._deadline.threads.main_thread import main_thread
from faulttolerance._execution.pool import pool


class Unspeakable:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError


WRONG: dict[str, list[Any]] = {
    "properties": [5, "Retry/delay=1", ["Retry/delay"], [("Retry/delay", 1)]],
    "files": [5, [5], [b"conf.toml"], [None]],
    "sources": [5, [5], ["conf.toml"]],
    "max_threads": [0, -1, 1.5, "4", True, [4]],
    "interruptible_modules": [5, [5], [""], ""],
    "uninterruptible_modules": [5, [5], [""], ""],
    "interrupt_signal": [9999, 0, -1, "SIGUSR2", 1.5, True, [], getattr(signal, "SIGKILL", 0)],
    "prometheus_registry": [5, "global", object(), Unspeakable()],
    "meter_provider": [5, "global", object(), Unspeakable()],
    "tracing": [0, 1, "x"],
}


class Client:
    """A client whose configured values show in its attempts."""

    @retry(max_retries=2, delay=0, jitter=0)
    def call(self) -> None:
        self.calls = getattr(self, "calls", 0) + 1
        raise OSError


def attempts() -> int:
    client = Client()
    with pytest.raises(OSError):
        client.call()
    return int(client.calls)


def installed_and_exempt() -> tuple[object, object]:
    return {*application._interruptible}, {*application._uninterruptible}


def everything() -> tuple[object, ...]:
    """Return the settings of the process, as far as they can be seen."""
    return attempts(), explain(Client.call), pool.max_threads, main_thread.signum, installed_and_exempt()


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_argument_leaves_all_as_it_was(name: str, value: Any) -> None:
    """Neither a right argument beside it nor a part of it is in force."""
    configure(properties={"Retry/maxRetries": 4})
    before = everything()
    right: dict[str, Any] = {
        "properties": {"Retry/maxRetries": 0},
        "max_threads": 3,
        "interrupt_signal": signal.SIGINT,
        "interruptible_modules": ["acme.table"],
        "uninterruptible_modules": ["acme.pool"],
    }

    with pytest.raises(FaultToleranceDefinitionException) as refused:
        configure(**{**right, name: value})

    assert [fault.where for fault in refused.value.faults] == [f"configure({name})"]
    assert all(fault.allowed for fault in refused.value.faults)
    assert everything() == before


def test_a_wrong_value_leaves_the_settings_of_the_process_as_they_were() -> None:
    """Arguments that are no source of values come into force only after the values were checked."""
    before = everything()

    with pytest.raises(FaultToleranceDefinitionException, match="lots"):
        configure(
            properties={"Retry/maxRetries": "lots"},
            max_threads=3,
            interrupt_signal=signal.SIGINT,
            uninterruptible_modules=["acme.pool"],
            tracing=False,
        )

    assert everything() == before


def test_all_wrong_arguments_are_reported_at_once() -> None:
    """No source is read before they are right."""
    attempts()

    with pytest.raises(FaultToleranceDefinitionException) as refused:
        configure(properties={"Retry/maxRetries": "lots"}, max_threads=0, tracing="x")  # type: ignore[arg-type]

    assert {fault.where for fault in refused.value.faults} == {"configure(max_threads)", "configure(tracing)"}


def test_calls_on_threads_go_on_after_a_limit_was_refused() -> None:
    """A pool of no threads would let every call wait for ever."""

    @asynchronous
    def answer() -> Future[int]:
        return completed_future(42)

    with pytest.raises(
        FaultToleranceDefinitionException, match=r"configure\(max_threads\) is 0; allowed: an integer >= 1"
    ):
        configure(max_threads=0)

    assert answer().result(10) == 42


def test_a_single_module_is_a_name_and_not_its_letters() -> None:
    """The same holds for a single file."""
    configure(uninterruptible_modules="json")

    assert application._uninterruptible == {"json"}


def test_an_iterator_is_read_once(tmp_path: Path) -> None:
    """Generators serve as lists do, also for later reloads."""
    file = tmp_path / "faulttolerance.toml"
    file.write_text("Retry.maxRetries = 0")

    def files() -> Iterator[Path]:
        yield file

    configure(files=files(), sources=iter([lambda: {"Retry/delay": 0}]), uninterruptible_modules=iter(["acme"]))
    reload()

    assert attempts() == 1
    assert application._uninterruptible == {"acme"}


def test_modules_are_read_once() -> None:
    """A view of ``sys.modules`` may have other names at a second reading, or fail: after the values are in force."""

    class ReadOnce:
        is_read = False

        def __iter__(self) -> Iterator[str]:
            if self.is_read:
                raise RuntimeError("dictionary changed size during iteration")
            self.is_read = True
            return iter(["acme"])

    configure(properties={"Retry/maxRetries": 0}, uninterruptible_modules=ReadOnce())

    assert attempts() == 1
    assert application._uninterruptible == {"acme"}


def test_a_relative_file_is_found_again_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that becomes a daemon goes to the root."""
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "faulttolerance.toml"
    file.write_text("Retry.maxRetries = 0")
    monkeypatch.chdir(tmp_path)
    configure(files="conf/faulttolerance.toml")

    monkeypatch.chdir("/")
    file.write_text("Retry.maxRetries = 1")
    reload()

    assert attempts() == 2
    assert "file conf/faulttolerance.toml" in explain(Client.call)


def test_a_relative_file_that_the_environment_names_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is named together with others."""
    for name, text in (("one.toml", "Retry.maxRetries = 0"), ("two.toml", "Retry.delay = 0")):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", os.pathsep.join(["one.toml", "two.toml"]))
    before = attempts()

    monkeypatch.chdir("/")
    (tmp_path / "one.toml").write_text("Retry.maxRetries = 1")
    reload()

    assert (before, attempts()) == (1, 2)


def test_a_file_that_the_environment_names_may_be_missed_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is where it was first found, and not where it was first looked for."""
    (tmp_path / "faulttolerance.toml").write_text("Retry.maxRetries = 0")
    monkeypatch.chdir("/")
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", "faulttolerance.toml")
    with pytest.raises(FaultToleranceDefinitionException, match=r"faulttolerance\.toml cannot be read"):
        reload()

    monkeypatch.chdir(tmp_path)
    reload()

    assert attempts() == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove a working directory")
def test_a_working_directory_that_was_removed_is_no_end_of_reloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that another one replaced goes on with files elsewhere."""
    (tmp_path / "release").mkdir()
    file = tmp_path / "faulttolerance.toml"
    file.write_text("Retry.maxRetries = 0")
    monkeypatch.chdir(tmp_path / "release")
    monkeypatch.setenv("FAULTTOLERANCE_CONFIG", "../faulttolerance.toml")
    before = attempts()

    (tmp_path / "release").rmdir()
    file.write_text("Retry.maxRetries = 1")
    reload()

    assert (before, attempts()) == (1, 2)
