"""The cost of a guarded call, beside its peers: ``python -m benchmarks``."""
