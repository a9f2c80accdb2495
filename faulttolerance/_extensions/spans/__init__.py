"""A span of OpenTelemetry for each attempt."""
