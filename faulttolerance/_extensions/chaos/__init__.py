"""Faults and delays that configuration puts in the place of attempts."""
