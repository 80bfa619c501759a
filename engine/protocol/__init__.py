"""Messages and frames between the gateway process and the engine process."""
