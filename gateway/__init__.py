"""OpenAI-compatible HTTP gateway in front of engine processes."""

__version__ = "0.1.0"
