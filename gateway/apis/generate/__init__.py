"""`/generate`."""

PATH = "/generate"
