"""Configuration: sources, keys, precedence. Nothing heavy is imported before a key is found."""

from .declared import Declared as Declared, Effective as Effective
from .global_switches import Switches as Switches
from .key import Key as Key, enabled_keys as enabled_keys, parameter_keys as parameter_keys
from .settings import Settings as Settings, State as State, settings as settings
from .snapshot import Snapshot as Snapshot
