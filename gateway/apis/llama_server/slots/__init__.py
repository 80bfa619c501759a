"""llama-server's `/slots`."""
