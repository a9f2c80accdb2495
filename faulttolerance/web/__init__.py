"""The guards of a process as a page for people, and as JSON for machines."""
