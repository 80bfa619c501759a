"""Metrics of the gateway in Prometheus' format."""
