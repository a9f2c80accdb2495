"""The interruption of calls at their deadlines: chains of deadlines, safe points, and the delivery of exceptions."""

from .thread_checks import check_threads
from .watchdog import watchdog as _watchdog

_watchdog.look = check_threads  # whichever module of the package is imported, lazily or not
