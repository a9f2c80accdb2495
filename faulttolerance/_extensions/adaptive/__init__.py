"""Limits that follow latencies: of bulkheads and time-outs."""
