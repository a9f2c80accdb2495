"""What a guarded call costs, beside its peers: ``python -m benchmarks``."""
