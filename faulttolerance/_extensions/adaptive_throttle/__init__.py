"""``@adaptive_throttle``: the refusal of a share of the calls while the callee rejects many."""
