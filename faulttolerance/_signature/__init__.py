"""Signatures of functions: their kinds, their names, their annotations, and their substitutes."""
