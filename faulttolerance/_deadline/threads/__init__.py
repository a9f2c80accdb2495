"""The interruption of calls at their deadlines: chains of deadlines, safe points, and the delivery of exceptions."""

from . import thread_checks as _thread_checks  # noqa: F401  # completes the watchdog, whichever of its modules is imported
