"""What signatures say: which kind a function is, what it is called, what its annotations mean, what can replace it."""
