"""HTTP server that turns bytes into ASGI calls: sockets, connections, limits, shutdown."""
