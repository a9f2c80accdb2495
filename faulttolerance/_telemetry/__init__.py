"""The receivers of counts and events; a file is imported when its receiver exists."""
