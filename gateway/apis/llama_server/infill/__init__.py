"""llama-server's `/infill`."""
