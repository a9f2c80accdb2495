"""The library's adaptation to interpreters and other libraries: threads, locks, forks, signals and greenlets."""
