"""``faulttolerance top``: what guards do now in one or several processes, read from what these show to Prometheus.

A program of its own, which only the command line imports: it asks pages, and shows what changed between two of them.
"""
