"""The receivers of counts and events: one file for each, imported when there is somebody to receive."""
