"""OpenAI's routes as llama-server has them: other limits, extra fields, and paths without `/v1`."""
