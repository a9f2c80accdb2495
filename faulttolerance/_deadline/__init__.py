"""Time, and how a deadline ends a call: of a thread, a task, a greenlet."""
