"""Policies and companions that stand around, beside or before the spine: a folder for each."""
