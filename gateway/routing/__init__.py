"""Routing of requests to replicas by the prefixes that they hold. Pure: no clock, no I/O."""
