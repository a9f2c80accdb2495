"""Policies and companions around, beside or before the spine: one folder for each."""
