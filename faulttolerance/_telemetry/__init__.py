"""Where counts and events go: one file for each receiver, imported when there is somebody to receive."""
