"""The effective values of each guard, and its condition."""
