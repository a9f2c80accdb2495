"""Settings that no guard depends on: what they say of declared policies is all that a test asks of them."""

from __future__ import annotations

from typing import Any

from faulttolerance._config import Configuration, Settings
from faulttolerance._platform.swap import Swap


def settings_of(**inputs: Any) -> Settings:
    """New settings, with what ``configure`` would be given in force."""
    settings = Settings()
    renew(settings, **inputs)
    return settings


def renew(settings: Settings, **inputs: Any) -> None:
    """Read everything again, and put it in force."""
    put(settings, settings.next_configuration(settings.prepare(**inputs)))
    settings.warn_of_ignored_switches()


def put(settings: Settings, state: Configuration) -> None:
    """Let *state* be in force."""
    swap = Swap()
    settings.install(state, swap)
    swap.take_place()
