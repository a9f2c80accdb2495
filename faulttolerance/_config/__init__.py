"""Where values come from: sources, keys, precedence. Nothing heavy is imported before a key is found."""

from .effective import Effective
from .key import Declared, Key, enabled_keys, parameter_keys
from .settings import Settings, State, settings
from .snapshot import Snapshot
from .switch import Switches

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
