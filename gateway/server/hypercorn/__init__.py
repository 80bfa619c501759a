"""Adapts Hypercorn's HTTP/1.1 protocol to hostile and vanishing clients."""
