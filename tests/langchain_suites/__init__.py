"""LangChain's standard tests against this server."""
