"""`llama-gateway bench`: an HTTP benchmark for OpenAI-compatible servers, measured at the client."""
