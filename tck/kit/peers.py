"""Other libraries on our clock: their delays pass at once, and their circuits recover by virtual time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import patch

from faulttolerance.testing import VirtualClock

__all__ = ["PEERS", "on_clock"]

PEERS = ("tenacity", "stamina", "backoff", "pybreaker", "aiobreaker", "circuitbreaker")

_DAWN = datetime(2025, 1, 1, tzinfo=UTC)


@contextmanager
def on_clock(peers: Collection[str], clock: VirtualClock) -> Iterator[None]:
    """Replace sleep and time of *peers* by *clock*. Their awaits follow the loop, which `clock.run` makes."""
    time = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.advance)

    class Calendar(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            moment = _DAWN + timedelta(seconds=clock.monotonic())
            return moment.astimezone(tz) if tz else moment.replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> datetime:
            return cls.now()

    calendar = SimpleNamespace(datetime=Calendar, timedelta=timedelta)
    places = {
        "tenacity": [("tenacity", "time", time), ("tenacity.nap", "time", time)],
        "stamina": [("tenacity", "time", time), ("tenacity.nap", "time", time)],
        "backoff": [
            ("backoff._sync", "time", time),
            ("backoff._sync", "datetime", calendar),
            ("backoff._async", "datetime", calendar),
        ],
        "pybreaker": [("pybreaker", "datetime", Calendar)],
        "aiobreaker": [
            ("aiobreaker.circuitbreaker", "datetime", Calendar),
            ("aiobreaker.state", "datetime", Calendar),
        ],
        "circuitbreaker": [("circuitbreaker", "monotonic", clock.monotonic), ("circuitbreaker", "datetime", Calendar)],
    }
    with ExitStack() as stack:
        if "stamina" in peers:  # its hooks for Prometheus would put a counter into the global registry
            hooks = import_module("stamina.instrumentation")
            hooks.set_on_retry_hooks([])
            stack.callback(hooks.set_on_retry_hooks, None)
        for module, attribute, value in {place[:2]: place for peer in peers for place in places[peer]}.values():
            stack.enter_context(patch.object(import_module(module), attribute, value))
        yield
