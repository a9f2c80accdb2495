"""Observed policies: they count the attempts that they would refuse, and refuse none."""
