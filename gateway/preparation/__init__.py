"""Preparation of requests: work on bodies and conversations that needs neither an engine nor the event loop."""
