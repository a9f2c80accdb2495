"""Counting: from what calls append to the series of the specification."""
