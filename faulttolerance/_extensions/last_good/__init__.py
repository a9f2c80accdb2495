"""``last_good``: the last good result answers for a call that fails."""
