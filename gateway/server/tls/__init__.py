"""TLS on accepted sockets, and the certificates for it."""
