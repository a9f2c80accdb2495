"""The files and calls of the package that a guarded call passes: the steps of whoever reads a traceback.

``python -m benchmarks.passing`` prints the figures of each kind of call, with ``--files`` the files, too, in the order
in which they are entered. ``tck/house/test_cost.py`` keeps the files of each kind at what they are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import faulttolerance as ft

__all__ = ["count"]

_PACKAGE = Path(ft.__file__).parent
_KINDS = {
    "healthy": (False, 200, logging.WARNING),
    "failing, with fallback": (True, 5, logging.ERROR),
    "failing, with fallback, logged": (True, 5, logging.WARNING),
}
"""Whether calls fail, how many are made before, so that the window of the breaker fills with successes and never with
failures, and from which level on records are wanted: of a call that gives up there is one at ``WARNING``."""
_CALLS = 10

_LOGGER = logging.getLogger("faulttolerance")
_LOGGER.addHandler(logging.NullHandler())

Passed = dict[str, int]
"""The number of functions of each file that a call entered, in order; the body of a module is one, too."""


class _Client:
    """Guarded by five policies; its circuit stays closed whatever fails."""

    def __init__(self) -> None:
        self.fails = False

    @ft.fallback(lambda context: 0, apply_on=ConnectionError)
    @ft.retry(max_retries=2, delay=0, jitter=0)
    @ft.circuit_breaker(request_volume_threshold=100, failure_ratio=1.0)
    @ft.timeout(60_000)
    @ft.bulkhead(8)
    def charge(self) -> int:
        if self.fails:
            raise ConnectionError
        return 1

    @ft.fallback(lambda context: 0, apply_on=ConnectionError)
    @ft.retry(max_retries=2, delay=0, jitter=0)
    @ft.circuit_breaker(request_volume_threshold=100, failure_ratio=1.0)
    @ft.timeout(60_000)
    @ft.bulkhead(8)
    async def charge_async(self) -> int:
        return _Client.charge.__wrapped__(self)  # type: ignore[attr-defined, no-any-return]


class _Watch:
    """Notes each function of the package that this thread enters; a coroutine that goes on is not entered again."""

    def __init__(self) -> None:
        self._entered: dict[FrameType, None] = {}  # keeps them alive: no frame has the identity of another

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._entered[frame] = None

    def passed(self) -> Passed:
        counts: Passed = {}
        for frame in self._entered:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(_PACKAGE):
                name = file.relative_to(_PACKAGE).as_posix()
                counts[name] = counts.get(name, 0) + 1
        return counts


def _of_functions() -> dict[str, Passed]:
    client = _Client()
    by_kind = {"first call": _watched(client.charge)}
    for kind, (client.fails, warm_up, level) in _KINDS.items():
        _LOGGER.setLevel(level)
        for _ in range(warm_up):
            client.charge()
        by_kind[kind] = min((_watched(client.charge) for _ in range(_CALLS)), key=_calls)
    return {f"def, {kind}": passed for kind, passed in by_kind.items()}


async def _of_coroutines() -> dict[str, Passed]:
    client = _Client()
    by_kind = {"first call": await _watched_async(client)}
    for kind, (client.fails, warm_up, level) in _KINDS.items():
        _LOGGER.setLevel(level)
        for _ in range(warm_up):
            await client.charge_async()
        by_kind[kind] = min([await _watched_async(client) for _ in range(_CALLS)], key=_calls)
    return {f"async def, {kind}": passed for kind, passed in by_kind.items()}


def _calls(passed: Passed) -> int:
    # Now and then a call wakes the watchdog or adds up what was counted: the fewest of a few calls are those of each.
    return sum(passed.values())


def _watched(call: Callable[[], object]) -> Passed:
    watch = _Watch()
    with watch:
        call()
    return watch.passed()


async def _watched_async(client: _Client) -> Passed:
    watch = _Watch()
    with watch:
        await client.charge_async()
    return watch.passed()


def count() -> dict[str, Passed]:
    """Count what calls pass under fallback, retry, circuit breaker, time-out and bulkhead, by the kind of call.

    A first call is the first of its process, which loads what no declaration needs; so each way of calling has one.
    """
    by_kind: dict[str, Passed] = {}
    for way in ("def", "async def"):
        # As a script: the root of the project is not on its path, so that an installed wheel is what is counted.
        done = subprocess.run([sys.executable, __file__, "--way", way], check=True, stdout=subprocess.PIPE)
        by_kind |= json.loads(done.stdout)
    return by_kind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.passing", description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files, each with the functions entered there")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument("--way", choices=["def", "async def"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(_of_functions() if options.way == "def" else asyncio.run(_of_coroutines())))
        return 0
    counted = count()
    if options.json:
        print(json.dumps(counted))
        return 0
    for kind, passed in counted.items():
        print(f"{kind:41} {len(passed):3} files {_calls(passed):4} calls")
        if options.files:
            print(*(f"    {file} {calls}" for file, calls in passed.items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
