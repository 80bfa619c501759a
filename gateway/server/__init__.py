"""From bytes to ASGI: sockets, connections, limits, shutdown."""
