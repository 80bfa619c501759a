"""SQL database of the operator's data: API keys and their usage."""
