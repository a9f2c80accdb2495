"""``last_good``: the last good result in place of a failed call."""
