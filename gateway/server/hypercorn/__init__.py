"""Adapters that harden Hypercorn's HTTP/1.1 protocol against hostile and vanishing clients."""
