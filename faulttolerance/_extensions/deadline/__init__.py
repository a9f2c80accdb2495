"""``@deadline``: a limit for whole calls and for blocks."""
