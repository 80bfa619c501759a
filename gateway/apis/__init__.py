"""The HTTP APIs, one folder each."""
