"""What answers a fleet: Redis, or memory for tests."""
