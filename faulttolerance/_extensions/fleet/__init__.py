"""``@fleet_wide``: circuits and rate limits that processes share."""
