"""llama-server's `/completion`."""
