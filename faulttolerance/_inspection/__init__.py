"""What holds for each guard, and how it stands."""
