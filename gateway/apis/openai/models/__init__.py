"""`/v1/models`."""
