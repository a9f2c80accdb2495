"""Policies: frozen values of the declared parameters, with their ranges and units."""

from .core import *  # noqa: F403
from .fallback import *  # noqa: F403
from .kind import Kind as Kind
from .parameter import *  # noqa: F403
from .unit import ChronoUnit as ChronoUnit, format_duration as format_duration, seconds as seconds
