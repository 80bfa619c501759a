"""OpenAI-compatible HTTP gateway in front of one engine process."""

__version__ = "0.1.0"
