"""The guarding of functions, methods, classes and clients."""
