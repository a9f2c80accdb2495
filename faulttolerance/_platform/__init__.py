"""What interpreters and other people do to us: threads, locks, forks, signals, greenlets."""
