"""``faulttolerance top``: the current work of guards in one or several processes, read from their Prometheus pages.

A separate program that only the command line imports: it requests the pages and shows the changes between two of them.
"""
