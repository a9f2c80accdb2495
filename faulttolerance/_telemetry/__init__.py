"""The receivers of counts and events: one file for each, imported when its receiver exists."""
