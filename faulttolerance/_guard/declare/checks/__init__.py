"""Checks of definitions."""
