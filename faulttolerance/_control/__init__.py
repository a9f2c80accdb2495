"""The operations of an operator: configuration, exemption, and settings of the process."""
