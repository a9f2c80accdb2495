"""The execution of attempts: on the caller's thread, on a thread of the pool, or as a task."""
