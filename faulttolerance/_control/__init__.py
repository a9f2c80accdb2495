"""What an operator changes: configuration, exemption, what holds for the process."""
