"""Counters of calls, and the series of the specification that they feed."""
