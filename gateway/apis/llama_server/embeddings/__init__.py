"""llama-server's `/embedding`."""
