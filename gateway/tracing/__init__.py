"""Access log and OpenTelemetry traces: what an operator sees of each request."""
