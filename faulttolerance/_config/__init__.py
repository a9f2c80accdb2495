"""Configuration: sources, keys, precedence. No heavy package is imported before a key is found."""

from .key import Declared as Declared, Key as Key, ignore_keys as ignore_keys, parameter_keys as parameter_keys
from .resolution import (
    Effective as Effective,
    Switches as Switches,
    with_configured_policies as with_configured_policies,
)
from .settings import Configuration as Configuration, Settings as Settings, settings as settings
from .snapshot import Snapshot as Snapshot
