"""The clock, and the deadlines of threads, tasks and greenlets."""
