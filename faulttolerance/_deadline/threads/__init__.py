"""Interrupting a call at its deadline: what deadlines a thread has, where it stands, how an exception comes there."""

from . import round as _round  # noqa: F401  # what the watchdog does, whichever part of it is asked for
