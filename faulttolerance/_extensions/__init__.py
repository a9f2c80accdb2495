"""Policies and wrappers around, beside or before the core: one folder for each."""
