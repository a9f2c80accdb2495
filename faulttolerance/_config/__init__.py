"""Where values come from: sources, keys, precedence. Nothing heavy is imported before a key is found."""

from .declared import Declared, Effective
from .global_switches import Switches
from .key import Key, enabled_keys, parameter_keys
from .settings import Settings, State, settings
from .snapshot import Snapshot

__all__ = [
    "Declared",
    "Effective",
    "Key",
    "Settings",
    "Snapshot",
    "State",
    "Switches",
    "enabled_keys",
    "parameter_keys",
    "settings",
]
