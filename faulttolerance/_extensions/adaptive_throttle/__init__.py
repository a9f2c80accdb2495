"""``@adaptive_throttle``: refuse a part of the calls while the callee refuses many."""
