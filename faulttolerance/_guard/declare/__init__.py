"""The declarations on functions and classes, and their faults."""
