"""Where values come from: sources, keys, precedence. Nothing heavy is imported before a key is found."""

from .effective import Effective
from .key import Declared, Key, enabled_keys, parameter_keys
from .settings import Settings, Switches, settings
from .snapshot import Snapshot

__all__ = [
    "Declared",
    "Effective",
    "Key",
    "Settings",
    "Snapshot",
    "Switches",
    "enabled_keys",
    "parameter_keys",
    "settings",
]
