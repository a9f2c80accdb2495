"""Cutting ``compose.path`` down to what a guard has changes what a call costs, never what it does."""

from __future__ import annotations

import ast
import asyncio
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faulttolerance import asynchronous, bulkhead, circuit_breaker, explain, fallback, rate_limit, retry, timeout
from faulttolerance._guard import compose, weave
from faulttolerance.testing import reset, virtual_time

Decorate = Callable[[Any], Any]

POLICIES: dict[str, Decorate] = {
    "fallback": fallback(lambda context: f"instead of {context.failure}"),
    "retry": retry(max_retries=2, jitter=0),
    "breaker": circuit_breaker(request_volume_threshold=3),
    "rate limit": rate_limit(4),
    "time-out": timeout(10_000),
    "late time-out": timeout(10_000, interrupt=False),
    "bulkhead": bulkhead(2),
}


def combinations() -> Iterator[tuple[str, ...]]:
    names = [name for name in POLICIES if name != "late time-out"]
    for number in range(1, 2 ** len(names)):
        yield tuple(name for at, name in enumerate(names) if number >> at & 1)
    yield ("late time-out",)
    yield ("retry", "late time-out", "bulkhead")


def outcomes(names: tuple[str, ...], asynchronous: bool) -> list[str]:
    """What seven calls come to whose method fails now and then."""
    moods = iter([None, OSError("1"), None, OSError("2"), OSError("3"), OSError("4"), OSError("5"), *[None] * 20])

    def body(argument: int, *, keyword: int = 0) -> str:
        if (mood := next(moods)) is not None:
            raise mood
        return f"{argument}/{keyword}"

    async def coroutine(argument: int, *, keyword: int = 0) -> str:
        await asyncio.sleep(0)
        return body(argument, keyword=keyword)

    guarded: Any = coroutine if asynchronous else body
    for name in names:
        guarded = POLICIES[name](guarded)

    async def run() -> list[str]:
        seen = []
        for number in range(7):
            try:
                result = guarded(number, keyword=number)
                seen.append(await result if asynchronous else result)
            except Exception as error:  # the outcome is what is compared
                seen.append(f"{type(error).__name__}: {error}")
        return seen

    with virtual_time() as clock:
        return clock.run(run())


@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async def"])
def test_a_cut_path_does_what_the_whole_one_does(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every combination of policies the same calls have the same results, cut or uncut."""
    cut = {names: outcomes(names, asynchronous) for names in combinations()}
    reset()
    monkeypatch.setattr(compose, "woven", weave.uncut)

    assert {names: outcomes(names, asynchronous) for names in combinations()} == cut


def test_without_the_text_of_the_program_calls_take_the_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment of compiled files only works as well."""

    def no_source(function: object) -> object:
        raise OSError("source code not available")

    monkeypatch.setattr(weave, "_source", no_source)
    weave._woven.cache_clear()
    try:
        found = outcomes(("retry", "time-out", "bulkhead"), asynchronous=False)
    finally:
        weave._woven.cache_clear()

    assert found[:2] == ["0/0", "1/1"]


def test_what_a_guard_has_not_is_not_in_its_path() -> None:
    """A guard pays for its own policies only."""

    @retry
    def function() -> None: ...

    text = explain(function, source=True)

    assert "next_delay" in text
    assert "bulkhead" not in text
    assert "await " not in text
    assert ast.parse(text[text.index("def path") :])


def test_a_traceback_shows_the_lines_that_run() -> None:
    """The cut path keeps the file and the line numbers of the one that people read."""

    @timeout(1000)
    def function() -> None:
        raise OSError

    with pytest.raises(OSError) as caught:
        function()
    frames = traceback.extract_tb(caught.value.__traceback__)

    shown = [frame.line for frame in frames if frame.filename == compose.__file__]
    assert "result = function(*args, **kwargs) if kwargs else function(*args)" in shown


def test_a_program_that_is_exchanged_on_disk_goes_on_as_it_was_loaded(tmp_path: Path) -> None:
    """An upgrade under a running process must not mix two versions of one function."""
    program = tmp_path / "program"
    shutil.copytree(Path(compose.__file__).parents[1], program / "faulttolerance")
    lines = [
        "import pathlib, sys",
        f"sys.path.insert(0, {str(program)!r})",
        "from faulttolerance import retry",
        "from faulttolerance._guard import compose",
        "assert compose.__file__.startswith(sys.path[0])",
        "pathlib.Path(compose.__file__).write_text('nothing')",
        "print(retry(lambda: 'as loaded')())",
    ]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)

    assert (run.stdout, run.stderr) == ("as loaded\n", "")


def test_a_call_that_is_cancelled_before_it_began_is_cancelled() -> None:
    """Whoever awaits the handle afterwards sees a cancellation, as for a task."""

    @asynchronous
    async def function() -> None: ...

    call: Any = function()
    assert call.cancel()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call)
