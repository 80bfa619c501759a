"""`/generate`."""
