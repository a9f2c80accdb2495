"""Guards for frameworks and clients of services: one module for each, which imports the framework or client.

All modules use the public names of the package only, as an application would.
"""
