"""Policies that are observed: what they would have done is counted."""
