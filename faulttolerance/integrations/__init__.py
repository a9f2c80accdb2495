"""Guards in what services are built with: one module for each framework or client, which imports it.

All of them stand on the public names of the package, as an application would.
"""
