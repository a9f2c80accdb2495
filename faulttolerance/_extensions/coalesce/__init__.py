"""``@coalesce``: overlapping calls share one outcome."""
