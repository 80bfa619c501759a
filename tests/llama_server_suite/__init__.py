"""llama-server's own tests, run against this project's server."""
