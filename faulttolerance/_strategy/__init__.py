"""Strategies: pure decisions without clock, thread, loop or chance; moments and random numbers are arguments."""
