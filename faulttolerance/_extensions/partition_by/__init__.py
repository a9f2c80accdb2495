"""``@partition_by``: a state for each key."""
