"""Who runs an attempt: the caller's thread, a thread of the pool, a task."""
