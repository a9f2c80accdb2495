"""``@coalesce``: calls that overlap share one outcome."""
