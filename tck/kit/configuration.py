"""Settings on which no guard depends: a test asks only what they say of declared policies."""

from __future__ import annotations

from typing import Any

from faulttolerance._config import Configuration, Settings
from faulttolerance._config.snapshot import inputs_of
from faulttolerance._platform.swap import Swap


def settings_of(**inputs: Any) -> Settings:
    """Return new settings, with the arguments of ``configure`` in force."""
    settings = Settings()
    renew(settings, **inputs)
    return settings


def renew(settings: Settings, **inputs: Any) -> None:
    """Read all sources again, and put the result in force."""
    before = settings.state
    put(settings, settings.next_configuration(settings.prepare(before, **inputs_of(**inputs)[0]), before))
    settings.warn_of_ignored_switches()


def put(settings: Settings, state: Configuration) -> None:
    """Put *state* in force."""
    swap = Swap()
    settings.install(state, swap)
    settings.version.force(swap)
