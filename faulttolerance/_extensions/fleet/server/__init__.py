"""The servers of a fleet: Redis, or memory for tests."""
