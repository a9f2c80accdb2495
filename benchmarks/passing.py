"""How many files and calls of the package a guarded call passes: what a reader of a traceback has to follow.

``python -m benchmarks.passing`` prints the figures of each kind of call.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import faulttolerance as ft

__all__ = ["Passed", "count"]

_PACKAGE = str(Path(ft.__file__).parent)


class Passed(NamedTuple):
    """What one call passed."""

    files: int
    calls: int


class _Client:
    @ft.fallback(lambda context: 0, apply_on=ConnectionError)
    @ft.retry(max_retries=2, delay=0, jitter=0)
    @ft.circuit_breaker(request_volume_threshold=1000)
    @ft.timeout(60_000)
    @ft.bulkhead(8)
    def charge(self, fails: bool) -> int:
        if fails:
            raise ConnectionError
        return 1

    @ft.fallback(lambda context: 0, apply_on=ConnectionError)
    @ft.retry(max_retries=2, delay=0, jitter=0)
    @ft.circuit_breaker(request_volume_threshold=1000)
    @ft.timeout(60_000)
    @ft.bulkhead(8)
    async def charge_async(self, fails: bool) -> int:
        if fails:
            raise ConnectionError
        return 1


def count() -> dict[str, Passed]:
    """What calls pass under fallback, retry, circuit breaker, time-out and bulkhead, by the kind of call."""
    client = _Client()

    async def in_a_loop() -> dict[str, Passed]:
        found = {"async def, first call": await _async_passed(client, fails=False)}
        for _ in range(3):
            await client.charge_async(False)
            await client.charge_async(True)
        found["async def, healthy"] = await _async_passed(client, fails=False)
        found["async def, failing, with fallback"] = await _async_passed(client, fails=True)
        return found

    found = {"def, first call": _passed(lambda: client.charge(False))}
    for _ in range(3):
        client.charge(False)
        client.charge(True)
    found["def, healthy"] = _passed(lambda: client.charge(False))
    found["def, failing, with fallback"] = _passed(lambda: client.charge(True))
    return found | asyncio.run(in_a_loop())


def _passed(call: Callable[[], object]) -> Passed:
    watch = _Watch()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return watch.passed()


async def _async_passed(client: _Client, *, fails: bool) -> Passed:
    watch = _Watch()
    sys.setprofile(watch)
    try:
        await client.charge_async(fails)
    finally:
        sys.setprofile(None)
    return watch.passed()


class _Watch:
    """Notes each function of the package that is entered on this thread; a coroutine counts when it begins."""

    def __init__(self) -> None:
        self._entered: list[str] = []
        self._begun: set[int] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_PACKAGE):
            return
        if id(frame) in self._begun and frame.f_lasti > 0:
            return  # a coroutine that goes on
        self._begun.add(id(frame))
        self._entered.append(frame.f_code.co_filename)

    def passed(self) -> Passed:
        return Passed(len(set(self._entered)), len(self._entered))


def main() -> int:
    for what, passed in count().items():
        print(f"{what:34} {passed.files:3} files {passed.calls:4} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
